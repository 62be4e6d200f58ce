"""The database is not there, restarts, becomes read-only or fails over, while a stock client keeps sending.

Every send that was accepted is there afterwards, and the broker continues by itself.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.failover.conftest import Broker, wait_until
from tests.support.postgres_server import ADMINISTRATOR, DATABASE, ROLE, PostgresServer
from tests.support.server import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 30
"""So many sends before and after something happens."""


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A server that a test may end."""
    with PostgresServer() as server:
        yield server


class Load:
    """A client that sends all the time, and knows what was accepted."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.accepted: list[str] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._send)

    @contextmanager
    def running(self) -> Iterator[Load]:
        self._thread.start()
        try:
            self.wait_for_more()
            yield self
            self.wait_for_more()
        finally:
            self._enough.set()
            self._thread.join()

    def wait_for_more(self) -> None:
        """Waits until more sends are accepted."""
        before = len(self.accepted)
        wait_until(lambda: len(self.accepted) > before + MANY, 60)

    def _send(self) -> None:
        text, number = self.broker.connection_string, 0
        while not self._enough.is_set():
            try:
                with (
                    ServiceBusClient.from_connection_string(text, retry_total=1) as client,
                    client.get_queue_sender("orders") as sender,
                ):
                    while not self._enough.is_set():
                        number += 1
                        sender.send_messages(ServiceBusMessage(str(number)))
                        self.accepted.append(str(number))
            except ServiceBusError:
                self._enough.wait(0.1)

    def check(self) -> None:
        """Every accepted message is there."""
        stored: set[str] = set()
        with (
            ServiceBusClient.from_connection_string(self.broker.connection_string) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            number = 1
            while page := receiver.peek_messages(250, sequence_number=number):
                stored |= {str(message) for message in page}
                number = (page[-1].sequence_number or 0) + 1
        assert set() == set(self.accepted) - stored


def test_a_broker_waits_for_its_database_and_ends_with_a_sentence() -> None:
    """After the time in the settings."""
    (port,) = free_ports(1)
    broker = Broker(f"postgresql://nobody@{HOST}:{port}/nothing", "--storage-wait", "1s")
    with broker.launched():
        wait_until(lambda: "storage.unavailable" in broker.log_text())
        assert 1 == broker.wait()
        text = broker.log_text()
        assert "start.failed" in text
        assert "storage_wait" in text
        assert "Traceback" not in text


def test_a_restart_of_the_database_under_load_loses_nothing(database: PostgresServer) -> None:
    """In order and after a crash. The broker stays the owner, and its clients stay connected."""
    with (broker := Broker(database.url())).launched():
        broker.wait_until_healthy()
        with (load := Load(broker)).running():
            database.restart()
            load.wait_for_more()
            database.stop(signal.SIGQUIT)
            database.start()
        load.check()
        assert broker.is_healthy()


def test_a_read_only_database_stops_sends_and_nothing_is_lost(database: PostgresServer) -> None:
    """The broker waits until it may write again."""
    with (broker := Broker(database.url())).launched():
        broker.wait_until_healthy()
        with (load := Load(broker)).running():
            _set_read_only(database, "on")
            wait_until(lambda: not broker.is_healthy(), 60)
            assert broker.why_not_serving in {"standby", "storage_unavailable"}
            count = len(load.accepted)
            _set_read_only(database, "off")
            wait_until(broker.is_healthy)
        assert len(load.accepted) > count
        load.check()


def _set_read_only(database: PostgresServer, value: str) -> None:
    with closing(database.connect()) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER ROLE {ROLE} SET default_transaction_read_only = {value}")
    database.end_sessions()


def test_a_failover_to_a_synchronous_replica_under_load_loses_nothing(
    database: PostgresServer,
) -> None:
    """The broker passes over the replica, whose address comes first in its URL. The primary is killed, the replica is
    promoted, and the broker uses it."""
    replica = _replica_of(database)
    try:
        schema = "failover"
        hosts = f"{HOST}:{replica.port},{HOST}:{database.port}"
        url = (
            f"postgresql://{ROLE}@{hosts}/{DATABASE}"
            f"?target_session_attrs=read-write&schema={schema}"
        )
        with (broker := Broker(url)).launched():
            broker.wait_until_healthy()
            with (load := Load(broker)).running():
                database.stop(signal.SIGKILL)
                with closing(replica.connect()) as connection:
                    connection.execute("SELECT pg_promote()")
            load.check()
    finally:
        replica.close()


def _replica_of(primary: PostgresServer) -> PostgresServer:
    """Returns a running replica that every commit of the primary waits for."""
    replica = PostgresServer()
    if primary._user is not None:
        os.chown(replica.folder, primary._user.pw_uid, primary._user.pw_gid)
    source = ["--host", HOST, "--port", str(primary.port), "--username", ADMINISTRATOR]
    primary.run(
        "pg_basebackup",
        *source,
        "--pgdata",
        str(replica.data),
        "--write-recovery-conf",
        "--no-sync",
        "--checkpoint=fast",
    )
    replica.start()
    with closing(primary.connect()) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")

        def is_synchronous() -> bool:
            found = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
            return [("sync",)] == found

        wait_until(is_synchronous)
    return replica


def test_several_brokers_share_a_database_with_a_schema_each(
    postgres_server: PostgresServer,
) -> None:
    """Each owns its namespaces, and has the connection string of its own process."""
    brokers = [Broker(postgres_server.url()) for _ in range(2)]
    with brokers[0].launched(), brokers[1].launched():
        for broker in brokers:
            broker.wait_until_healthy()
            with (
                ServiceBusClient.from_connection_string(broker.connection_string) as client,
                client.get_queue_sender("orders") as sender,
            ):
                sender.send_messages(ServiceBusMessage("one"))
        assert [1, 1] == [broker.message_count("orders") for broker in brokers]
        assert [1, 1] == [broker.metric("peeklock_owner") for broker in brokers]
