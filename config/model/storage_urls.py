"""The grammar of storage URLs: `memory:`, `sqlite:///relative/path` and `sqlite:////absolute/path`.

The forms are those of SQLAlchemy. Settings, the `export` command and `storage/urls.py` all use this module.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

MEMORY, SQLITE = "memory", "sqlite"
FORMS = "memory:, sqlite:///relative/path or sqlite:////absolute/path"

_SQLITE_PREFIX = f"{SQLITE}:///"
_USER_AND_PASSWORD = re.compile(r"//[^/@]*@")


class StorageUrl(NamedTuple):
    """The parts of a storage URL."""

    scheme: str
    """`MEMORY` or `SQLITE`."""
    path: str = ""
    """Path of the file; empty for memory."""


def parse_storage_url(url: str) -> StorageUrl:
    """Returns the parts of a URL. Raises ValueError, with the reason, if it names no store."""
    scheme, _, rest = url.partition(":")
    match scheme.lower():
        case "memory":
            if rest.strip("/"):
                raise ValueError(f"storage URL '{url}': memory has no path; write memory:")
            return StorageUrl(MEMORY)
        case "sqlite":
            path = unquote(rest.removeprefix("///"))
            if not rest.startswith("///") or not path.strip("/") or path.endswith("/"):
                raise ValueError(f"storage URL '{url}' names no file; write {FORMS}")
            return StorageUrl(SQLITE, path)
        case _:
            raise ValueError(f"storage URL '{mask_password(url)}' is not understood; write {FORMS}")


def format_sqlite_url(path: str) -> str:
    """Returns the URL of an SQLite file."""
    return _SQLITE_PREFIX + path.replace("%", "%25")


def mask_password(text: str) -> str:
    """Returns the text with `***` in place of the user and password of each URL in it."""
    return _USER_AND_PASSWORD.sub("//***@", text)
