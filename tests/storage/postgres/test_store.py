"""What the database may suffer, and what the store makes of it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from broker.core.contract.records import MessagesDeleted, SessionStateSet
from storage.contract import StorageError, StorageFull, StoreUnavailable
from storage.postgres.failures import ConnectionFailure
from storage.postgres.session import Session
from storage.postgres.store import DEADLINE_S, PostgresStore
from tests.storage.sample_records import QUEUE, everything, message_ids, payload, row, stored
from tests.support.owned_stores import open_as_owner
from tests.support.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT_S = 0.5


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that the tests of this module stop and start."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def store(server: PostgresServer) -> Iterator[PostgresStore]:
    with opened(server) as store:
        yield store


@contextmanager
def opened(
    server: PostgresServer, deadline_s: float = 20.0, schema: str | None = None
) -> Iterator[PostgresStore]:
    """A store, with its own deadline."""
    url, _, new_schema = server.url(schema).partition("?schema=")
    store = PostgresStore(url, new_schema, deadline_s=deadline_s)
    open_as_owner(store)
    try:
        yield store
    finally:
        store.close()


def fail_once(monkeypatch, *, after: bool) -> list[int]:
    """The next transaction with a block loses its connection, before it is sent or after it is committed."""
    run = Session.run
    failed: list[int] = []

    def run_or_fail(session, calls, timeout_s):
        is_commit = any(statement.name == b"insert_block" for statement, _ in calls)
        if failed or not is_commit:
            return run(session, calls, timeout_s)
        failed.append(len(calls))
        if after:
            run(session, calls, timeout_s)
        raise ConnectionFailure("the test has cut it")

    monkeypatch.setattr(Session, "run", run_or_fail)
    return failed


@pytest.mark.parametrize("after", [False, True], ids=["not committed", "committed"])
def test_a_commit_whose_answer_is_lost_takes_effect_once(store, monkeypatch, after):
    """The store asks, and does not guess."""
    store.commit([stored([1])])
    failed = fail_once(monkeypatch, after=after)
    store.commit([stored([2]), MessagesDeleted([1], [1])])
    assert failed
    store.commit([stored([3]), MessagesDeleted([2], [2])])
    assert [3] == message_ids(store)
    before = everything(store)
    store.close()
    open_as_owner(store)
    assert before == everything(store)


def test_a_restart_of_the_database_is_survived(store, server):
    """Commits, reads and the ownership go on with new connections."""
    store.commit([stored([1])])
    assert {1} == set(store.read_payloads([1]))
    server.restart()
    store.commit([stored([2])])
    assert {1, 2} == set(store.read_payloads([1, 2]))
    store.heartbeat()
    assert 1 == store.read_lease().epoch


def test_a_commit_waits_for_a_database_that_is_away(store, server):
    """Until its deadline."""
    store.commit([stored([1])])
    server.stop()
    committing = threading.Thread(target=store.commit, args=([stored([2])],))
    committing.start()
    server.start()
    committing.join(30)
    assert not committing.is_alive()
    assert [1, 2] == message_ids(store)


def test_beyond_its_deadline_a_commit_fails_and_the_store_can_be_used_later(server):
    """The sentence says what is wrong. Nothing of the commit was written."""
    with opened(server, SHORT_S) as store:
        store.commit([stored([1])])
        server.stop()
        try:
            with pytest.raises(StoreUnavailable, match="cannot be reached; start it"):
                store.commit([stored([2])])
            with pytest.raises(StoreUnavailable, match="cannot be reached; start it"):
                store.read_payloads([1])
            with pytest.raises(StoreUnavailable):
                store.heartbeat()
            with pytest.raises(StoreUnavailable):
                store.load()
        finally:
            server.start()
        assert [1] == message_ids(store)
        store.commit([stored([3])])
        assert [1, 3] == message_ids(store)


def test_a_commit_that_was_too_slow_does_not_take_effect_after_the_store_is_loaded(server):
    """It is waiting in the database when its client has given up. It is over, one way or the other, before the load."""
    with opened(server, SHORT_S) as store, closing(server.connect()) as other:
        store.commit([stored([1])])
        with other.transaction():
            other.execute(f"SELECT * FROM {store.database.schema}.ownership FOR UPDATE")
            with pytest.raises(StoreUnavailable, match="does not answer"):
                store.commit([stored([2])])
        loaded = message_ids(store)
        store.commit([stored([3])])
        assert [*loaded, 3] == message_ids(store)
        with closing(server.connect()) as observer:
            running = (
                "SELECT pid FROM pg_stat_activity WHERE query LIKE %s AND state = 'active' "
                "AND pid <> pg_backend_pid()"
            )
            while observer.execute(running, ["%begin_commit%"]).fetchall():
                time.sleep(0.01)
        assert [*loaded, 3] == message_ids(store)


def test_an_interrupted_commit_ends_soon_and_its_outcome_is_found_out(server):
    """Its process is no owner any more. The next epoch begins after the commit, or without it."""
    with opened(server) as store, closing(server.connect()) as other:
        store.commit([stored([1])])
        with other.transaction(), ThreadPoolExecutor(1) as thread:
            other.execute(f"SELECT * FROM {store.database.schema}.ownership FOR UPDATE")
            committing = thread.submit(store.commit, [stored([2])])
            wait_for_commit(server)
            begin_s = time.monotonic()
            store.interrupt()
            with pytest.raises(StoreUnavailable, match="while this process was the owner"):
                committing.result()
            assert time.monotonic() - begin_s < DEADLINE_S / 3
        with pytest.raises(StoreUnavailable):
            store.release()
        assert store.try_acquire()
        loaded = message_ids(store)
        assert loaded in ([1], [1, 2])
        store.commit([stored([3])])
        assert [*loaded, 3] == message_ids(store)


def test_an_interrupted_store_does_not_wait_for_its_database(server):
    """A commit that tries to connect again and again ends soon, too. Another ownership may wait again."""
    with opened(server) as store:
        store.commit([stored([1])])
        server.stop()
        try:
            begin_s = time.monotonic()
            store.interrupt()
            with pytest.raises(StoreUnavailable):
                store.commit([stored([2])])
            with pytest.raises(StoreUnavailable):
                store.read_payloads([1])
            with pytest.raises(StoreUnavailable):
                store.release()
            assert time.monotonic() - begin_s < DEADLINE_S / 3
        finally:
            server.start()
        assert store.try_acquire()
        assert [1] == message_ids(store)


def wait_for_commit(server) -> None:
    """Waits until a commit waits for a row. Within a transaction, the server would always answer the same."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s AND wait_event_type = 'Lock'"
    )
    with closing(server.connect()) as observer:
        while not observer.execute(waiting, ["%begin_commit%"]).fetchone()[0]:
            time.sleep(0.01)


def test_a_database_that_is_read_only_is_waited_for(server):
    """As after a failover, before the replica is promoted."""
    with opened(server, SHORT_S) as store, closing(server.connect()) as other:
        store.commit([stored([1])])
        other.execute("ALTER DATABASE peeklock SET default_transaction_read_only = on")
        server.end_sessions()
        try:
            with pytest.raises(StoreUnavailable, match="is read-only now"):
                store.commit([stored([2])])
        finally:
            other.execute("ALTER DATABASE peeklock RESET default_transaction_read_only")
        store.commit([stored([3])])
        assert [1, 3] == message_ids(store)


def test_a_full_disk_refuses_a_commit_and_new_messages_for_a_while(store, server, monkeypatch):
    """What is stored stays, and completing works."""
    store.commit([stored([1, 2])])
    schema = store.database.schema
    with closing(server.connect()) as other:
        other.execute(
            f"CREATE FUNCTION {schema}.no_room() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END$$"
        )
        other.execute(
            f"CREATE TRIGGER no_room BEFORE INSERT ON {schema}.blocks "
            f"FOR EACH ROW EXECUTE FUNCTION {schema}.no_room()"
        )
        with pytest.raises(StorageFull, match="no room on its disk"):
            store.commit([stored([3])])
        assert not store.measure_room()
        store.commit([MessagesDeleted([1], [1])])
        assert [2] == message_ids(store)
        other.execute(f"DROP TRIGGER no_room ON {schema}.blocks")
    monkeypatch.setattr(store, "_full_until_s", 0.0)
    assert store.measure_room()
    store.commit([stored([3])])
    assert [2, 3] == message_ids(store)


def test_a_database_that_went_back_is_not_written(store, server):
    """A replica that was not synchronous became the primary: what the broker knows is not there."""
    store.commit([stored([1])])
    store.commit([stored([2])])
    with closing(server.connect()) as other:
        other.execute(f"UPDATE {store.database.schema}.ownership SET commit_number = 1")
    with pytest.raises(StorageError, match="has lost commits"):
        store.commit([stored([3])])


def test_a_session_that_is_ended_in_the_middle_changes_nothing(store, server):
    """The transaction is run again in a new one."""
    store.commit([stored([1])])
    for number in range(2, 8):
        server.end_sessions()
        store.commit([stored([number]), SessionStateSet(QUEUE, "a", b"%d" % number, number)])
    assert list(range(1, 8)) == message_ids(store)


def test_the_commits_of_a_default_without_sync_are_synced(server):
    """`synchronous_commit = off` is a setting for others."""
    with closing(server.connect()) as other:
        other.execute("ALTER DATABASE peeklock SET synchronous_commit = off")
        try:
            with opened(server) as store, closing(store.database.connect()) as connection:
                assert ("on",) == connection.execute("SHOW synchronous_commit").fetchone()
        finally:
            other.execute("ALTER DATABASE peeklock RESET synchronous_commit")


def test_large_batches_and_bodies_pass_in_one_flight(store):
    """More than the buffers of a connection hold in both directions."""
    bodies = [payload(number, bytes([number % 256]) * 300_000) for number in range(1, 41)]
    rows = [row(number) for number in range(1, 41)]
    store.commit([type(stored([1]))(rows, bodies), stored(range(41, 9_000))])
    assert 8_999 == len(message_ids(store))
    assert {one.id: (one.body, b"") for one in bodies} == store.read_payloads(range(1, 41))
