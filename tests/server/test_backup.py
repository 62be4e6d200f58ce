"""A copy of a running broker's store, made as docs/operations.md says."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = "queue.1"


def wait_for_a_block(path: Path) -> None:
    """Waits until the message is in the database: the broker is idle, and does not leave it in the journal."""
    ends_s = time.monotonic() + 30
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        while reader.execute("SELECT count(*) FROM blocks").fetchone() == (0,):
            assert time.monotonic() < ends_s
            time.sleep(0.01)


def test_a_backup_of_a_running_broker_is_a_store(tmp_path: Path) -> None:
    """It has everything that was accepted before the broker was idle, and the broker continues."""
    file, copy = tmp_path / "peeklock.db", tmp_path / "copy.db"
    with BrokerProcess(storage=f"sqlite:///{file}") as broker:
        with (
            ServiceBusClient.from_connection_string(broker.connection_string) as client,
            client.get_queue_sender(QUEUE) as sender,
        ):
            sender.send_messages(ServiceBusMessage("before"))
            wait_for_a_block(file)
            with closing(sqlite3.connect(file)) as store, closing(sqlite3.connect(copy)) as target:
                store.backup(target)
            sender.send_messages(ServiceBusMessage("after"))
        assert 0 == broker.terminate()
    with (
        BrokerProcess(storage=f"sqlite:///{copy}") as broker,
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        assert ["before"] == [str(message) for message in receiver.peek_messages(10)]
