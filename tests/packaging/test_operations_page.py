"""docs/operations.md: the backup that it describes can be restored."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from broker.app.cli.command_line import main
from broker.app.exit_codes import ExitCode
from tests.conftest import UNAVAILABLE
from tests.packaging.dockerfile import ROOT
from tests.packaging.markdown import Page
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


def restore(broker: BrokerProcess, folder: Path) -> None:
    """Replaces the file of a broker by the copy, as the page says."""
    assert 0 == broker.stop(signal.SIGTERM)
    (folder / "copy.db").replace(folder / "peeklock.db")
    for suffix in ("-wal", "-shm", "-commits"):
        (folder / f"peeklock.db{suffix}").unlink(missing_ok=True)
    broker.start()


def test_the_backup_of_a_running_broker_can_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the page runs while the broker serves."""
    command = next(line for line in PAGE.command_lines() if line.startswith("peeklock backup "))
    monkeypatch.chdir(tmp_path)
    with BrokerProcess(storage=f"sqlite:///{tmp_path / 'peeklock.db'}") as broker:
        monkeypatch.setenv("PEEKLOCK_URL", f"http://127.0.0.1:{broker.http_port}")
        send(broker, "before the copy")
        assert 0 == main(command.split()[1:])
        send(broker, "after the copy")
        restore(broker, tmp_path)
        assert ["before the copy"] == peeked(broker)


def test_the_backup_of_sqlite_can_be_restored(tmp_path: Path) -> None:
    """It may lack what is only in the journal, until the broker is idle."""
    if shutil.which("sqlite3") is None:
        pytest.skip(UNAVAILABLE + "sqlite3 is not on the PATH")
    (command,) = [line for line in PAGE.command_lines() if line.startswith("sqlite3 ")]
    with BrokerProcess(storage=f"sqlite:///{tmp_path / 'peeklock.db'}") as broker:
        send(broker, "before the copy")
        wait_for_a_block(tmp_path / "peeklock.db")
        subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
        send(broker, "after the copy")
        restore(broker, tmp_path)
        assert ["before the copy"] == peeked(broker)


def wait_for_a_block(path: Path) -> None:
    """Waits until the message is in the database: the broker is idle, and does not leave it in the journal."""
    ends_s = time.monotonic() + 30
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        while reader.execute("SELECT count(*) FROM blocks").fetchone() == (0,):
            assert time.monotonic() < ends_s
            time.sleep(0.01)


def test_the_backup_of_a_schema_can_be_restored(
    tmp_path: Path, postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first command runs while the broker serves, the second one after it has stopped. `peeklock backup` says that
    the first one is needed."""
    url = postgres_server.url("peeklock").partition("?")[0]
    dump, restoring = [
        line.replace("postgresql://peeklock@db.example/messaging", url)
        for line in PAGE.command_lines()
        if line.startswith(("pg_dump --", "psql --"))
    ]
    path = {"PATH": f"{postgres_server.programs}:{os.environ['PATH']}"}
    with BrokerProcess(storage=url) as broker:
        send(broker, "before the copy")
        address = f"http://127.0.0.1:{broker.http_port}"
        assert ExitCode.FAILED == main(["backup", str(tmp_path / "copy.db"), "--url", address])
        sentence = capsys.readouterr().err
        assert " ".join(dump.split()[:5]) in sentence
        assert "docs/operations.md#backup" in sentence
        subprocess.run(["bash", "-c", dump], cwd=tmp_path, check=True, env=path)
        send(broker, "after the copy")
        assert 0 == broker.stop(signal.SIGTERM)
        subprocess.run(["bash", "-c", restoring], cwd=tmp_path, check=True, env=path)
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
