"""Storage URLs: each names a store, or raises an error with the mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.contract import StorageError
from storage.memory import MemoryStore
from storage.sqlite.store import SqliteStore
from storage.urls import store_for


@pytest.mark.parametrize("url", ["memory:", "memory://", "MEMORY:"])
def test_memory_needs_no_path(url):
    """Any way of writing it will do."""
    assert isinstance(store_for(url), MemoryStore)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/peeklock.db", Path("/var/lib/peeklock.db")),
        ("sqlite:///peeklock.db", Path.cwd() / "peeklock.db"),
        ("sqlite:///data/peeklock.db", Path.cwd() / "data" / "peeklock.db"),
        ("sqlite:///./my%20data/peek lock.db", Path.cwd() / "my data" / "peek lock.db"),
    ],
)
def test_sqlite_takes_a_relative_or_an_absolute_path(url, path):
    """Three slashes and a relative path, or four, as SQLAlchemy has it."""
    store = store_for(url)
    assert isinstance(store, SqliteStore)
    assert path == store.path
    assert not path.exists()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sqlite:", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:////", "names no file"),
        ("sqlite://host/file.db", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("memory://path", "memory has no path"),
        ("postgresql://user:secret@host/db", "is not understood"),
        ("redis://host", "is not understood"),
        ("", "is not understood"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url, sentence):
    """The sentence says what to write instead, and never shows a password."""
    with pytest.raises(StorageError, match=sentence) as refused:
        store_for(url)
    assert "memory:" in str(refused.value)
    assert "secret" not in str(refused.value)
