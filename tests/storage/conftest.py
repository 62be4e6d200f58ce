"""Stores to test: a fresh one of every backend, and a file for what only a file can suffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.memory import MemoryStore
from storage.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.contract import Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path: Path) -> Iterator[Store]:
    """An open, empty store of each backend."""
    store: Store = (
        MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "peeklock.db")
    )
    store.open()
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
