"""Checks the database file that a broker leaves: every row must have the rows that it refers to.

It reads the tables while no broker runs. The content of blocks is unpacked into tables of its own first. What clients were
told is checked by the ledgers.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tests.crash.ledgers.report import Report
from tests.support.stored_blocks import unpack_blocks

if TYPE_CHECKING:
    from pathlib import Path

OF_NO_ENTITY = "SELECT * FROM {table} WHERE entity_id NOT IN (SELECT entity_id FROM entities)"

CONTRADICTIONS = {
    "messages of no entity": OF_NO_ENTITY.format(table="messages"),
    "session states of no entity": OF_NO_ENTITY.format(table="session_states"),
    "message ids of no entity": OF_NO_ENTITY.format(table="message_ids"),
    "sequence numbers of no entity": OF_NO_ENTITY.format(table="sequence_numbers"),
    "rules of no entity": OF_NO_ENTITY.format(table="rules"),
    "rules without a name": (
        "SELECT * FROM rules WHERE json_extract(definition, '$.name') IS NULL"
    ),
    "names of rules given out twice": (
        "SELECT * FROM rules GROUP BY entity_id, lower(json_extract(definition, '$.name')) "
        "HAVING count(*) > 1"
    ),
    "messages without a body": (
        "SELECT * FROM messages WHERE payload_id NOT IN (SELECT id FROM bodies)"
    ),
    "bodies of no message": (
        "SELECT id FROM bodies WHERE id NOT IN (SELECT payload_id FROM messages)"
    ),
    "messages stored twice": "SELECT id FROM messages GROUP BY id HAVING count(*) > 1",
    "bodies stored twice": "SELECT id FROM bodies GROUP BY id HAVING count(*) > 1",
    "numbers given out twice": (
        "SELECT entity_id, sub_queue, sequence_number FROM messages "
        "GROUP BY entity_id, sub_queue, sequence_number HAVING count(*) > 1"
    ),
    "numbers above the highest": (
        "SELECT * FROM messages LEFT JOIN sequence_numbers AS highest "
        "USING (entity_id, sub_queue) "
        "WHERE messages.sequence_number > ifnull(highest.sequence_number, 0)"
    ),
    "names given out twice": (
        "SELECT namespace, lower(path) FROM entities GROUP BY 1, 2 HAVING count(*) > 1"
    ),
    "subscriptions of no topic": (
        "SELECT * FROM entities AS subscription WHERE kind = 'subscription' AND NOT EXISTS ("
        "SELECT 1 FROM entities AS topic WHERE topic.kind = 'topic' "
        "AND topic.namespace = subscription.namespace "
        "AND lower(subscription.path) LIKE lower(topic.path) || '/subscriptions/%')"
    ),
    "entities without a definition": (
        "SELECT * FROM entities WHERE NOT json_valid(definition) OR definition = '{}'"
    ),
}
TABLES = ("entities", "messages", "bodies", "session_states", "message_ids", "rules")


def check_database(path: Path) -> Report:
    """What is in the file, and what contradicts itself."""
    with closing(sqlite3.connect(path)) as database:
        violations = {"damaged blocks": unpack_blocks(database)}
        counts = {
            table.replace("_", " "): database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in TABLES
        }
        violations |= {
            kind: [str(row) for row in database.execute(query)]
            for kind, query in CONTRADICTIONS.items()
        }
        (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    violations["damaged pages"] = [] if verdict == "ok" else [verdict]
    return Report(counts, violations)
