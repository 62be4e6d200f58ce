"""The disk of the database is really full: a small file system, or file calls of the server that fail.

Sends are refused as busy, nothing that was accepted is lost, and the broker goes on when there is room again.
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from tests.failover.conftest import Broker, wait_until
from tests.support.io_faults import Calls, IoFaults
from tests.support.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


DISK_BYTES = 48 << 20
"""An empty server needs half of it."""
SPARE_BYTES = 16 << 20
"""What is freed to make room."""
BODY_BYTES = 200_000
FEW = 5
SETTINGS = {"max_wal_size": "32MB", "min_wal_size": "32MB", "shared_buffers": "2MB"}


def _mount(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _can_mount() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as name:
        if not _mount(Path(name), "size=1m"):
            return False
        _unmount(Path(name))
    return True


class Disk(NamedTuple):
    """The disk of a server."""

    server: PostgresServer
    fill: Callable[[], None]
    """Makes it full, unless sends do."""
    make_room: Callable[[], None]


@contextmanager
def small_file_system() -> Iterator[Disk]:
    """A server whose data is on a small file system. Its log is elsewhere."""
    with ExitStack() as stack:
        server = PostgresServer(settings=SETTINGS)
        stack.callback(server.close)
        server.data.mkdir()
        user = server._user
        assert user is not None
        options = f"size={DISK_BYTES},uid={user.pw_uid},gid={user.pw_gid},mode=700"
        assert _mount(server.data, options)
        stack.callback(_unmount, server.data)
        stack.callback(server.stop)
        server.create("--waldir", str(server.folder / "log-files"))
        server.start()
        server.create_database()
        spare = server.data / "spare"
        with spare.open("wb") as file:
            file.write(bytes(SPARE_BYTES))
        yield Disk(server, lambda: None, spare.unlink)


@contextmanager
def failing_calls(folder: str = "base") -> Iterator[Disk]:
    """A server whose files cannot grow: the calls fail as on a full disk."""
    with ExitStack() as stack:
        server = PostgresServer(settings=SETTINGS)
        stack.callback(server.close)
        faults = stack.enter_context(IoFaults(server.data / folder))
        server.environment = faults.environment
        server.create()
        server.start()
        server.create_database()
        calls = Calls.EXTEND if folder == "base" else Calls.WRITE
        yield Disk(server, lambda: faults.strike(calls, errno.ENOSPC), faults.stop)


full_disk = small_file_system if _can_mount() else failing_calls
"""The second where no file system can be mounted, as in a container without that right."""


class Sending:
    """A client that sends large messages, and knows which were accepted and how others were refused."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.accepted: list[str] = []
        self.refusals: list[Exception] = []
        self._number = 0

    def send_until(self, is_enough: Callable[[], bool]) -> None:
        text = self._broker.connection_string
        while not is_enough():
            try:
                with (
                    ServiceBusClient.from_connection_string(text, retry_total=0) as client,
                    client.get_queue_sender("orders") as sender,
                ):
                    while not is_enough():
                        self._number += 1
                        body = f"{self._number} ".ljust(BODY_BYTES, ".")
                        sender.send_messages(ServiceBusMessage(body))
                        self.accepted.append(str(self._number))
            except ServiceBusError as error:
                self.refusals.append(error)

    @property
    def is_refused_as_busy(self) -> bool:
        return any(isinstance(error, ServiceBusServerBusyError) for error in self.refusals)


def stored(broker: Broker) -> list[str]:
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        number = 1
        while page := receiver.peek_messages(20, sequence_number=number):
            found += [str(message).split(" ", 1)[0] for message in page]
            number = (page[-1].sequence_number or 0) + 1
    return found


def test_sends_are_refused_as_busy_while_the_disk_of_the_database_is_full() -> None:
    """When there is room, sends are accepted again, and everything is there."""
    with full_disk() as (server, fill, make_room), (broker := Broker(server.url())).launched():
        broker.wait_until_healthy()
        sending = Sending(broker)
        sending.send_until(lambda: len(sending.accepted) > FEW)
        fill()
        sending.send_until(lambda: sending.is_refused_as_busy)
        assert "storage.full" in broker.log_text()
        assert "No space left on device" in server.log_text()
        assert set() == set(sending.accepted) - set(stored(broker))
        make_room()
        count = len(sending.accepted)
        sending.send_until(lambda: len(sending.accepted) > count + FEW)
        assert set() == set(sending.accepted) - set(stored(broker))
        assert broker.is_running


def test_a_database_that_a_full_disk_has_ended_is_waited_for() -> None:
    """Without room for its log, PostgreSQL ends itself. The broker goes on when the database is back."""
    with (
        failing_calls("pg_wal") as (server, fill, make_room),
        (broker := Broker(server.url())).launched(),
    ):
        broker.wait_until_healthy()
        sending = Sending(broker)
        sending.send_until(lambda: len(sending.accepted) > FEW)
        fill()
        sending.send_until(lambda: not server.is_running)
        make_room()
        server.stop()
        server.start()
        wait_until(broker.is_healthy)
        count = len(sending.accepted)
        sending.send_until(lambda: len(sending.accepted) > count + FEW)
        assert set() == set(sending.accepted) - set(stored(broker))
