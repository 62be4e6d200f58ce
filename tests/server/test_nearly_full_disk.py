"""A nearly full disk: what is too large for it is refused, and no other client notices."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from tests.support.message_sections import DATA, section
from tests.support.proton.client import ProtonClient
from tests.support.server import BrokerProcess, root_token
from tests.support.small_disks import small_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DISK_BYTES = 48 << 20
LEFT_BYTES = 7 << 20
"""More than what is reserved of this disk, so that messages are accepted."""
LARGE = b"x" * (5 << 20)
"""Fits into what is left, and cannot be stored: a message is written to the log, and from there to the file."""
SMALL = b"x" * 10_000
TRIES = 7
"""More than the broker would start again in a row."""
CONFIG = {
    "queues": {
        "large": {"max_message_size_in_kilobytes": 102_400},
        "neighbour": {},
        "sessions": {"requires_session": True, "max_message_size_in_kilobytes": 102_400},
    },
    "topics": {
        "topic": {
            "max_message_size_in_kilobytes": 102_400,
            "subscriptions": {f"subscription-{number}": {} for number in range(20)},
        }
    },
}


@contextmanager
def nearly_full_broker(
    folder: Path, left_bytes: int = LEFT_BYTES
) -> Iterator[tuple[BrokerProcess, ServiceBusClient]]:
    """Runs a broker on a disk that another program has nearly filled, and a client without retries. At the end, a
    neighbour that was connected before still is, and can send and receive."""
    storage = f"sqlite:///{folder / 'peeklock.db'}"
    with small_disk(folder, DISK_BYTES), BrokerProcess(config=CONFIG, storage=storage) as broker:
        with (
            ServiceBusClient.from_connection_string(
                broker.connection_string, retry_total=0
            ) as neighbour,
            neighbour.get_queue_sender("neighbour") as sender,
            neighbour.get_queue_receiver("neighbour") as receiver,
        ):
            sender.send_messages(ServiceBusMessage(SMALL))
            leave_free(folder, left_bytes)
            receiver.complete_message(receiver.receive_messages(1, max_wait_time=5)[0])
            with ServiceBusClient.from_connection_string(
                broker.connection_string, retry_total=0
            ) as client:
                yield broker, client
            sender.send_messages(ServiceBusMessage(SMALL))
            receiver.complete_message(receiver.receive_messages(1, max_wait_time=5)[0])
        assert "starting_again" not in broker.log_text()


def leave_free(folder: Path, size_bytes: int) -> None:
    """Fills the disk except for so many bytes."""
    disk = os.statvfs(folder)
    with (folder / "another program").open("wb") as file:
        file.write(bytes(disk.f_bavail * disk.f_frsize - size_bytes))


def refuse(send: Callable[[], object]) -> None:
    """Each of several tries is refused as busy, with a sentence that says why."""
    for _ in range(TRIES):
        with pytest.raises(ServiceBusServerBusyError, match=r"disk has no room.*free space"):
            send()


def test_a_message_that_is_too_large_for_the_disk_is_refused(tmp_path: Path) -> None:
    """As often as it is sent. A smaller one of the same sender is accepted, and so is the large one when there is
    space."""
    with nearly_full_broker(tmp_path) as (_, client), client.get_queue_sender("large") as sender:
        refuse(lambda: sender.send_messages(ServiceBusMessage(LARGE)))
        sender.send_messages(ServiceBusMessage(SMALL))
        (tmp_path / "another program").unlink()
        send_until_accepted(client, "large", LARGE)
        assert [len(SMALL), len(LARGE)] == receive_all(client, "large")


def test_a_batch_that_is_too_large_as_a_whole_is_refused(tmp_path: Path) -> None:
    with nearly_full_broker(tmp_path) as (_, client), client.get_queue_sender("large") as sender:
        batch = [ServiceBusMessage(SMALL) for _ in range(600)]
        refuse(lambda: sender.send_messages(batch))
        sender.send_messages(batch[:50])


def test_scheduled_messages_that_are_too_large_for_the_disk_are_refused(tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    with nearly_full_broker(tmp_path) as (_, client), client.get_queue_sender("large") as sender:
        refuse(lambda: sender.schedule_messages(ServiceBusMessage(LARGE), later))
        sender.schedule_messages(ServiceBusMessage(SMALL), later)


def test_a_message_to_a_topic_needs_the_space_of_one_body(tmp_path: Path) -> None:
    """Its copies share it."""
    with nearly_full_broker(tmp_path) as (_, client), client.get_topic_sender("topic") as sender:
        refuse(lambda: sender.send_messages(ServiceBusMessage(LARGE)))
        sender.send_messages(ServiceBusMessage(b"x" * 500_000))


def test_a_session_state_that_is_too_large_for_the_disk_is_refused(tmp_path: Path) -> None:
    """A small one is set even if no message is accepted: a receiver that cannot set it cannot complete messages."""
    with nearly_full_broker(tmp_path) as (_, client):
        with client.get_queue_sender("sessions") as sender:
            sender.send_messages(ServiceBusMessage(SMALL, session_id="s"))
        with client.get_queue_receiver("sessions", session_id="s") as receiver:
            for _ in range(TRIES):
                with pytest.raises(ServiceBusError, match=r"disk has no room.*free space"):
                    receiver.session.set_state(LARGE)
            receiver.session.set_state(b"small")
            assert b"small" == receiver.session.get_state()


def test_a_request_over_http_that_is_too_large_for_the_disk_is_refused(tmp_path: Path) -> None:
    with nearly_full_broker(tmp_path) as (broker, _):
        answers = [_post(broker, LARGE) for _ in range(TRIES)]
        assert {503} == {status for status, _ in answers}
        assert "disk has no room" in answers[0][1]
        assert 201 == _post(broker, SMALL)[0]


def _post(broker: BrokerProcess, body: bytes) -> tuple[int, str]:
    with closing(HTTPConnection(broker.host, broker.http_port, timeout=10)) as connection:
        headers = {"Authorization": root_token(), "Content-Type": "text/plain"}
        connection.request("POST", "/large/messages", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_messages_that_come_together_are_counted_together(tmp_path: Path) -> None:
    """Each of them is small enough. Those that are accepted are stored."""

    async def send_all(broker: BrokerProcess) -> list[BaseException | None]:
        async with (
            AsyncServiceBusClient.from_connection_string(
                broker.connection_string, retry_total=0
            ) as client,
            client.get_queue_sender("large") as first,
        ):
            await first.send_messages(ServiceBusMessage(SMALL))
            senders = [client.get_queue_sender("large") for _ in range(8)]
            message = ServiceBusMessage(b"x" * 1_000_000)
            results = await asyncio.gather(
                *(sender.send_messages(message) for sender in senders), return_exceptions=True
            )
            for sender in senders:
                await sender.close()
            return results

    with nearly_full_broker(tmp_path) as (broker, client):
        results = asyncio.run(send_all(broker))
        accepted = results.count(None)
        assert 0 < accepted < len(results)
        refused = [one for one in results if one is not None]
        assert {ServiceBusServerBusyError} == {type(one) for one in refused}
        assert 1 + accepted == len(receive_all(client, "large"))


def test_a_transaction_that_is_too_large_as_a_whole_is_rolled_back(tmp_path: Path) -> None:
    async def send_in_transaction(broker: BrokerProcess, count: int) -> tuple[bool, bool]:
        """Returns whether all messages and whether the transaction were accepted."""
        client = ProtonClient(broker.host, broker.amqp_port, "transactions")
        try:
            coordinator = await client.coordinator()
            sender = await client.sender("large")
            transaction_id = await coordinator.declare()
            message = section(DATA, b"x" * 1_000_000)
            outcomes = [await sender.send(message, transaction_id) for _ in range(count)]
            discharged = await coordinator.discharge(transaction_id, fail=False)
            return all(one.is_accepted for one in outcomes), discharged.is_accepted
        finally:
            client.close()

    with nearly_full_broker(tmp_path) as (broker, _):
        for _ in range(TRIES):
            assert (True, False) == asyncio.run(send_in_transaction(broker, 5))
        assert (True, True) == asyncio.run(send_in_transaction(broker, 1))


def test_messages_can_be_completed_if_another_program_takes_all_space(tmp_path: Path) -> None:
    """Before each completion, also that of the reserve."""
    with nearly_full_broker(tmp_path) as (_, client):
        with client.get_queue_sender("large") as sender:
            for _ in range(20):
                sender.send_messages(ServiceBusMessage(b"x" * 50_000))
        with client.get_queue_receiver("large") as receiver:
            for _ in range(20):
                with (tmp_path / "the rest").open("ab", buffering=0) as file, suppress(OSError):
                    while file.write(bytes(65_536)):
                        pass
                receiver.complete_message(receiver.receive_messages(1, max_wait_time=5)[0])
        assert [] == receive_all(client, "large")
        (tmp_path / "the rest").unlink()
        send_until_accepted(client, "neighbour", SMALL)
        assert [len(SMALL)] == receive_all(client, "neighbour")


def receive_all(client: ServiceBusClient, queue: str) -> list[int]:
    """Receives and completes all messages. Returns their sizes."""
    sizes = []
    with client.get_queue_receiver(queue) as receiver:
        while received := receiver.receive_messages(20, max_wait_time=1):
            for one in received:
                sizes.append(sum(map(len, one.body)))
                receiver.complete_message(one)
    return sizes


def send_until_accepted(client: ServiceBusClient, queue: str, body: bytes) -> None:
    """The broker looks for space every second, so the first tries may still be refused as busy."""
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        with suppress(ServiceBusServerBusyError), client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(body))
            return
    pytest.fail("no send was accepted any more")
