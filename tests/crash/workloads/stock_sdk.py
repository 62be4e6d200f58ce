"""The stock SDK on one queue: threads that send singly and in batches, threads that complete.

The SDK's own retries are off, so an error means one thing: no answer came. Several receivers share
the queue, as they do in real run.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from tests.crash.ledgers.groups import GroupLedger
from tests.crash.ledgers.messages import Link, MessageKey, Order
from tests.crash.workload import LOCK, NO_RUN, Surroundings, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusSender

    from tests.crash.ledgers.report import Report

QUEUE = "crash-sdk"
SENDERS = ("sdk-0", "sdk-1")
RECEIVERS = 2
MAX_BATCH = 10
MAX_BACKLOG = 1_000
RECEIVE_COUNT = 20
RECEIVE_WAIT_S = 1.0
OPERATION_TIMEOUT_S = 10.0
RETRY_INTERVAL_S = 0.05
PAUSE_S = 0.02
QUIET_S = 3.0


def key_of(message: ServiceBusReceivedMessage) -> MessageKey:
    sender, _, index = str(message.message_id).rpartition(":")
    return sender, int(index)


class SdkQueue(Workload):
    name = "the stock SDK on a queue"
    queues: ClassVar[Mapping[str, Any]] = {QUEUE: LOCK}

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        logging.getLogger("azure").setLevel(logging.CRITICAL)
        # The SDK itself gives back what arrives between two calls, and another receiver gets it.
        self._ledger = GroupLedger(Order.STORED)
        self._lock = threading.Lock()
        """Held for every word with the ledger."""
        self._links = 0
        self._next_index = dict.fromkeys(SENDERS, 0)

    def work(self) -> None:
        threads = [threading.Thread(target=self._repeat, args=(self._send, n)) for n in SENDERS]
        for number in range(RECEIVERS):
            name = f"receiver-{number}"
            threads.append(threading.Thread(target=self._repeat, args=(self._receive, name)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _repeat(self, task: Callable[[ServiceBusClient, str, int], None], name: str) -> None:
        """Run a task over a fresh client, again and again, run after run."""
        while (broker_run := self.surroundings.wait_for_run()) != NO_RUN:
            try:
                with self._client() as client:
                    task(client, name, broker_run)
            except Exception as failure:  # noqa: BLE001 - whatever the SDK raises: no answer came
                with self._lock:
                    self.note_failure(broker_run, failure, self._ledger)
                time.sleep(RETRY_INTERVAL_S)

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self.surroundings.connection_string, retry_total=0
        )

    # ---- sending ------------------------------------------------------------------------------

    def _send(self, client: ServiceBusClient, name: str, broker_run: int) -> None:
        chance = random.Random(f"{self.surroundings.seed}-{name}-{broker_run}")
        with client.get_queue_sender(QUEUE) as sender:
            while not self.surroundings.stop.is_set():
                if self._ledger.backlog > MAX_BACKLOG:
                    time.sleep(PAUSE_S)
                    continue
                self._send_some(sender, name, chance.choice((1, 1, MAX_BATCH)))

    def _send_some(self, sender: ServiceBusSender, name: str, count: int) -> None:
        first = self._next_index[name]
        self._next_index[name] = first + count
        keys = [(name, index) for index in range(first, first + count)]
        with self._lock:
            self._ledger.sending_together(keys)
        messages = [ServiceBusMessage(f"{n}:{i}", message_id=f"{n}:{i}") for n, i in keys]
        sender.send_messages(messages[0] if count == 1 else messages, timeout=OPERATION_TIMEOUT_S)
        with self._lock:
            self._ledger.accepted_together(keys)

    # ---- receiving ----------------------------------------------------------------------------

    def _receive(self, client: ServiceBusClient, _: str, broker_run: int) -> None:
        with client.get_queue_receiver(QUEUE) as receiver:
            link = self._new_link(broker_run)
            if not self.surroundings.is_still(broker_run):
                return
            while not self.surroundings.stop.is_set():
                self._receive_some(receiver, link, RECEIVE_WAIT_S)

    def _new_link(self, broker_run: int) -> Link:
        with self._lock:
            self._links += 1
            return Link(self._links, broker_run)

    def _receive_some(self, receiver: ServiceBusReceiver, link: Link, wait_s: float) -> int:
        messages = receiver.receive_messages(RECEIVE_COUNT, max_wait_time=wait_s)
        with self._lock:
            known = [
                message
                for message in messages
                if self._ledger.delivered(key_of(message), message.sequence_number or 0, link)
            ]
        for message in known:
            key = key_of(message)
            with self._lock:
                self._ledger.completing(key, link)
            receiver.complete_message(message)
            with self._lock:
                self._ledger.completed(key)
        return len(messages)

    # ---- the end ------------------------------------------------------------------------------

    def finish(self) -> Report:
        """Empty the queue, then see that nothing was put aside."""
        broker_run = self.surroundings.broker_run.value
        with self._client() as client:
            with client.get_queue_receiver(QUEUE) as receiver:
                link = self._new_link(broker_run)
                while self._receive_some(receiver, link, QUIET_S):
                    pass
            dead_letters = client.get_queue_receiver(
                QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER
            )
            with dead_letters:
                for message in dead_letters.peek_messages(RECEIVE_COUNT):
                    self._ledger.dead_lettered(key_of(message))
        return self._ledger.audit()
