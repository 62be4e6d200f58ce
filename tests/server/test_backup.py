"""`peeklock backup`: the copy has everything that was accepted before the command began, and a broker starts on it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from broker.app.exit_codes import ExitCode
from tests.conftest import UNAVAILABLE
from tests.control.client import ControlClient
from tests.support.io_faults import Calls, IoFaults
from tests.support.server import ROOT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

CONFIG: dict[str, Any] = {"queues": {"orders": {}, "load": {}}}
ROUNDS = 2
SENDERS = 2
BODY = "x" * 1_000


def run_backup(
    broker: BrokerProcess,
    copy: Path,
    *arguments: str,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own."""
    url = {"PEEKLOCK_URL": f"http://127.0.0.1:{broker.http_port}"}
    return subprocess.run(
        [*prefix, sys.executable, "-m", "peeklock", "backup", str(copy), *arguments],
        cwd=ROOT,
        env={**os.environ, **url, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def back_up(broker: BrokerProcess, copy: Path, *arguments: str) -> None:
    done = run_backup(broker, copy, *arguments)
    assert (ExitCode.OK, "") == (done.returncode, done.stderr)


def message_ids(port: int, entity: str) -> set[str]:
    """The ids of all messages of a queue."""
    api = ControlClient(port)
    found: set[str] = set()
    query = {"entity": entity, "body": "none", "limit": 1_000}
    while True:
        page = api.get("/messages", **query)
        found |= {one["message_id"] for one in page["messages"]}
        if page["next"] is None:
            return found
        query["after"] = page["next"]


def ids_in(copy: Path, *entities: str) -> list[set[str]]:
    """The ids of all messages of some queues, as a broker on the copy has them."""
    with BrokerProcess(config=CONFIG, storage=f"sqlite:///{copy}", testing_api=False) as broker:
        return [message_ids(broker.http_port, one) for one in entities]


class Load:
    """A client that sends without a pause, in a `with` block. The broker is never idle meanwhile."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._threads = [threading.Thread(target=self._send, args=(one,)) for one in range(SENDERS)]
        self._ends = threading.Event()
        self._accepted = [0] * SENDERS
        self.has_begun = threading.Semaphore(0)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self.has_begun.acquire(timeout=30)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def accepted(self) -> set[str]:
        """The ids of the messages that are certainly accepted now."""
        return {
            f"{sender}-{number}"
            for sender, count in enumerate(self._accepted)
            for number in range(count)
        }

    def _send(self, number: int) -> None:
        with (
            ServiceBusClient.from_connection_string(self._broker.connection_string) as client,
            client.get_queue_sender("load") as sender,
        ):
            while not self._ends.is_set():
                message_id = f"{number}-{self._accepted[number]}"
                sender.send_messages(ServiceBusMessage(BODY, message_id=message_id))
                self._accepted[number] += 1
                if self._accepted[number] == 100:
                    self.has_begun.release()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(config=CONFIG, storage=storage, testing_api=False) as running:
        yield running


def test_a_copy_has_what_was_accepted_before_it(broker: BrokerProcess, tmp_path: Path) -> None:
    """And nothing that was accepted later. The broker continues."""
    copy = tmp_path / "copy.db"
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage(BODY, message_id="before"))
        back_up(broker, copy)
        sender.send_messages(ServiceBusMessage(BODY, message_id="after"))
    assert {"before", "after"} == message_ids(broker.http_port, "orders")
    assert [{"before"}] == ids_in(copy, "orders")


def test_a_copy_of_a_busy_broker_has_what_was_accepted_before_it(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """Sends and deletions, though these are in the journal for a second or two while others follow. Of what is accepted
    during the copy, it has the first messages of each sender, without a gap."""
    api = ControlClient(broker.http_port)
    rounds = []
    with Load(broker) as load:
        for number in range(ROUNDS):
            sent = [{"body": "hello", "message_id": f"{name}-{number}"} for name in "ab"]
            numbers = api.post("/messages", entity="orders", messages=sent)["sequence_numbers"]
            api.post("/messages/delete", entity="orders", sequence_numbers=numbers[:1])
            accepted = load.accepted()
            back_up(broker, tmp_path / f"copy-{number}.db")
            rounds.append((accepted, load.accepted()))
    assert rounds[-1][1] <= message_ids(broker.http_port, "load")
    for number, (before, after) in enumerate(rounds):
        orders, kept = ids_in(tmp_path / f"copy-{number}.db", "orders", "load")
        assert {f"b-{one}" for one in range(number + 1)} == orders
        assert set() == before - kept
        assert len(kept - after) <= SENDERS, "each waits for the answer to one message"
        for sender in range(SENDERS):
            assert {f"{sender}-{one}" for one in range(count_of(kept, sender))} <= kept


def count_of(ids: set[str], sender: int) -> int:
    return sum(one.startswith(f"{sender}-") for one in ids)


def test_an_existing_copy_is_replaced_only_with_force(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(b"old")
    refused = run_backup(broker, copy)
    assert ExitCode.MISUSED == refused.returncode
    assert "or replace it with --force" in refused.stderr
    assert b"old" == copy.read_bytes()
    ControlClient(broker.http_port).post(
        "/messages", entity="orders", messages=[{"body": "hello", "message_id": "a"}]
    )
    back_up(broker, copy, "--force")
    assert [{"a"}] == ids_in(copy, "orders")


def test_without_space_there_is_no_copy(broker: BrokerProcess, tmp_path: Path) -> None:
    """Nothing is left of it, and an older copy stays as it was."""
    folder = tmp_path / "copies"
    folder.mkdir()
    (folder / "copy.db").write_bytes(b"old")
    with IoFaults(folder) as faults:
        faults.strike(Calls.WRITE, errno.ENOSPC)
        done = run_backup(broker, folder / "copy.db", "--force", environment=faults.environment)
        assert faults.hits
    assert ExitCode.FAILED == done.returncode
    assert "there is no space for" in done.stderr
    assert {"copy.db": b"old"} == {one.name: one.read_bytes() for one in folder.iterdir()}


def test_the_file_of_a_container_is_copied_in_the_container(tmp_path: Path) -> None:
    """Outside, the path of the broker's file leads to nothing, or to another file."""
    folder = tmp_path / "data"
    folder.mkdir()
    mount = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs tmpfs "$0" && exec "$@"',
        str(folder),
    ]
    try:
        subprocess.run([*mount, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"{UNAVAILABLE}the right to mount a file system")
    storage = f"sqlite:///{folder / 'peeklock.db'}"
    with BrokerProcess(config=CONFIG, storage=storage, prefix=mount, testing_api=False) as broker:
        ControlClient(broker.http_port).post(
            "/messages", entity="orders", messages=[{"body": "hello", "message_id": "a"}]
        )
        copy = tmp_path / "copy.db"
        for cause in ("No such file or directory", "is not the file of the broker"):
            refused = run_backup(broker, copy)
            assert ExitCode.FAILED == refused.returncode
            assert cause in refused.stderr
            assert "docker exec CONTAINER peeklock backup COPY" in refused.stderr
            assert not copy.exists()
            (folder / "peeklock.db").touch()
        inside = ["nsenter", "--target", str(broker.process_id), "--mount"]
        done = run_backup(broker, copy, prefix=inside)
        assert (ExitCode.OK, "") == (done.returncode, done.stderr)
    assert [{"a"}] == ids_in(copy, "orders")
