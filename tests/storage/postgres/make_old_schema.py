"""Writes a schema of the newest version as SQL: `python -m tests.storage.postgres.make_old_schema`.

Run it when a version is new. Later versions are tested with what it wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from broker.core.contract.records import (
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    NamespaceStored,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from storage.postgres.store import PostgresStore
from tests.storage.sample_records import QUEUE, entity, payload, row, rules, stored
from tests.support.owned_stores import open_as_owner
from tests.support.postgres_server import PostgresServer
from tests.support.server import HOST

if TYPE_CHECKING:
    from broker.core.contract.records import Record

SAMPLE: list[Record] = [
    NamespaceStored("made", '{"x": "\u00fc"}'),
    entity(QUEUE, "orders/\u00fc"),
    entity(2, "topic/Subscriptions/s", kind="subscription"),
    rules(2, 1, 2, definition='{"name": "r"}'),
    stored(range(1, 6)),
    MessagesStored(
        [row(6, session_id="a\0b", changes=b"\0")], [payload(6, b"large" * 5_000, b"a")]
    ),
    MessagesUpdated([row(2, delivery_count=3, sub_queue=1)]),
    MessagesDeleted([3], [3]),
    SessionStateSet(QUEUE, "a\0b", b"state", 7),
    MessageIdsSeen(QUEUE, [("id\0", 5), ("other", 6)]),
    SequenceNumbersSkipped([(2, 0, 40)]),
]
"""Something in every table."""


def main() -> None:
    with PostgresServer() as server:
        store = PostgresStore(server.url("old_schema").partition("?")[0], "old_schema")
        open_as_owner(store)
        store.commit(SAMPLE[:5])
        store.commit(SAMPLE[5:])
        store.close()
        where = ["--host", HOST, "--port", str(server.port), "--username", "peeklock", "peeklock"]
        dump = server.run("pg_dump", "--inserts", "--schema", "old_schema", *where)
        version = store._migrations[-1].version
    # Settings that not every version of the server has, and commands of psql.
    kept = [
        line for line in dump.splitlines() if line and not line.startswith(("--", "\\", "SET "))
    ]
    path = Path(__file__).parent / "files" / f"schema_{version}.sql"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
