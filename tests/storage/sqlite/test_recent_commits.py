"""What a broker of version 5 left in its table of recent commits: all of it moves, or the file is not opened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from storage.contract import StoreUnusable
from storage.sqlite.store import SqliteStore
from tests.storage.sample_records import message_ids

OLD_FILE = Path(__file__).parents[1] / "files" / "schema_5.sql"
"""It was copied from a broker that was killed. `test_old_files.py` checks what is in it."""


@pytest.fixture
def old(path: Path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD_FILE.read_text("utf-8"))
        assert [] == connection.execute("SELECT * FROM blocks").fetchall()
    return path


def test_recent_commits_move_once(old):
    """They are in the tables afterwards, also for a broker that starts again."""
    for _ in range(2):
        store = SqliteStore(old)
        store.open()
        assert 3 == len(message_ids(store))
        assert store._writer is not None
        assert (0,) == store._writer.execute("SELECT count(*) FROM recent_commits").fetchone()
        store.close()


@pytest.mark.parametrize("damage", ["X'07'", "X'0000000000000000010005'"])
def test_a_damaged_row_is_reported(old, damage):
    """It never passes for an empty queue: a version, and a count of parts that are not there."""
    with closing(sqlite3.connect(old)) as connection:
        ((part,),) = connection.execute("SELECT part FROM recent_commits WHERE slot = 2").fetchall()
        ((start,),) = connection.execute(f"SELECT {damage}").fetchall()
        if len(start) == 1:
            start = part[:8] + start
        damaged = start + part[len(start) :]
        connection.execute("UPDATE recent_commits SET part = ? WHERE slot = 2", (damaged,))
        connection.commit()
    with pytest.raises(StoreUnusable, match="a recent commit is damaged"):
        SqliteStore(old).open()
