"""Creates the schema, or migrates it to the newest version with numbered scripts.

All scripts that are missing run in one transaction, under a lock: several brokers may start at the same time. The
version is in the table `peeklock_version`, which also shows that a schema is the broker's.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from storage.contract import StoreUnusable
from storage.postgres.failures import SqlFailure, explain, explain_connecting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from storage.migration_scripts import Migration
    from storage.postgres.database import Database

_VERSION_TABLE = """
    CREATE TABLE IF NOT EXISTS peeklock_version (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        version  integer NOT NULL
    )
"""
_SET_VERSION = """
    INSERT INTO peeklock_version (version) VALUES (%s)
    ON CONFLICT (only_row) DO UPDATE SET version = excluded.version
"""
_HAS_VERSION = """
    SELECT count(*), count(*) FILTER (WHERE relname = 'peeklock_version') FROM pg_class
    WHERE relnamespace = to_regnamespace(quote_ident(%s)) AND relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_NO_RIGHT = "42501"


def migrate(
    connection: psycopg.Connection[Any], database: Database, migrations: Sequence[Migration]
) -> None:
    """Runs the scripts that are newer than the schema. Raises `StoreUnusable`, and then nothing has changed."""
    with _translated_errors(connection, database):
        if _version(connection, database, migrations) == migrations[-1].version:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [database.migration_lock])
            _migrate(connection, database, migrations)


def stored_version(
    connection: psycopg.Connection[Any], database: Database, migrations: Sequence[Migration]
) -> int:
    """Returns the version of the schema; 0 if it is empty or not there. Raises `StoreUnusable`."""
    with _translated_errors(connection, database):
        return _version(connection, database, migrations)


@contextmanager
def _translated_errors(connection: psycopg.Connection[Any], database: Database) -> Iterator[None]:
    """Translates failures into errors of the contract, which say what the role may not do."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is None:
            raise explain_connecting(database.name, error) from None
        if error.sqlstate != _NO_RIGHT:
            raise explain(database.name, SqlFailure(error.sqlstate, str(error))) from None
        reason = error.diag.message_primary
        if _schema_exists(connection, database):
            raise StoreUnusable(
                f"{database.name} belongs to another role; let that role connect, or add "
                f"?schema=NAME to the URL ({reason})"
            ) from None
        schema = sql.Identifier(database.schema).as_string(connection)
        role = sql.Identifier(connection.info.user).as_string(connection)
        raise StoreUnusable(
            f"{database.name} cannot be created by this role; run CREATE SCHEMA {schema} "
            f"AUTHORIZATION {role} as its administrator ({reason})"
        ) from None


def _migrate(
    connection: psycopg.Connection[Any], database: Database, migrations: Sequence[Migration]
) -> None:
    reached = _version(connection, database, migrations)
    if not reached and not _schema_exists(connection, database):
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(database.schema)))
    connection.execute(_VERSION_TABLE)
    for migration in migrations:
        if migration.version > reached:
            connection.execute(migration.script.encode())
    connection.execute(_SET_VERSION, [migrations[-1].version])
    if reached:
        # An older broker that still owns the schema cannot commit to the new tables.
        connection.execute("UPDATE heartbeat SET epoch = epoch + 1, counter = counter + 1")
        connection.execute("UPDATE ownership SET epoch = epoch + 1")


def _schema_exists(connection: psycopg.Connection[Any], database: Database) -> bool:
    row = connection.execute(
        "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", [database.schema]
    ).fetchone()
    return row is not None and bool(row[0])


def _version(
    connection: psycopg.Connection[Any], database: Database, migrations: Sequence[Migration]
) -> int:
    row = connection.execute(_HAS_VERSION, [database.schema]).fetchone()
    assert row is not None
    tables, versioned = row
    if not tables:
        return 0
    if not versioned:
        raise StoreUnusable(
            f"{database.name} belongs to another program; add ?schema=NAME to the URL"
        )
    table = sql.Identifier(database.schema, "peeklock_version")
    row = connection.execute(sql.SQL("SELECT version FROM {}").format(table)).fetchone()
    version = 0 if row is None else int(row[0])
    newest = migrations[-1].version
    if version > newest:
        raise StoreUnusable(
            f"{database.name} has version {version}, but this broker can read versions up to "
            f"{newest} only; use a newer broker or another schema"
        )
    return version
