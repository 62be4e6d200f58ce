"""From a storage URL to a store.

Owns the spelling of URLs: `memory:`, `sqlite:///relative/path` and `sqlite:////absolute/path`, as
SQLAlchemy writes them. A store is made here, not opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from storage.contract import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.contract import Store

_FORMS = "memory:, sqlite:///relative/path or sqlite:////absolute/path"


def store_for(url: str) -> Store:
    """The store a URL names. Raises `StorageError` for one that names none."""
    scheme, _, rest = url.partition(":")
    maker = _MAKERS.get(scheme.lower())
    if maker is None:
        raise StorageError(f"storage URL '{url}' is not understood; write {_FORMS}")
    return maker(url, rest)


def _memory(url: str, rest: str) -> Store:
    from storage.memory import MemoryStore

    if rest.strip("/"):
        raise StorageError(f"storage URL '{url}': memory has no path; write memory:")
    return MemoryStore()


def _sqlite(url: str, rest: str) -> Store:
    from storage.sqlite.store import SqliteStore

    path = unquote(rest.removeprefix("///"))
    if not rest.startswith("///") or not path.strip("/") or path.endswith("/"):
        raise StorageError(f"storage URL '{url}' names no file; write {_FORMS}")
    return SqliteStore(Path(path))


def _postgresql(url: str, rest: str) -> Store:
    del url, rest  # may hold a password: not for a message
    raise StorageError(f"PostgreSQL is not in this build yet; write {_FORMS}")


_MAKERS: dict[str, Callable[[str, str], Store]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
}
