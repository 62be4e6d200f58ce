"""docs/operations.md: the backup that it describes can be restored."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.conftest import UNAVAILABLE
from tests.packaging.dockerfile import ROOT
from tests.packaging.markdown import Page
from tests.server.test_backup import wait_for_a_block
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres_server import PostgresServer

PAGE = Page(ROOT / "docs" / "operations.md")


def send(broker: BrokerProcess, text: str) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender("queue.1") as sender,
    ):
        sender.send_messages(ServiceBusMessage(text))


def peeked(broker: BrokerProcess) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver("queue.1") as receiver,
    ):
        return [str(message) for message in receiver.peek_messages(max_message_count=10)]


def test_the_backup_of_a_running_broker_can_be_restored(tmp_path: Path) -> None:
    """The command of the page runs while the broker serves."""
    if shutil.which("sqlite3") is None:
        pytest.skip(UNAVAILABLE + "sqlite3 is not on the PATH")
    (command,) = [line for line in PAGE.command_lines() if line.startswith("sqlite3 ")]
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(storage=storage) as broker:
        send(broker, "before the copy")
        wait_for_a_block(tmp_path / "peeklock.db")
        subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
        send(broker, "after the copy")
        assert 0 == broker.stop(signal.SIGTERM)
        (tmp_path / "copy.db").replace(tmp_path / "peeklock.db")
        for suffix in ("-wal", "-shm", "-commits"):
            (tmp_path / f"peeklock.db{suffix}").unlink(missing_ok=True)
        broker.start()
        assert ["before the copy"] == peeked(broker)


def test_the_backup_of_a_schema_can_be_restored(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """The first command runs while the broker serves, the second one after it has stopped."""
    url = postgres_server.url("peeklock").partition("?")[0]
    dump, restore = [
        line.replace("postgresql://peeklock@db.example/messaging", url)
        for line in PAGE.command_lines()
        if line.startswith(("pg_dump --", "psql --"))
    ]
    path = {"PATH": f"{postgres_server.programs}:{os.environ['PATH']}"}
    with BrokerProcess(storage=url) as broker:
        send(broker, "before the copy")
        subprocess.run(["bash", "-c", dump], cwd=tmp_path, check=True, env=path)
        send(broker, "after the copy")
        assert 0 == broker.stop(signal.SIGTERM)
        subprocess.run(["bash", "-c", restore], cwd=tmp_path, check=True, env=path)
        broker.start()
        assert ["before the copy"] == peeked(broker)
        send(broker, "after the restore")


def test_after_an_ordered_stop_one_file_contains_everything(tmp_path: Path) -> None:
    with BrokerProcess(storage=f"sqlite:///{tmp_path / 'peeklock.db'}") as broker:
        send(broker, "kept")
        assert 0 == broker.stop(signal.SIGTERM)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(tmp_path / "peeklock.db", alone / "peeklock.db")
    with BrokerProcess(storage=f"sqlite:///{alone / 'peeklock.db'}") as broker:
        assert ["kept"] == peeked(broker)
