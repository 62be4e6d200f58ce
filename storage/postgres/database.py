"""Where the database is: its URL, the schema, and new connections to both.

Reads the URLs of libpq, and sets the parameters that a broker needs and the URL does not have.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import psycopg
from psycopg import conninfo, sql

from config.model.storage_urls import mask_password
from storage.contract import StorageError, StoreUnusable
from storage.postgres.failures import explain_connecting

if TYPE_CHECKING:
    from typing import Any

OLDEST_SERVER = 130000
_DEFAULTS = {
    "application_name": "peeklock",
    "connect_timeout": "5",
    # A peer that is cut off is noticed after about ten seconds, and not after two hours.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Parameters of connections, unless the URL sets them."""
_SESSION = """
    SET search_path TO {schema};
    SET client_min_messages = warning;
    SET tcp_keepalives_idle = 5;
    SET tcp_keepalives_interval = 2;
    SET tcp_keepalives_count = 3;
    SET statement_timeout = 0;
    SET lock_timeout = {lock_timeout_ms};
    SET idle_in_transaction_session_timeout = 0;
    {newer_limits}
    SELECT CASE current_setting('synchronous_commit')
        WHEN 'off' THEN set_config('synchronous_commit', 'on', false)
    END;
"""
"""What every session sets. The server notices soon that a broker is cut off, and ends its locks. Limits that a role may
have for people do not apply. A commit waits for the disk, whatever the default of the server is."""
_NEWER_LIMITS = {140000: "idle_session_timeout", 170000: "transaction_timeout"}
"""More limits, by the version that introduced them."""


class Database:
    """A schema in a database."""

    def __init__(self, url: str, schema: str) -> None:
        try:
            parameters: dict[str, Any] = conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            text = mask_password(" ".join(str(error).split()))
            raise StorageError(f"the storage URL is not understood by libpq: {text}") from None
        self.schema = schema
        host = str(parameters.get("host") or parameters.get("hostaddr") or "localhost")
        if "," in host:
            # Only one of several servers can be written to.
            parameters.setdefault("target_session_attrs", "read-write")
        self.name = (
            f"the database {parameters.get('dbname') or parameters.get('user') or ''}"
            f" at {host}, schema {schema},".replace("database  at", "database at")
        )
        """For sentences about it. It ends with a comma."""
        self._conninfo = conninfo.make_conninfo(**{**_DEFAULTS, **parameters})
        key = hashlib.sha256(f"peeklock {schema}".encode()).digest()[:8]
        self._key = int.from_bytes(key, "big", signed=True)

    @property
    def owner_lock(self) -> int:
        """The key of the advisory lock that the owner has."""
        return self._key

    @property
    def writer_lock(self) -> int:
        """The key of the advisory lock that sessions with commits have."""
        return self._key ^ 1

    @property
    def migration_lock(self) -> int:
        """The key of the advisory lock of a migration."""
        return self._key ^ 2

    def connect(self, lock_timeout_ms: int = 0) -> psycopg.Connection[tuple[Any, ...]]:
        """Returns a new connection, which commits by itself. Raises `StoreUnavailable` or `StoreUnusable`.

        A statement waits for a lock for `lock_timeout_ms`; 0 is without end.
        """
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        except (psycopg.Error, OSError) as error:  # the latter if no file descriptor is free
            raise explain_connecting(self.name, error) from None
        try:
            self._check(connection)
            version = connection.info.server_version
            newer_limits = "".join(
                f"SET {limit} = 0;" for first, limit in _NEWER_LIMITS.items() if version >= first
            )
            schema = sql.Identifier(self.schema).as_string(connection)
            session = _SESSION.format(
                schema=schema, newer_limits=newer_limits, lock_timeout_ms=lock_timeout_ms
            )
            connection.execute(session.encode())
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise explain_connecting(self.name, error) from None
            raise
        return connection

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        if connection.info.server_version < OLDEST_SERVER:
            raise StoreUnusable(
                f"{self.name} has a server of version {connection.info.server_version // 10000}; "
                "use PostgreSQL 13 or later"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnusable(
                f"{self.name} has the encoding {encoding}; create one with ENCODING 'UTF8'"
            )
