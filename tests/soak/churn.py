"""Clients that connect, work, misbehave and disconnect, with the stock SDK.

Each operation leaves its entity as it was, so a broker that keeps anything grows, and must be as
small at the end of a run as at its start.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError

WORKERS = 8
BODY = b"x" * 512
SOON_S = 5.0
"""How long a receive waits for something that must be there."""
LOCK_S = 5
MOST_DELIVERIES = 3
SUBSCRIPTIONS = ("one", "two")


def entities() -> dict[str, Any]:
    """A config file's content: for each worker a queue, a session queue and a topic."""
    queues: dict[str, Any] = {}
    topics: dict[str, Any] = {}
    for worker in range(WORKERS):
        lock = {"lock_duration": f"PT{LOCK_S}S"}
        queues[f"soak-{worker}"] = {**lock, "max_delivery_count": MOST_DELIVERIES}
        queues[f"soak-sessions-{worker}"] = {"lock_duration": "PT1M", "requires_session": True}
        topics[f"soak-topic-{worker}"] = {"subscriptions": {name: {} for name in SUBSCRIPTIONS}}
    return {"queues": queues, "topics": topics}


class Churn:
    """Workers in threads, each with its own entities."""

    def __init__(self, connection_string: str, seed: int) -> None:
        logging.getLogger("azure").setLevel(logging.CRITICAL)
        self._connection_string = connection_string
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.acts = 0
        self.messages = 0
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._work, args=(worker, random.Random(seed + worker)))
            for worker in range(WORKERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every worker finish its act."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _connect(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._connection_string)

    def _work(self, worker: int, chance: random.Random) -> None:
        while not self._stop.is_set():
            (act,) = chance.choices(list(ACTS), list(ACTS.values()))
            try:
                count = act(self._connect, worker, chance)
            except (ServiceBusError, AssertionError) as error:
                with self._lock:
                    self.failures.append(f"{act.__name__}: {type(error).__name__}: {error}")
                time.sleep(0.5)
            else:
                with self._lock:
                    self.acts += 1
                    self.messages += count


# --- acts: each returns how many messages it sent -------------------------------------------------

Connect = Callable[[], ServiceBusClient]


def _send(client: ServiceBusClient, name: str, count: int, **properties: Any) -> int:
    with client.get_queue_sender(name) as sender:
        sender.send_messages([ServiceBusMessage(BODY, **properties) for _ in range(count)])
    return count


def _drain(receiver: Any, count: int, patience_s: float = SOON_S) -> None:
    """Complete so many, which must be there."""
    while count:
        received = receiver.receive_messages(count, max_wait_time=patience_s)
        assert received, f"{count} messages are missing"
        for message in received:
            receiver.complete_message(message)
        count -= len(received)


def complete_all(connect: Connect, worker: int, chance: random.Random) -> int:
    """Plain traffic."""
    name = f"soak-{worker}"
    with connect() as client:
        count = _send(client, name, chance.randint(1, 50))
        with client.get_queue_receiver(name, prefetch_count=chance.choice([0, 20])) as receiver:
            _drain(receiver, count)
    return count


def receive_and_delete(connect: Connect, worker: int, chance: random.Random) -> int:
    """Nothing to settle."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with connect() as client:
        count = left = _send(client, f"soak-{worker}", chance.randint(1, 50))
        with client.get_queue_receiver(f"soak-{worker}", receive_mode=mode) as receiver:
            while left:
                received = receiver.receive_messages(left, max_wait_time=SOON_S)
                assert received, f"{left} messages are missing"
                left -= len(received)
    return count


def abandon_until_dead(connect: Connect, worker: int, chance: random.Random) -> int:
    """Through all deliveries into the dead-letter queue, and out of it."""
    del chance
    name = f"soak-{worker}"
    with connect() as client:
        _send(client, name, 1)
        with client.get_queue_receiver(name) as receiver:
            for _ in range(MOST_DELIVERIES):
                (message,) = receiver.receive_messages(1, max_wait_time=SOON_S)
                receiver.abandon_message(message)
        with client.get_queue_receiver(name, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            _drain(receiver, 1)
    return 1


def defer_and_fetch(connect: Connect, worker: int, chance: random.Random) -> int:
    """Put aside, fetched by number, completed."""
    numbers: list[int] = []
    with connect() as client:
        count = _send(client, f"soak-{worker}", chance.randint(1, 5))
        with client.get_queue_receiver(f"soak-{worker}") as receiver:
            while len(numbers) < count:
                received = receiver.receive_messages(count, max_wait_time=SOON_S)
                assert received, "a message is missing"
                for message in received:
                    receiver.defer_message(message)
                    assert message.sequence_number is not None
                    numbers.append(message.sequence_number)
            for message in receiver.receive_deferred_messages(numbers):
                receiver.complete_message(message)
    return count


def leave_locks_behind(connect: Connect, worker: int, chance: random.Random) -> int:
    """A receiver disconnects without settling. Its messages are available again, at the latest when
    their locks expire."""
    del chance
    with connect() as client:
        count = _send(client, f"soak-{worker}", 3)
        with client.get_queue_receiver(f"soak-{worker}") as receiver:
            receiver.receive_messages(count, max_wait_time=SOON_S)
    with connect() as client, client.get_queue_receiver(f"soak-{worker}") as receiver:
        _drain(receiver, count, 2 * LOCK_S)
    return count


def schedule_and_cancel(connect: Connect, worker: int, chance: random.Random) -> int:
    """Never delivered, and gone."""
    count = chance.randint(1, 5)
    when = datetime.now(UTC) + timedelta(hours=1)
    with connect() as client, client.get_queue_sender(f"soak-{worker}") as sender:
        messages = [ServiceBusMessage(BODY) for _ in range(count)]
        sender.cancel_scheduled_messages(sender.schedule_messages(messages, when))
    return count


def work_in_sessions(connect: Connect, worker: int, chance: random.Random) -> int:
    """New session names every time, with state that is cleared in the end."""
    name = f"soak-sessions-{worker}"
    session_id = f"{chance.random()}"
    wanted: Any = chance.choice([session_id, NEXT_AVAILABLE_SESSION])
    with connect() as client:
        count = _send(client, name, chance.randint(1, 10), session_id=session_id)
        with client.get_queue_receiver(name, session_id=wanted) as receiver:
            receiver.session.set_state(BODY)
            _drain(receiver, count)
            receiver.session.set_state(None)
    return count


def publish(connect: Connect, worker: int, chance: random.Random) -> int:
    """One body, two subscriptions."""
    count = chance.randint(1, 20)
    topic = f"soak-topic-{worker}"
    with connect() as client:
        with client.get_topic_sender(topic) as sender:
            sender.send_messages([ServiceBusMessage(BODY) for _ in range(count)])
        for subscription in SUBSCRIPTIONS:
            with client.get_subscription_receiver(topic, subscription) as receiver:
                _drain(receiver, count)
    return count


def peek_and_hang_up(connect: Connect, worker: int, chance: random.Random) -> int:
    """Looks through several links, and goes."""
    del chance
    with connect() as client, contextlib.ExitStack() as links:
        for _ in range(3):
            receiver = links.enter_context(client.get_queue_receiver(f"soak-{worker}"))
            receiver.peek_messages(5)
    return 0


ACTS: dict[Callable[[Connect, int, random.Random], int], int] = {
    complete_all: 4,
    receive_and_delete: 2,
    work_in_sessions: 2,
    publish: 2,
    abandon_until_dead: 1,
    defer_and_fetch: 1,
    leave_locks_behind: 1,
    schedule_and_cancel: 1,
    peek_and_hang_up: 1,
}
"""And how often each."""
