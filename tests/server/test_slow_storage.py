"""A commit that takes long: what leaves after it was fixed before it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from tests.support.io_faults import HOLD, Calls, IoFaults
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from azure.servicebus import ServiceBusReceiver

QUEUE = "queue.1"
LOCK_MS = 60_000
TIMEOUT_S = 30.0
LOCKED = f'peeklock_messages{{entity="{QUEUE}",namespace="sbemulatorns",state="locked"}} 1.0'


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[IoFaults]:
    with IoFaults(tmp_path) as faults:
        yield faults


@pytest.fixture
def broker(tmp_path: Path, faults: IoFaults) -> Iterator[BrokerProcess]:
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(storage=storage, environment=faults.environment) as broker:
        yield broker


def _wait_until_locked(broker: BrokerProcess) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while LOCKED not in broker.request("GET", "/metrics")[1].decode():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_delivery_shows_its_own_lock_and_not_a_later_one(
    broker: BrokerProcess, faults: IoFaults
) -> None:
    """While a commit holds a delivery back, its lock expires and another receiver gets the message.
    Each sees the delivery count and the end of the lock that it was given."""

    def receive(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
        (message,) = receiver.receive_messages(1, max_wait_time=TIMEOUT_S)
        return message

    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE) as first,
        client.get_queue_receiver(QUEUE) as second,
        ThreadPoolExecutor(3) as threads,
    ):
        sender.send_messages(ServiceBusMessage("a"))
        faults.strike(Calls.SYNC, HOLD)
        try:
            sending = threading.Thread(target=sender.send_messages, args=(ServiceBusMessage("b"),))
            sending.start()
            while not faults.hits:
                time.sleep(0.001)
            to_first = threads.submit(receive, first)
            _wait_until_locked(broker)
            broker.advance_clock(LOCK_MS + 1)
            to_second = threads.submit(receive, second)
            time.sleep(0.2)  # nothing tells that its credit has arrived
            _wait_until_locked(broker)
        finally:
            faults.stop()
        sending.join()
        earlier, later = to_first.result(), to_second.result()
    assert ("a", 0) == (str(earlier), earlier.delivery_count)
    if str(later) == "a":  # or else "b", which nobody had before
        assert 1 == later.delivery_count
    assert earlier.locked_until_utc is not None
    assert later.locked_until_utc is not None
    between_s = (later.locked_until_utc - earlier.locked_until_utc).total_seconds()
    assert LOCK_MS / 1000 <= between_s
