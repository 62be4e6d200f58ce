"""Storage URLs: each names a store, or raises an error with the mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.model.storage_urls import mask_password, parse_storage_url
from storage.contract import StorageError
from storage.memory import MemoryStore
from storage.postgres.store import PostgresStore
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
        ("sqlite:///%00", "has a null character"),
        ("sqlite://host/file.db", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("memory://path", "memory has no path"),
        ("postgresql:", "names no database"),
        ("postgres:/host/db", "names no database"),
        ("mysql://user:secret@host/db", "is not understood"),
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


@pytest.mark.parametrize(
    ("url", "database", "schema"),
    [
        ("postgresql://host/db", "postgresql://host/db", "peeklock"),
        ("postgres://u:p%40@a:1,b:2/db?schema=orders", "postgresql://u:p%40@a:1,b:2/db", "orders"),
        (
            "postgresql:///db?host=/run/postgresql&schema=Orders_2&sslmode=verify-full",
            "postgresql:///db?host=/run/postgresql&sslmode=verify-full",
            "Orders_2",
        ),
        ("postgresql://h/d?password=a+b%26c&schema=x", "postgresql://h/d?password=a+b%26c", "x"),
        ("POSTGRESQL://", "postgresql://", "peeklock"),
    ],
)
def test_postgresql_takes_what_libpq_takes_and_a_schema(url, database, schema):
    """libpq does not know the schema, and never sees it."""
    assert (database, schema) == parse_storage_url(url)[2:]
    store = store_for(url)
    assert isinstance(store, PostgresStore)
    assert schema == store.database.schema


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://host/db?schema=", "the schema is"),
        ("postgresql://host/db?schema=a-b", "the schema is"),
        ("postgresql://host/db?schema=pg_mine", "the schema is"),
        ("postgresql://u:secret@host/db?schemas=a", "invalid URI query parameter: .schemas"),
        ("postgresql://u:secret@[::1/db", "not understood by libpq"),
        ("postgresql://u:secret/secret@host/db", "write / in a user or password as %2F"),
    ],
)
def test_a_postgresql_url_that_cannot_be_meant_is_refused(url, sentence):
    """Before anything connects. The sentence never shows a password."""
    with pytest.raises(StorageError, match=sentence) as refused:
        store_for(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@host/db",
        "postgresql://user:a/secret@host/db",
        "postgresql://user:secret/a@host/db",
        "postgresql://user:a@secret@host/db",
        "postgresql://user:a@b/secret@host/db",
        "postgresql://user:a?secret@host/db",
        "postgresql://user:a secret@host/db",
        "postgresql://host/db?user=u&password=secret",
        "postgresql://host/db?sslpassword=secret&sslmode=require",
    ],
)
def test_passwords_are_not_shown(url):
    """Wherever libpq accepts one."""
    masked = mask_password(f"storage={url}")
    assert "secret" not in masked
    assert "host/db" in masked
