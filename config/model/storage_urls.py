"""The grammar of storage URLs: `memory:`, `sqlite:///relative/path`, `sqlite:////absolute/path` and `postgresql://…`.

The forms are those of SQLAlchemy and of libpq. Settings, the `export` command and `storage/urls.py` all use this module.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

MEMORY, SQLITE, POSTGRESQL = "memory", "sqlite", "postgresql"
FORMS = (
    "memory:, sqlite:///relative/path, sqlite:////absolute/path or postgresql://user@host/database"
)
DEFAULT_SCHEMA = "peeklock"

_SQLITE_PREFIX = f"{SQLITE}:///"
_USER_AND_PASSWORD = re.compile(r"//(?:[^/@]*@(?:\S*@)?|\S*@)")
"""Up to the last `@`: a password may contain `/`, `?` and `@` that should have been encoded."""
_PASSWORD_PARAMETER = re.compile(r"\b((?:ssl)?password)=[^&\s]*", re.IGNORECASE)
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_SCHEMA_PARAMETER = "schema="


class StorageUrl(NamedTuple):
    """The parts of a storage URL."""

    scheme: str
    """`MEMORY`, `SQLITE` or `POSTGRESQL`."""
    path: str = ""
    """Path of the file; empty for other stores."""
    database: str = ""
    """The URL for libpq; empty for other stores."""
    schema: str = ""
    """The schema in that database."""


def parse_storage_url(url: str) -> StorageUrl:
    """Returns the parts of a URL. Raises ValueError, with the reason, if it names no store."""
    scheme, _, rest = url.partition(":")
    match scheme.lower():
        case "memory":
            if rest.strip("/"):
                raise ValueError(
                    f"storage URL '{mask_password(url)}': memory has no path; write memory:"
                )
            return StorageUrl(MEMORY)
        case "sqlite":
            path = unquote(rest.removeprefix("///"))
            if not rest.startswith("///") or not path.strip("/") or path.endswith("/"):
                raise ValueError(f"storage URL '{mask_password(url)}' names no file; write {FORMS}")
            if "\0" in path:
                raise ValueError(
                    f"storage URL '{mask_password(url)}' has a null character; write {FORMS}"
                )
            return StorageUrl(SQLITE, path)
        case "postgresql" | "postgres":
            return _parse_postgresql_url(url, rest)
        case _:
            raise ValueError(f"storage URL '{mask_password(url)}' is not understood; write {FORMS}")


def _parse_postgresql_url(url: str, rest: str) -> StorageUrl:
    """Libpq does not know the parameter `schema`, and refuses unknown ones."""
    if not rest.startswith("//"):
        raise ValueError(f"storage URL '{mask_password(url)}' names no database; write {FORMS}")
    address, _, query = rest.partition("?")
    authority, _, path = address.removeprefix("//").partition("/")
    if "@" in path and "@" not in authority:
        # libpq would take the first part of the password for a port, and show it in its error.
        raise ValueError(
            f"storage URL '{mask_password(url)}': write / in a user or password as %2F, and @ in the name of a "
            "database as %40"
        )
    parameters = query.split("&") if query else []
    schemas = [one for one in parameters if one.startswith(_SCHEMA_PARAMETER)]
    schema = unquote(schemas[-1].removeprefix(_SCHEMA_PARAMETER)) if schemas else DEFAULT_SCHEMA
    if not _SCHEMA.fullmatch(schema) or schema.lower().startswith("pg_"):
        raise ValueError(
            f"storage URL '{mask_password(url)}': the schema is up to 63 letters, digits and underscores, "
            "and does not begin with pg_"
        )
    others = "&".join(one for one in parameters if one not in schemas)
    database = f"{POSTGRESQL}:{address}{'?' if others else ''}{others}"
    return StorageUrl(POSTGRESQL, database=database, schema=schema)


def format_sqlite_url(path: str) -> str:
    """Returns the URL of an SQLite file."""
    return _SQLITE_PREFIX + path.replace("%", "%25")


def mask_password(text: str) -> str:
    """Returns the text with `***` in place of the user and the passwords of each URL in it."""
    return _PASSWORD_PARAMETER.sub(r"\1=***", _USER_AND_PASSWORD.sub("//***@", text))
