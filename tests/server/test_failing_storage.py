"""File calls that fail below SQLite: no client gets a wrong answer, and the process continues or
stops."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.support.io_faults import SHORT_WRITE, Calls, IoFaults

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server import BrokerProcess

QUEUE = "queue.1"
STOPPED_BY_FAILURE = 1


def _send(broker: BrokerProcess, *message_ids: str) -> list[str]:
    """Send one after the other; return the ids that were accepted."""
    accepted = []
    with (
        ServiceBusClient.from_connection_string(
            broker.connection_string, retry_total=0, socket_timeout=10
        ) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        for message_id in message_ids:
            try:
                sender.send_messages(ServiceBusMessage(b"x", message_id=message_id), timeout=10)
            except ServiceBusError:
                break
            accepted.append(message_id)
    return accepted


def _stored(broker: BrokerProcess) -> list[str | None]:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        return [message.message_id for message in receiver.peek_messages(100)]


def test_housekeeping_that_fails_after_a_commit_fails_no_send(
    faulty_broker: BrokerProcess, faults: IoFaults
) -> None:
    """A disk that cannot be asked for its room has still taken the commit."""
    faults.strike(Calls.STAT | Calls.STATVFS, errno.EIO)
    assert ["1", "2", "3"] == _send(faulty_broker, "1", "2", "3")
    assert faults.hits
    faults.stop()
    assert faulty_broker.is_healthy()
    faulty_broker.restart()
    assert ["1", "2", "3"] == _stored(faulty_broker)


@pytest.mark.parametrize(
    ("calls", "error"),
    [(Calls.SYNC, errno.EIO), (Calls.WRITE, errno.EIO), (Calls.WRITE, errno.EROFS)],
    ids=["sync", "write", "read-only"],
)
def test_a_commit_that_fails_stops_the_broker_and_leaves_nothing_behind(
    faulty_broker: BrokerProcess, faults: IoFaults, calls: Calls, error: int
) -> None:
    """Clients get an error, the process ends with its reason, and the next start has only what was
    accepted: not the frames that were written and never synced."""
    assert ["1", "2"] == _send(faulty_broker, "1", "2")
    faults.strike(calls, error)
    assert [] == _send(faulty_broker, "3")
    assert STOPPED_BY_FAILURE == faulty_broker.wait()
    assert "commit.failed" in faulty_broker.log_text()
    faults.stop()
    faulty_broker.start()
    assert ["1", "2"] == _stored(faulty_broker)
    assert ["4"] == _send(faulty_broker, "4")


def test_a_disk_that_was_full_for_a_moment_is_used_again(
    faulty_broker: BrokerProcess, faults: IoFaults
) -> None:
    """Clients connect again, and the process continues without a restart."""
    assert ["1"] == _send(faulty_broker, "1")
    # The first write may make the journal longer, and may fail. The second is the commit.
    faults.strike(Calls.WRITE, errno.ENOSPC, times=2)
    assert [] == _send(faulty_broker, "2")
    assert faults.hits
    faulty_broker.wait_until_healthy()
    assert ["3"] == _send(faulty_broker, "3")
    assert ["1", "3"] == _stored(faulty_broker)


def test_a_short_write_is_completed_or_reported(
    faulty_broker: BrokerProcess, faults: IoFaults
) -> None:
    """Half a page on disk is never taken for a whole one."""
    faults.strike(Calls.WRITE, SHORT_WRITE, skip=1, times=1)
    accepted = _send(faulty_broker, "1", "2")
    assert faults.hits
    faults.stop()
    if faulty_broker.is_running:
        faulty_broker.kill()
    faulty_broker.start()
    assert accepted == _stored(faulty_broker)


def test_a_start_again_that_fails_stops_the_process(
    faulty_broker: BrokerProcess, faults: IoFaults
) -> None:
    """A broker that can neither write nor read its file is not left standing there, mute."""
    assert ["1"] == _send(faulty_broker, "1")
    faults.strike(Calls.WRITE | Calls.READ | Calls.TRUNCATE, errno.ENOSPC)
    assert [] == _send(faulty_broker, "2")
    assert STOPPED_BY_FAILURE == faulty_broker.wait()
    faults.stop()
    faulty_broker.start()
    assert ["1"] == _stored(faulty_broker)


def test_files_deleted_under_a_running_broker_stop_it(
    faulty_broker: BrokerProcess, tmp_path: Path
) -> None:
    """What SQLite writes to a deleted file is lost with the process, so it is not accepted."""
    assert ["1"] == _send(faulty_broker, "1")
    for file in tmp_path.glob("peeklock.db*"):
        file.unlink()
    assert [] == _send(faulty_broker, "2")
    assert STOPPED_BY_FAILURE == faulty_broker.wait()
    assert "deleted or replaced" in faulty_broker.log_text()
