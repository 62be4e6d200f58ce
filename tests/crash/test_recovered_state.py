"""The check of the database file: each contradiction that a test writes is found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from storage.blocks.block_format import encode_block
from storage.sqlite.store import SqliteStore
from tests.crash import recovered_state
from tests.crash.ledgers.report import found_in
from tests.storage.sample_records import row

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = "INSERT INTO entities VALUES (1, 'default', 'queue', 'orders', '{\"a\": 1}', 0, 0)"


def message(message_id: int, entity: int, number: int, payload: int) -> str:
    """Writes a block with one message."""
    one = row(message_id, entity_id=entity, sequence_number=number, payload_id=payload)
    entries = encode_block([one], ()).entries
    return f"INSERT INTO blocks VALUES ((SELECT count(*) FROM blocks) + 1, x'{entries.hex()}', x'')"


GOOD_MESSAGE = message(1, 1, 1, 1)
PAYLOAD = "INSERT INTO payloads (id, body, annotations) VALUES ({id}, x'00', x'')"
NUMBER = "INSERT INTO sequence_numbers VALUES ({entity}, 0, 1)"

SOUND = (QUEUE, GOOD_MESSAGE, PAYLOAD.format(id=1), NUMBER.format(entity=1))


def found_with(folder: Path, *statements: str) -> dict[str, int]:
    path = folder / "broker.db"
    store = SqliteStore(path)
    store.open()
    store.close()
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return found_in(recovered_state.check_database(path))


def test_a_sound_file_has_no_contradiction(tmp_path: Path):
    """A queue, its number, one message, its body."""
    assert {} == found_with(tmp_path, *SOUND)


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (NUMBER.format(entity=2), "sequence numbers of no entity"),
        (
            "INSERT INTO session_states VALUES (2, 'session', 0, x'00')",
            "session states of no entity",
        ),
        ("INSERT INTO message_ids VALUES (2, 'id', 0)", "message ids of no entity"),
        ('INSERT INTO rules VALUES (2, 1, \'{"name": "r"}\')', "rules of no entity"),
        ("INSERT INTO rules VALUES (1, 1, '{}')", "rules without a name"),
        (
            'INSERT INTO rules VALUES (1, 1, \'{"name": "r"}\'), (1, 2, \'{"name": "R"}\')',
            "names of rules given out twice",
        ),
        (message(2, 1, 0, 9), "messages without a body"),
        (PAYLOAD.format(id=2), "bodies of no message"),
        ("INSERT INTO dead_slots VALUES (9, x'', x'')", "damaged blocks"),
        ("INSERT INTO blocks VALUES (9, x'0100000000000000', x'')", "damaged blocks"),
        (message(2, 1, 1, 1), "numbers given out twice"),
        (message(2, 1, 2, 1), "numbers above the highest"),
        (QUEUE.replace("(1,", "(2,").replace("orders", "Orders"), "names given out twice"),
        (
            QUEUE.replace("(1, 'default', 'queue', 'orders'", "(2, 'default', 'subscription', 's'"),
            "subscriptions of no topic",
        ),
        (
            "INSERT INTO entities VALUES (2, 'default', 'queue', 'other', '{}', 0, 0)",
            "entities without a definition",
        ),
    ],
)
def test_a_planted_contradiction_is_found(tmp_path: Path, planted: str, kind: str):
    """By its name."""
    assert {kind: 1} == found_with(tmp_path, *SOUND, planted)


def test_a_message_that_is_stored_twice_is_found(tmp_path: Path):
    """A commit that writes a block again must not leave the old one."""
    found = found_with(tmp_path, *SOUND, GOOD_MESSAGE)
    assert {"messages stored twice": 1, "numbers given out twice": 1} == found


def test_a_message_of_no_entity_is_found(tmp_path: Path):
    """It has no number either."""
    planted = message(2, 2, 1, 1)
    found = found_with(tmp_path, *SOUND, planted)
    assert {"messages of no entity": 1, "numbers above the highest": 1} == found
