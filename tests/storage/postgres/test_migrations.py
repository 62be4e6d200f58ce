"""Numbered scripts create and migrate the schema, under a lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from storage.contract import OwnershipLost, StorageError
from storage.migration_scripts import Migration
from storage.urls import store_for
from tests.storage.sample_records import message_ids, stored
from tests.support.owned_stores import open_as_owner


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
