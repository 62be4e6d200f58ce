"""Numbered scripts create and migrate the schema, under a lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from storage.contract import OwnershipLost, StorageError
from storage.memory import MemoryStore
from storage.migration_scripts import Migration
from storage.postgres.store import PostgresStore
from storage.urls import store_for
from tests.storage.postgres.make_old_schema import SAMPLE
from tests.storage.sample_records import everything, message_ids, row, stored
from tests.support.owned_stores import open_as_owner
from tests.support.postgres_server import WHEEL_FOLDERS, PostgresServer


def _expected():
    store = MemoryStore()
    store.commit(SAMPLE)
    return everything(store)


EXPECTED = _expected()
FILES = Path(__file__).parent / "files"
OLD_SCHEMAS = sorted(FILES.glob("schema_*.sql"))
"""What each version left, written by `python -m tests.storage.postgres.make_old_schema` when it was the newest."""


@pytest.mark.parametrize("path", OLD_SCHEMAS, ids=lambda path: path.stem)
def test_a_schema_of_every_version_can_be_used(postgres_server, path: Path):
    """It has what the version stored, and can be written."""
    url = postgres_server.url()
    schema = url.partition("schema=")[2]
    with closing(postgres_server.connect(user="peeklock")) as connection:
        connection.execute(path.read_text().replace("old_schema", schema).encode())
    store = store_for(url)
    open_as_owner(store)
    assert EXPECTED == everything(store)
    store.commit([stored([9])])
    assert [*EXPECTED["messages"], row(9)] == everything(store)["messages"]
    store.close()


def test_there_is_a_schema_of_every_version(postgres_server):
    """The newest version as well, so that it cannot be forgotten."""
    store = store_for(postgres_server.url())
    assert isinstance(store, PostgresStore)
    versions = [migration.version for migration in store._migrations]
    assert [f"schema_{version}" for version in versions] == [path.stem for path in OLD_SCHEMAS]


@pytest.mark.parametrize("wheel_folder", WHEEL_FOLDERS)
def test_other_versions_of_the_server_are_the_same(wheel_folder):
    """Those in the wheel, which also serve where no server is installed."""
    with PostgresServer(wheel_folder=wheel_folder) as server:
        store = store_for(server.url())
        open_as_owner(store)
        store.commit(SAMPLE)
        store.close()
        open_as_owner(store)
        assert EXPECTED == everything(store)
        store.close()


def with_more(store, *scripts: str):
    """The store of a later version."""
    first = store._migrations[-1].version + 1
    more = [Migration(number, script) for number, script in enumerate(scripts, first)]
    store._migrations = (*store._migrations, *more)
    return store


def test_many_brokers_can_start_at_once(postgres_server):
    """One of them creates the schema."""
    url = postgres_server.url()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: store_for(url).open(), range(8)))
    store = store_for(url)
    open_as_owner(store)
    store.commit([stored([1])])
    store.close()


def test_a_later_version_migrates_and_ends_the_epoch_of_the_broker_before_it(postgres_server):
    """Messages stay; the older broker can no longer commit, and cannot come back."""
    url = postgres_server.url()
    older = store_for(url)
    open_as_owner(older)
    older.commit([stored([1])])
    newer = with_more(store_for(url), "CREATE TABLE more (id int)", "ALTER TABLE more ADD x int")
    newer.open()
    with pytest.raises(OwnershipLost):
        older.commit([stored([2])])
    older.close()
    with pytest.raises(StorageError, match="use a newer broker"):
        older.open()
    assert newer.try_acquire()
    newer.commit([stored([3])])
    assert [1, 3] == message_ids(newer)
    newer.close()


def test_a_migration_that_fails_changes_nothing(postgres_server):
    """All scripts are one transaction."""
    url = postgres_server.url()
    older = store_for(url)
    open_as_owner(older)
    older.commit([stored([1])])
    older.close()
    broken = with_more(store_for(url), "CREATE TABLE more (id int)", "SELECT 1 / 0")
    with pytest.raises(StorageError, match="division by zero"):
        broken.open()
    open_as_owner(older)
    assert [1] == message_ids(older)
    older.close()
    with closing(postgres_server.connect()) as administrator:
        found = administrator.execute(
            "SELECT to_regclass(%s)", [f"{url.partition('schema=')[2]}.more"]
        )
        assert (None,) == found.fetchone()
