"""Stores to test: a fresh one of every backend, and a file for what only a file can suffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.postgres.store import PostgresStore
from storage.sqlite.journaled_commits import JournaledCommits
from storage.sqlite.store import SqliteStore
from storage.urls import store_for
from tests.support.background_store import BackgroundStore
from tests.support.owned_stores import open_as_owner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.contract import Store
    from tests.support.postgres_server import PostgresServer


@pytest.fixture(params=["memory", "sqlite", "sqlite, in the background", "postgresql"])
def store(request, tmp_path: Path) -> Iterator[Store]:
    """An open, empty store of each backend, which the test owns."""
    url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path / 'peeklock.db'}"}.get(
        request.param
    )
    store: Store
    if request.param == "sqlite, in the background":
        store = BackgroundStore(tmp_path / "peeklock.db")
    else:
        store = store_for(url or request.getfixturevalue("postgres_server").url())
    open_as_owner(store)
    yield store
    store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store's file may be; nothing is there yet."""
    return tmp_path / "peeklock.db"


@pytest.fixture
def sqlite(path: Path) -> Iterator[SqliteStore]:
    """An open, empty file."""
    store = SqliteStore(path)
    store.open()
    yield store
    store.close()


@pytest.fixture
def without_journal(monkeypatch):
    """Every commit is written to the tables of a SQLite file at once."""
    monkeypatch.setattr(JournaledCommits, "write", lambda *_: False)
    monkeypatch.setattr(JournaledCommits, "begin_write", lambda *_: False)


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[PostgresStore]:
    """An open, empty schema, which the test owns."""
    store = store_for(postgres_server.url())
    open_as_owner(store)
    assert isinstance(store, PostgresStore)
    yield store
    store.close()
