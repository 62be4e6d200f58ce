"""Unpacks the blocks of a SQLite file into tables, so that a test can look at them with SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.records import MessageRow
from storage.blocks.block_format import StoredBlock
from storage.blocks.block_index import BlockIndex

if TYPE_CHECKING:
    import sqlite3


def unpack_blocks(database: sqlite3.Connection) -> list[str]:
    """Adds what is alive in blocks to the temporary tables `messages` and `bodies`. Returns what is wrong with blocks."""
    database.execute(f"CREATE TEMP TABLE messages ({', '.join(MessageRow._fields)})")
    database.execute("CREATE TEMP TABLE bodies AS SELECT id FROM payloads")
    index = BlockIndex()
    index.load(
        database.execute(
            "SELECT number, entries, length(blocks.payloads), dead_slots.rows, dead_slots.payloads "
            "FROM blocks LEFT JOIN dead_slots USING (number) ORDER BY number"
        )
    )
    wrong = [
        f"dead slots of block {number}, which is not there"
        for (number,) in database.execute("SELECT number FROM dead_slots")
        if number not in index.by_number
    ]
    for number, entries, payloads in database.execute("SELECT * FROM blocks").fetchall():
        block, stored = index.by_number[number], StoredBlock(entries)
        if not block.live_rows and not block.live_payloads:
            wrong.append(f"block {number}, in which nothing is alive")
        rows = stored.live_rows(block.dead_rows)
        marks = ", ".join("?" * len(MessageRow._fields))
        database.executemany(f"INSERT INTO messages VALUES ({marks})", rows)
        bodies = [(body[0],) for body in stored.live_payloads(payloads, block.dead_payloads)]
        database.executemany("INSERT INTO bodies VALUES (?)", bodies)
    return wrong
