"""Creates the store that a storage URL names. `config/model/storage_urls.py` parses the URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from config.model.storage_urls import POSTGRESQL, SQLITE, parse_storage_url
from storage.contract import StorageError

if TYPE_CHECKING:
    from storage.contract import Store


def store_for(url: str) -> Store:
    """Returns the store that a URL names, not opened yet. Raises `StorageError` if it names none."""
    try:
        parsed = parse_storage_url(url)
    except ValueError as error:
        raise StorageError(str(error)) from None
    if parsed.scheme == SQLITE:
        from storage.sqlite.store import (
            SqliteStore,  # imported when needed: starting fast is a feature
        )

        return SqliteStore(Path(parsed.path))
    if parsed.scheme == POSTGRESQL:
        try:
            from storage.postgres.store import PostgresStore
        except ImportError as error:
            raise StorageError(
                "the storage postgresql needs the package psycopg; run pip install "
                f"'peeklock[postgresql]' ({error})"
            ) from None
        return PostgresStore(parsed.database, parsed.schema)
    from storage.memory import MemoryStore

    return MemoryStore()
