"""Kombu and Celery with their Azure Service Bus transport, as their documentation says.

Kombu makes its queues with the administration client and wraps every message into JSON; what it has
no way to do is listed with the reason.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from queue import Empty
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError
from celery import Celery
from celery.contrib.testing.worker import start_worker
from kombu import Connection, Consumer, Exchange, Queue

from tests.clients.python.trial import expect, run_all, say, say_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kombu.simple import SimpleQueue

    from tests.clients.python.trial import Broker

URL = "azureservicebus://RootManageSharedAccessKey:SAS_KEY_VALUE@sbemulatorns"
OPTIONS = {"wait_time_seconds": 1, "retry_total": 0}
WAIT_S = 10

NO_API = "neither Kombu nor Celery has a way to say it"
UNABLE = {
    "connect-emulator-string": "Kombu's URL has no place for the flag: it is TLS only",
    "connect-tls-emulator-flag": "Kombu's URL has no place for the flag",
    "connect-websocket": "Kombu does not offer the SDK's WebSocket",
    "send-batch": NO_API,
    "receive-prefetch": "Kombu asks for one message at a time",
    "abandon-with-properties": "Kombu lets the lock expire instead",
    "error-not-found": "Kombu makes the queues it needs",
    "error-not-found-operations": "Kombu makes the queues it needs",
    "strict-claims": "Kombu makes the queues it needs, and so must be allowed everything",
    "properties-round-trip": "Kombu writes everything into a JSON text",
    **dict.fromkeys(
        (
            "defer-and-fetch",
            "dead-letter-and-read-back",
            "peek",
            "renew-lock",
            "schedule",
            "cancel-scheduled",
            "session-named",
            "session-next-available",
            "session-two-holders",
            "session-state",
            "session-renew",
            "session-lock-lost",
            "session-none-available",
            "topic-true-filter",
            "topic-sql-filter",
            "topic-correlation-filter",
            "rule-management",
            "transaction-commit",
            "transaction-rollback",
            "admin-topic-crud",
            "admin-subscription-crud",
            "admin-rule-crud",
            "duplicate-detection",
            "time-to-live",
            "forwarding",
            "error-session-held",
            "full-batch",
            "purge-empty",
            "concurrent-management",
            "auto-renew-ten",
            "backup-settlement",
            "session-id-case",
            "session-deferred-after-renewals",
            "transaction-rollback-then-settle",
            "transaction-other-connection",
            "rule-value-precision",
            "forwarding-round-trip",
        ),
        NO_API,
    ),
}


@contextlib.contextmanager
def _simple(
    name: str, url: str = URL, *, no_ack: bool = False, **options: Any
) -> Iterator[SimpleQueue]:
    with (
        Connection(url, transport_options={**OPTIONS, **options}) as connection,
        connection.SimpleQueue(name, no_ack=no_ack) as queue,
    ):
        yield queue


def connect_tls(broker: Broker) -> None:
    with _simple(broker.name("kombu")) as queue:
        queue.put({"greeting": "hällo ✓"})
        message = queue.get(timeout=WAIT_S)
        expect({"greeting": "hällo ✓"}, message.payload, "what came")
        message.ack()


def send_one(broker: Broker) -> None:
    with _simple(broker.name("kombu")) as queue:
        queue.put("one")
        queue.get(timeout=WAIT_S).ack()


def send_many(broker: Broker) -> None:
    with _simple(broker.name("kombu")) as queue:
        for number in range(100):
            queue.put(number)
        found = []
        for _ in range(100):
            message = queue.get(timeout=WAIT_S)
            found.append(message.payload)
            message.ack()
        expect(list(range(100)), found, "what came, in order")


def send_1mb(broker: Broker) -> None:
    name, text = broker.name("kombu"), "x" * (1 << 20)
    limit = "<MaxMessageSizeInKilobytes>4096</MaxMessageSizeInKilobytes>"
    broker.put(name, "QueueDescription", limit)
    with _simple(name) as queue:
        queue.put(text)
        message = queue.get(timeout=WAIT_S)
        assert text == message.payload
        message.ack()


def receive_no_prefetch(broker: Broker) -> None:
    with _simple(broker.name("kombu")) as queue:
        queue.put("one")
        queue.get(timeout=WAIT_S).ack()
        try:
            queue.get(timeout=1)
            raise AssertionError("there was another message")
        except Empty:
            pass


def processor(broker: Broker) -> None:
    """A Celery worker, its tasks sent by name and their results awaited."""
    app = Celery(broker=URL, backend="cache+memory://")
    app.conf.update(
        broker_transport_options=OPTIONS,
        task_default_queue=broker.name("celery"),
        worker_enable_remote_control=False,
    )

    @app.task
    def add(first: int, second: int) -> int:
        return first + second

    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
        results = [add.delay(number, 1) for number in range(10)]
        expect(list(range(1, 11)), [one.get(timeout=60) for one in results], "results")


def complete(broker: Broker) -> None:
    name = broker.name("kombu")
    with _simple(name, peek_lock_seconds=5) as queue:
        queue.put("one")
        queue.get(timeout=WAIT_S).ack()
        broker.advance(seconds=6)
        expect(0, queue.qsize(), "messages left")


def receive_and_delete(broker: Broker) -> None:
    name = broker.name("kombu")
    with _simple(name, no_ack=True) as queue:
        queue.put("one")
        expect("one", queue.get(timeout=WAIT_S).payload, "what came")
        expect(0, queue.qsize(), "messages left")


def auto_renew_lock(broker: Broker) -> None:
    """The renewer goes by its own clock, so the broker's must begin with the same time."""
    broker.restart()
    with _simple(broker.name("kombu"), use_lock_renewal=True, peek_lock_seconds=5) as queue:
        queue.put("mine")
        message = queue.get(timeout=WAIT_S)
        azure = message.delivery_info["azure_message"]
        first, deadline_s = azure.locked_until_utc, time.monotonic() + WAIT_S
        while (azure.locked_until_utc - first).total_seconds() < 3:
            assert time.monotonic() < deadline_s, "the lock was not renewed"
            with contextlib.suppress(Empty):
                queue.get(timeout=0.5)
        broker.advance_to(first)
        message.ack()
        expect(0, queue.qsize(), "messages left")


def lock_lost(broker: Broker) -> str:
    with _simple(broker.name("kombu"), peek_lock_seconds=5) as queue:
        queue.put("slow")
        message = queue.get(timeout=WAIT_S)
        broker.advance(seconds=6)
        message.ack()
        again = queue.get(timeout=WAIT_S)
        expect("slow", again.payload, "what comes again")
        again.ack()
        expect(0, queue.qsize(), "messages left")
    return "Kombu logs the SDK's error and goes on"


def admin_queue_crud(broker: Broker) -> None:
    name = broker.name("kombu")
    with Connection(URL, transport_options={**OPTIONS, "peek_lock_seconds": 45}) as connection:
        channel: Any = connection.default_channel
        queue = Queue(name, Exchange(name), routing_key=name)(channel)
        queue.declare()
        queue.declare()
        admin = channel.queue_mgmt_service
        expect(45, admin.get_queue(name).lock_duration.total_seconds(), "lock duration")
        producer = connection.Producer()
        for number in range(12):
            producer.publish(number, exchange=name, routing_key=name)
        expect(12, queue.purge(), "what was purged")
        queue.delete()
        try:
            admin.get_queue(name)
            raise AssertionError("found after it was deleted")
        except ResourceNotFoundError:
            pass


def admin_runtime_properties(broker: Broker) -> None:
    with _simple(broker.name("kombu")) as queue:
        for number in range(3):
            queue.put(number)
        expect(3, queue.qsize(), "size")


def error_unauthorized(broker: Broker) -> None:
    wrong = URL.replace("SAS_KEY_VALUE", "wrong")
    try:
        with _simple(broker.name("kombu"), wrong):
            raise AssertionError("let in with a wrong key")
    except ClientAuthenticationError:
        pass


def _fill(queue: SimpleQueue, size: int, tries: int) -> Exception | None:
    for _ in range(tries):
        try:
            queue.put("x" * size)
        except Exception as error:  # noqa: BLE001 -- which one it is, is what is asked
            return error
    return None


def error_quota(broker: Broker) -> None:
    name = broker.name("kombu")
    broker.put(name, "QueueDescription", "<MaxSizeInMegabytes>1</MaxSizeInMegabytes>")
    with _simple(name) as queue:
        error = _fill(queue, 200_000, 10)
        expect("ServiceBusQuotaExceededError", type(error).__name__, "error")


def error_too_large(broker: Broker) -> None:
    name = broker.name("kombu")
    limit = "<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>"
    broker.put(name, "QueueDescription", limit)
    with _simple(name) as queue:
        error = _fill(queue, 1 << 21, 1)
        expect("MessageSizeExceededError", type(error).__name__, "error")
        queue.put("small")
        queue.get(timeout=WAIT_S).ack()


def reconnect_after_restart(broker: Broker) -> None:
    found: list[Any] = []
    name = broker.name("kombu")

    def note(body: Any, message: Any) -> None:
        found.append(body)
        message.ack()

    with Connection(URL, transport_options={"wait_time_seconds": 1}) as connection:
        queue = Queue(name)
        producer = connection.Producer()
        producer.publish("kept", routing_key=name, declare=[queue])
        with Consumer(connection.default_channel, [queue], callbacks=[note]):
            broker.restart()
            producer.publish("after", routing_key=name, declare=[queue])
            deadline_s = time.monotonic() + 30
            while len(found) < 2 and time.monotonic() < deadline_s:
                with contextlib.suppress(socket.timeout):
                    connection.drain_events(timeout=2)
    expect(["kept", "after"], found, "what came")


def clean_close(broker: Broker) -> None:
    before = broker.metric("peeklock_connections")
    with _simple(broker.name("kombu")) as queue:
        queue.put("one")
        queue.get(timeout=WAIT_S).ack()
        assert broker.metric("peeklock_connections") > before
    deadline_s = time.monotonic() + 2  # the relays take a moment
    while broker.metric("peeklock_connections") != before:
        assert time.monotonic() < deadline_s, "connections are left"


def main(broker: Broker) -> None:
    say_versions("kombu", "celery", "azure-servicebus")
    if sys.argv[1:2] == ["read-types"]:
        detail = UNABLE["properties-round-trip"]
        say({"scenario": "read-types", "outcome": "skipped", "detail": detail})
        return
    known = {
        name.replace("_", "-"): function
        for name, function in globals().items()
        if callable(function)
    }
    run_all(known, UNABLE, broker)
