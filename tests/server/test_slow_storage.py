"""A commit that takes long: what leaves after it was fixed before it."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from broker.app.runtime.inline_commit_policy import SMALL_BYTES
from storage.sqlite.free_space import HANGS_S
from tests.support.io_faults import HOLD, Calls, IoFaults

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceiver, ServiceBusSender

    from tests.support.server import BrokerProcess

QUEUE = "queue.1"
LOCK_MS = 60_000
TIMEOUT_S = 30.0
LOCKED = f'peeklock_messages{{entity="{QUEUE}",namespace="sbemulatorns",state="locked"}}'


def _wait_until_locked(broker: BrokerProcess, messages: int = 1) -> None:
    """Waits until so many messages are locked. Memory changes before the commit."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while f"{LOCKED} {messages}.0" not in broker.request("GET", "/metrics")[1].decode():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def _wait_for_credit(broker: BrokerProcess, receivers: int) -> None:
    """Waits until so many receivers have credit. Deliveries that wait for a commit have not used theirs."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        answer = json.loads(broker.request("GET", "/$peeklock/v1/connections")[1])
        links = [link for connection in answer["connections"] for link in connection["links"]]
        roles = [one["role"] for one in links if one["address"] == QUEUE and one["credit"]]
        if receivers == roles.count("receiver"):
            return
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_durable_message_is_delivered_while_a_commit_takes_long(
    faulty_broker: BrokerProcess, faults: IoFaults
) -> None:
    """A receiver does not wait for the sends of others. Its completion does."""
    with (
        ServiceBusClient.from_connection_string(faulty_broker.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE) as receiver,
        ThreadPoolExecutor(2) as threads,
    ):
        sender.send_messages(ServiceBusMessage("a"))
        faults.strike(Calls.SYNC, HOLD)
        try:
            large = ServiceBusMessage("b" * (SMALL_BYTES + 1))
            sending = threads.submit(sender.send_messages, large)
            while not faults.hits:
                time.sleep(0.001)
            (message,) = receiver.receive_messages(1, max_wait_time=TIMEOUT_S)
            completing = threads.submit(receiver.complete_message, message)
            _wait_until_locked(faulty_broker, messages=0)
            assert ("a", False, False) == (str(message), sending.done(), completing.done())
        finally:
            faults.stop()
        sending.result()
        completing.result()


@pytest.mark.parametrize(
    "call",
    [Calls.EXTEND, Calls.SYNC, Calls.WRITE, Calls.STAT, Calls.STATVFS],
    ids=lambda call: call.name,
)
def test_the_broker_answers_while_a_call_of_a_larger_commit_takes_long(
    faulty_broker: BrokerProcess, faults: IoFaults, call: Calls
) -> None:
    """Whatever the commit has to do: write, make the journal longer, sync, or examine the files and the disk."""
    with (
        ServiceBusClient.from_connection_string(faulty_broker.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
        ThreadPoolExecutor(1) as threads,
    ):
        large = [ServiceBusMessage("b" * (SMALL_BYTES // 2))] * 3
        for _ in range(3):
            sender.send_messages(large)
        faults.strike(call, HOLD)
        try:
            sending = threads.submit(_send_until_held, sender, large, faults)
            while not faults.hits:
                time.sleep(0.001)
            assert 200 == faulty_broker.request("GET", "/health")[0]
        finally:
            faults.stop()
        sending.result()


@pytest.mark.parametrize("call", [Calls.STAT, Calls.STATVFS], ids=lambda call: call.name)
def test_the_broker_serves_while_the_disk_does_not_say_how_much_is_free(
    faulty_broker: BrokerProcess, faults: IoFaults, call: Calls
) -> None:
    """It asks twice a second. Nothing is committed on the event loop meanwhile: that could take as long."""
    with (
        ServiceBusClient.from_connection_string(faulty_broker.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE) as receiver,
        ThreadPoolExecutor(1) as threads,
    ):
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        faults.strike(call, HOLD)
        try:
            while not faults.hits:
                time.sleep(0.001)
            time.sleep(2 * HANGS_S)
            assert 200 == faulty_broker.request("GET", "/health")[0]
            (first,) = receiver.receive_messages(1, max_wait_time=TIMEOUT_S)
            completing = threads.submit(receiver.complete_message, first)
            _wait_until_locked(faulty_broker, messages=0)
            assert 200 == faulty_broker.request("GET", "/health")[0]
        finally:
            faults.stop()
        completing.result()
        (second,) = receiver.receive_messages(1, max_wait_time=TIMEOUT_S)
        assert ("a", "b") == (str(first), str(second))


def _send_until_held(
    sender: ServiceBusSender, messages: list[ServiceBusMessage], faults: IoFaults
) -> None:
    while not faults.hits:
        sender.send_messages(messages)


def test_a_delivery_shows_its_own_lock_and_not_a_later_one(
    faulty_broker: BrokerProcess, faults: IoFaults
) -> None:
    """While a commit holds a delivery back, its lock expires and another receiver gets the message.
    Each sees the delivery count and the end of the lock that it was given."""

    def receive(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
        (message,) = receiver.receive_messages(1, max_wait_time=TIMEOUT_S)
        return message

    with (
        ServiceBusClient.from_connection_string(faulty_broker.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE) as first,
        client.get_queue_receiver(QUEUE) as second,
        ThreadPoolExecutor(3) as threads,
    ):
        faults.strike(Calls.SYNC, HOLD)
        try:
            # Not inline, so that the broker goes on. The delivery waits until its message is durable.
            batch = [ServiceBusMessage("a"), ServiceBusMessage("b" * (SMALL_BYTES + 1))]
            sending = threading.Thread(target=sender.send_messages, args=(batch,))
            sending.start()
            while not faults.hits:
                time.sleep(0.001)
            to_first = threads.submit(receive, first)
            _wait_until_locked(faulty_broker)
            faulty_broker.advance_clock(LOCK_MS + 1)
            to_second = threads.submit(receive, second)
            _wait_for_credit(faulty_broker, receivers=2)
            _wait_until_locked(faulty_broker)
        finally:
            faults.stop()
        sending.join()
        earlier, later = to_first.result(), to_second.result()
    assert ("a", 0) == (str(earlier), earlier.delivery_count)
    assert ("a", 1) == (str(later), later.delivery_count)
    assert earlier.locked_until_utc is not None
    assert later.locked_until_utc is not None
    between_s = (later.locked_until_utc - earlier.locked_until_utc).total_seconds()
    assert LOCK_MS / 1000 <= between_s
