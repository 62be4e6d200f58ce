"""Files of earlier versions are brought to the newest schema, without loss and without a detour."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from storage.migration_scripts import Migration, read_migrations
from storage.sqlite.migrations import migrate, schema_version
from storage.sqlite.store import APPLICATION_ID, SqliteStore
from storage.statements import sql_folder
from tests.storage.sample_records import entity, message_ids, stored

SHIPPED = read_migrations(sql_folder("storage.sqlite") / "migrations")
NEXT = Migration(
    len(SHIPPED) + 1,
    """
    ALTER TABLE entities ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';
    CREATE INDEX entities_by_path ON entities (path);
    UPDATE entities SET colour = 'red' WHERE path = 'orders';
    """,
)
BROKEN = Migration(
    len(SHIPPED) + 1,
    "CREATE TABLE half_way (x INTEGER); INSERT INTO nowhere VALUES (1);",
)


@pytest.fixture
def connection():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def schema(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_migrating_an_old_file_gives_the_schema_of_a_fresh_one(connection):
    """Version by version, or all at once: the same tables, the same version."""
    for count in range(1, len(SHIPPED) + 1):
        migrate(connection, SHIPPED[:count])
    migrate(connection, [*SHIPPED, NEXT])
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        migrate(fresh, [*SHIPPED, NEXT])
        assert schema(fresh) == schema(connection)
        assert NEXT.version == schema_version(fresh) == schema_version(connection)


def test_what_an_old_file_holds_is_still_there(sqlite):
    """A newer broker opens the file of an older one and finds its messages."""
    sqlite.commit([entity(1), stored(range(1, 11))])
    sqlite.close()
    newer = SqliteStore(sqlite.path)
    newer._migrations = (*SHIPPED, NEXT)
    newer.open()
    assert newer._writer is not None
    assert NEXT.version == schema_version(newer._writer)
    assert ("red",) == newer._writer.execute("SELECT colour FROM entities").fetchone()
    assert list(range(1, 11)) == message_ids(newer)
    newer.close()


def test_a_migration_runs_once(connection):
    """Opening a file again changes nothing."""
    migrate(connection, [*SHIPPED, NEXT])
    before = schema(connection)
    migrate(connection, [*SHIPPED, NEXT])
    assert before == schema(connection)


def test_a_migration_that_fails_leaves_the_version_before(connection):
    """Half a schema change would be worse than none."""
    migrate(connection, SHIPPED)
    before = schema(connection)
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection, [*SHIPPED, BROKEN])
    assert before == schema(connection)
    assert len(SHIPPED) == schema_version(connection)
    migrate(connection, [*SHIPPED, NEXT])
    assert NEXT.version == schema_version(connection)


def test_the_first_migration_marks_the_file_as_ours(connection):
    """So that no other program's file is taken for one."""
    migrate(connection, SHIPPED)
    assert (APPLICATION_ID,) == connection.execute("PRAGMA application_id").fetchone()


@pytest.mark.parametrize(
    "names", [["0001_a.sql", "0003_b.sql"], ["0002_a.sql"], ["0001_a.sql", "0001_b.sql"]]
)
def test_migrations_are_numbered_without_gaps(tmp_path, names):
    """A missing file is reported before any script runs."""
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match="not numbered"):
        read_migrations(tmp_path)


def test_other_files_beside_migrations_are_ignored(tmp_path):
    """Editors leave things behind."""
    for name in ("0001_first.sql", "0002_second.sql", "0001_first.sql~", "README.md"):
        (tmp_path / name).write_text(f"-- {name}")
    assert ["-- 0001_first.sql", "-- 0002_second.sql"] == [
        migration.script for migration in read_migrations(tmp_path)
    ]
