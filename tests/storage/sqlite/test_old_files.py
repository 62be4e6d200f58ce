"""A file that an earlier version wrote: everything in it is there with the present one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from broker.core.contract.commands import GetEntity, ListRules
from broker.core.contract.records import MessageRow, MessagesDeleted, MessagesUpdated
from broker.core.contract.turn import Turn
from broker.core.entities.stored_definitions import stored_definitions
from storage.migration_scripts import read_migrations
from storage.sqlite.migrations import schema_version
from storage.sqlite.store import SqliteStore
from storage.statements import sql_folder
from tests.storage.make_old_file import ENTITIES, RULES, filled
from tests.storage.sample_records import everything, message_ids, messages, row, stored
from tests.storage.sqlite.test_store import keeper
from tests.support.core_dialogue import CLIENT, CoreDialogue

FOLDER = Path(__file__).parents[1] / "files"
NEWEST = read_migrations(sql_folder("storage.sqlite") / "migrations")[-1].version
OLD_FILES = sorted(FOLDER.glob("schema_*.sql"))
TOPIC_ID = 3


@pytest.fixture(params=OLD_FILES, ids=lambda path: path.stem)
def opened(request, tmp_path):
    """A store whose file was written with an earlier schema."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(request.param.read_text("utf-8"))
        assert f"schema_{schema_version(connection)}" == request.param.stem
    store = SqliteStore(path)
    store.open()
    yield store
    store.close()


def test_there_is_a_file_of_every_earlier_schema():
    """The next migration needs one of the schema before it: see `make_old_file.py`."""
    assert [f"schema_{version}" for version in range(1, NEWEST)] == [
        path.stem for path in OLD_FILES
    ]


def test_an_old_file_holds_what_a_new_one_would(opened, tmp_path):
    """Entities, rules, messages, session states and message ids, text for text."""
    fresh = filled(tmp_path / "new.db")
    expected = everything(fresh)
    fresh.close()
    del expected["sequence_numbers"][TOPIC_ID, 0]  # older brokers reserved no numbers of topics
    found = everything(opened)
    for content in (expected, found):
        snapshot_of(content)
    assert expected == found


def snapshot_of(content):
    """Definitions are compared by what they say: how they are written may have changed."""
    pairs = stored_definitions(content.pop("entities"), content.pop("rules"))
    content["definitions"] = [(stored._replace(definition=""), said) for stored, said in pairs]


def test_a_broker_restores_the_rules_of_an_old_file(opened):
    """In their order, with their values. The next rule gets a new number."""
    dialogue = CoreDialogue(entities={}, attach=False)
    dialogue.namespace.restore(opened.load(), dialogue.now_ms)
    view = dialogue.ask(GetEntity(CLIENT, "g", "t/Subscriptions/some"))
    assert RULES == view.definition.rules
    assert [] == dialogue.ask(ListRules(CLIENT, "l", "t/Subscriptions/no-rules"))
    (default,) = dialogue.ask(ListRules(CLIENT, "l", "t/Subscriptions/all"))
    assert "$Default" == default.name
    turn = Turn()
    dialogue.namespace.declare(ENTITIES, dialogue.now_ms, turn)
    assert [] == turn.records  # the same entities: nothing to change


# --- large files --------------------------------------------------------------------------------

MANY = 5_000


def write_many(path: Path, schema: str) -> None:
    """A file of an earlier schema with many messages, some of them unusual, and gaps between their ids."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((FOLDER / f"{schema}.sql").read_text("utf-8"))
        rows = many_rows()
        connection.executemany(f"INSERT INTO messages VALUES ({', '.join('?' * 16)})", rows)
        connection.executemany(
            "INSERT INTO payloads (id, body, annotations) VALUES (?, ?, ?)",
            [(one.id, b"%d" % one.id, b"") for one in rows],
        )
        connection.commit()


def many_rows() -> list[MessageRow]:
    return [
        row(
            number,
            session_id=f"session {number % 7}" if number % 5 == 0 else None,
            changes=b"changed" if number % 11 == 0 else None,
            time_to_live_ms=number if number % 3 else None,
            state=number % 13 == 0,
        )
        for number in range(1_000, MANY)
        if number % 17
    ]


def check_many(store: SqliteStore) -> None:
    expected = many_rows()
    ids = {one.id for one in expected}
    assert expected == [one for one in messages(store) if one.id in ids]
    assert {one: (b"%d" % one, b"") for one in ids} == store.read_payloads(sorted(ids))


@pytest.mark.parametrize("schema", ["schema_1", "schema_2", "schema_3"])
def test_all_messages_of_a_large_old_file_are_there(tmp_path, schema):
    """Row for row and body for body; and they can be changed and deleted."""
    write_many(tmp_path / "old.db", schema)
    store = SqliteStore(tmp_path / "old.db")
    store.open()
    check_many(store)
    everyone = [one.id for one in messages(store)]
    store.commit([MessagesUpdated([row(2_000, delivery_count=5)]), stored([MANY + 1])])
    store.close()
    store.open()
    assert [row(2_000, delivery_count=5)] == [one for one in messages(store) if one.id == 2_000]
    store.commit([MessagesDeleted(everyone, everyone)])
    assert [MANY + 1] == message_ids(store)
    assert {MANY + 1} == set(store.read_payloads(range(MANY + 2)))
    store.close()


def test_a_migration_that_is_killed_begins_again(tmp_path):
    """The file is as it was, and the next start migrates it."""
    path = tmp_path / "old.db"
    write_many(path, "schema_3")
    for _ in range(2):
        with keeper("migrate", path) as migrating:
            assert "half\n" == migrating.stdout.readline()
        with closing(sqlite3.connect(path)) as connection:
            assert 3 == schema_version(connection)
    store = SqliteStore(path)
    store.open()
    check_many(store)
    store.close()
