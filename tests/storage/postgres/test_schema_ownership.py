"""Who owns a schema: one store at a time, and nobody else commits."""

from __future__ import annotations

import os
import resource
import select
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from storage.contract import OwnershipLost, StorageError, StoreUnavailable
from storage.postgres.session import Prepared
from storage.urls import store_for
from tests.storage.sample_records import message_ids, stored
from tests.support.owned_stores import open_as_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.postgres.store import PostgresStore

    NewStore = Callable[[], PostgresStore]


@pytest.fixture
def new_store(postgres_server) -> Iterator[NewStore]:
    """Opens more and more stores of one schema."""
    url = postgres_server.url()
    opened: list[PostgresStore] = []

    def new() -> PostgresStore:
        store = store_for(url)
        store.open()
        opened.append(store)  # type: ignore[arg-type]
        return opened[-1]

    yield new
    for store in opened:
        store.close()


def test_the_end_of_the_session_is_seen_at_its_socket(new_store: NewStore, postgres_server):
    """So the owner need not wait until its next heartbeat. Afterwards there is a new session."""
    store = new_store()
    assert store.try_acquire()
    for _ in range(2):
        descriptor = store.duplicate_session_socket()
        assert descriptor is not None
        try:
            assert [] == select.select([descriptor], [], [], 0)[0]
            postgres_server.end_sessions()
            assert [descriptor] == select.select([descriptor], [], [], 10)[0]
        finally:
            os.close(descriptor)
        store.heartbeat()


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """The clients of the broker use all file descriptors."""
    lowest_free = os.dup(0)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_free_descriptor_the_owner_goes_on(new_store: NewStore, postgres_server):
    """Nothing watches its session, and heartbeats need no descriptor. A new session waits for one."""
    store = new_store()
    assert store.try_acquire()
    with no_free_descriptor():
        assert store.duplicate_session_socket() is None
        store.heartbeat()
    postgres_server.end_sessions()
    with no_free_descriptor(), pytest.raises(StoreUnavailable, match="Too many open files"):
        store.heartbeat()
    store.heartbeat()


def test_a_session_whose_end_is_known_is_not_watched(new_store: NewStore):
    """The next heartbeat opens another one."""
    store = new_store()
    assert store.try_acquire()
    session = store._ownership._session
    assert session is not None
    session.close()
    assert store.duplicate_session_socket() is None
    store.heartbeat()
    assert store._ownership._session is not session


def test_opening_is_not_owning(new_store: NewStore):
    """A standby can open the schema, and look, but not commit."""
    store = new_store()
    with pytest.raises(OwnershipLost, match="not owned by this broker"):
        store.commit([stored([1])])
    with pytest.raises(OwnershipLost):
        store.heartbeat()
    assert (0, 0, "") == store.read_lease()


def test_one_store_acquires_what_nobody_has(new_store: NewStore):
    """The other gets it when the first is closed."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    first.commit([stored([1])])
    lease = second.read_lease()
    assert 1 == lease.epoch
    assert "process" in lease.owner_text
    first.close()
    assert second.try_acquire()
    assert 2 == second.read_lease().epoch
    second.commit([stored([2])])
    assert [1, 2] == message_ids(second)


def test_a_released_schema_can_be_acquired_at_once(new_store: NewStore):
    """The planned hand-over, and back."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    first.commit([stored([1])])
    first.release()
    assert "" == second.read_lease().owner_text
    with pytest.raises(OwnershipLost):
        first.commit([stored([2])])
    assert second.try_acquire()
    second.commit([stored([2])])
    second.release()
    assert first.try_acquire()
    first.commit([stored([3])])
    assert [1, 2, 3] == message_ids(first)


def test_a_heartbeat_rises_and_never_goes_back(new_store: NewStore):
    """Whoever watches it sees that the owner is alive, whichever owner that is."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    seen = [second.read_lease().heartbeat]
    first.heartbeat()
    seen.append(second.read_lease().heartbeat)
    first.close()
    assert second.try_acquire()
    seen.append(second.read_lease().heartbeat)
    second.heartbeat()
    seen.append(second.read_lease().heartbeat)
    assert sorted(set(seen)) == seen


def test_a_silent_owner_loses_its_schema(new_store: NewStore):
    """And notices with its next commit, of which nothing is written."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    first.commit([stored([1])])
    seen = second.read_lease().heartbeat
    assert second.take_over(seen)
    with pytest.raises(OwnershipLost, match="owned by another broker"):
        first.commit([stored([2])])
    with pytest.raises(OwnershipLost, match="not owned by this broker"):
        first.commit([stored([2])])
    second.commit([stored([3])])
    assert [1, 3] == message_ids(second)


def test_an_owner_that_lost_its_schema_notices_with_its_heartbeat(new_store: NewStore):
    """Although it commits nothing."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    assert second.take_over(second.read_lease().heartbeat)
    with pytest.raises(OwnershipLost):
        first.heartbeat()
    assert not first.try_acquire()
    second.heartbeat()


def test_an_owner_that_is_alive_keeps_its_schema(new_store: NewStore):
    """A heartbeat after the look is enough."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    seen = second.read_lease().heartbeat
    first.heartbeat()
    assert not second.take_over(seen)
    first.commit([stored([1])])
    assert [1] == message_ids(first)


def test_only_one_of_two_standbys_takes_over(new_store: NewStore):
    """The second sees the heartbeat of the first."""
    first, second, third = new_store(), new_store(), new_store()
    assert first.try_acquire()
    seen = second.read_lease().heartbeat
    assert [True, False] == [second.take_over(seen), third.take_over(seen)]
    second.commit([stored([1])])


def test_a_lock_that_is_lost_is_taken_again_by_the_next_heartbeat(
    new_store: NewStore, postgres_server
):
    """The epoch stays: nobody was there in between."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    first.commit([stored([1])])
    postgres_server.end_sessions()
    first.heartbeat()
    assert 1 == first.read_lease().epoch
    assert not second.try_acquire()
    first.commit([stored([2])])
    assert [1, 2] == message_ids(first)


def test_who_acquires_in_between_is_the_owner(new_store: NewStore, postgres_server):
    """The first one has lost its connections, and another was quicker."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    first.commit([stored([1])])
    postgres_server.end_sessions()
    assert second.try_acquire()
    with pytest.raises(OwnershipLost):
        first.commit([stored([2])])
    second.commit([stored([3])])
    assert [1, 3] == message_ids(second)


def test_a_release_that_does_not_reach_the_database_says_so(new_store: NewStore, monkeypatch):
    """The process is no owner afterwards, and others have to wait for the lease time."""
    first = new_store()
    assert first.try_acquire()
    refused = Prepared("release", "SELECT 1 / ($1::bigint - $1::bigint)")
    monkeypatch.setitem(first._statements, "release", refused)
    first._ownership._drop()  # the next session prepares the other statement
    with pytest.raises(StorageError, match="division by zero"):
        first.release()
    with pytest.raises(OwnershipLost):
        first.commit([stored([1])])


def test_the_last_owner_does_not_wait_for_the_end_of_its_own_lost_session(new_store: NewStore):
    """The database has not noticed that the connection is lost, and the lock is still there."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    first.commit([stored([1])])
    lost, first._ownership._session = first._ownership._session, None
    first.release()
    assert not second.try_acquire()
    assert first.try_acquire()
    first.commit([stored([2])])
    assert not second.try_acquire()
    assert [1, 2] == message_ids(first)
    assert lost is not None
    lost.close()


def test_a_session_that_ends_as_soon_as_it_begins_is_one_more_failure(
    new_store: NewStore, postgres_server, monkeypatch
):
    """An administrator ends all sessions, again and again. The store may be tried again."""
    first = new_store()
    assert first.try_acquire()
    connect = psycopg.connect

    def connect_and_end(*arguments, **options):
        connection = connect(*arguments, **options)
        if options.get("prepare_threshold", 0) is None:  # the store's, and not the administrator's
            postgres_server.end_sessions()
        return connection

    postgres_server.end_sessions()
    with monkeypatch.context() as patched:
        patched.setattr(psycopg, "connect", connect_and_end)
        with pytest.raises(StoreUnavailable):
            first.heartbeat()
        with pytest.raises(StoreUnavailable):
            first.read_lease()
    first.heartbeat()


def test_the_last_owner_waits_for_a_later_one(new_store: NewStore):
    """Another epoch has begun."""
    first, second = new_store(), new_store()
    assert first.try_acquire()
    first.release()
    assert second.try_acquire()
    assert not first.try_acquire()
    second.commit([stored([1])])


def test_taking_over_does_not_depend_on_ending_the_sessions_of_the_owner(
    new_store: NewStore, monkeypatch
):
    """A role that may not end them takes over all the same; the old lock stays until its session ends."""
    first, second, third = new_store(), new_store(), new_store()
    assert first.try_acquire()
    first.commit([stored([1])])
    refused = Prepared("end_sessions", "SELECT pg_reload_conf() FROM unnest($1::bigint[])")
    monkeypatch.setitem(second._statements, "end_sessions", refused)
    assert second.take_over(second.read_lease().heartbeat)
    assert not third.try_acquire()
    second.commit([stored([2])])
    with pytest.raises(OwnershipLost):
        first.commit([stored([3])])
    second.heartbeat()
    assert [1, 2] == message_ids(second)


def test_a_commit_that_is_running_delays_no_heartbeat(new_store: NewStore, postgres_server):
    """Although it has the row of the ownership."""
    first = new_store()
    assert first.try_acquire()
    first.commit([stored([1])])
    with postgres_server.connect() as other, other.transaction():
        other.execute(f"SELECT * FROM {first.database.schema}.ownership FOR UPDATE")
        first.heartbeat()


def test_two_schemas_of_one_database_have_an_owner_each(postgres_server):
    """Several brokers share a database."""
    stores = [store_for(postgres_server.url()) for _ in range(2)]
    for number, store in enumerate(stores, 1):
        open_as_owner(store)
        store.commit([stored([number])])
    assert [[1], [2]] == [message_ids(store) for store in stores]
    for store in stores:
        store.close()
