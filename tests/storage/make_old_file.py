"""Writes the content of a store as SQL text, to be kept as a file of the schema of that time.

Run as `python -m tests.storage.make_old_file > tests/storage/files/schema_N.sql` with the broker
that knows schema N as its newest, before the next migration is written. `test_old_files.py` opens
what was kept with the present broker.
"""

from __future__ import annotations

import sqlite3
import sys
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from broker.core.contract.commands import AttachSender
from broker.core.contract.records import SessionStateSet
from config.model.definitions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityDefinition,
    FalseFilter,
    LongInteger,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from storage.sqlite.migrations import schema_version
from storage.sqlite.store import SqliteStore
from tests.support.core_dialogue import START_MS, CoreDialogue, NamedPeer, S, message, send

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPED = RuleDefinition(
    "Typed",
    CorrelationFilter(
        label="red",
        properties={
            "bytes": b"\x00\xff",
            "uuid": uuid.UUID(int=5),
            "at": datetime(2030, 1, 2, 3, 4, 5, 123456, tzinfo=UTC),
            "local": datetime(2030, 1, 2, 3, 4, 5),  # noqa: DTZ001 -- clients send such
            "for": timedelta(days=10, milliseconds=1500),
            "none": None,
            "yes": True,
            "long": LongInteger(5),
            "text": 'quoted " text, für',
            "infinite": float("inf"),
        },
    ),
    created_time_ms=START_MS - 5,
)
RULES = (
    RuleDefinition("none", FalseFilter(), created_time_ms=START_MS),
    RuleDefinition(
        "Sql",
        SqlFilter("colour = @c", {"@c": "red"}),
        SqlAction("SET x = @y", {"@y": 1.5}),
        created_time_ms=START_MS,
    ),
    TYPED,
)
ENTITIES: Mapping[str, EntityDefinition] = {
    "q": QueueDefinition(
        requires_duplicate_detection=True,
        authorization_rules=(AuthorizationRule("k", "p" * 44, "s" * 44, frozenset({"Send"})),),
    ),
    "sessions": QueueDefinition(requires_session=True),
    "t": TopicDefinition(),
    "t/Subscriptions/all": SubscriptionDefinition(
        rules=(RuleDefinition("$Default", created_time_ms=START_MS),)
    ),
    "t/Subscriptions/no-rules": SubscriptionDefinition(rules=()),
    "t/Subscriptions/some": SubscriptionDefinition(max_delivery_count=3, rules=RULES),
}


def filled(path: Path) -> SqliteStore:
    """An open store with entities, rules, messages and a session state."""
    store = SqliteStore(path)
    store.open()
    dialogue = CoreDialogue(entities=ENTITIES, attach=False)
    topic_sender = NamedPeer("topic sender")
    dialogue.run(AttachSender(S, "q"), AttachSender(topic_sender, "t"))
    dialogue.run(
        send(message("one", message_id="1"), message("two", message_id="2")),
        send(message("red", label="red"), to=topic_sender),
    )
    for turn in dialogue.turns:
        store.commit(turn.records)
    (sessions,) = (one.entity_id for one in store.load().entities if one.path == "sessions")
    store.commit([SessionStateSet(sessions, "session", b"state", START_MS)])
    return store


def main() -> None:
    with TemporaryDirectory() as folder:
        store = filled(Path(folder) / "peeklock.db")
        store.close()
        with closing(sqlite3.connect(store.path)) as connection:
            sys.stdout.write(f"PRAGMA user_version = {schema_version(connection)};\n")
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            sys.stdout.write(f"PRAGMA application_id = {application_id};\n")
            sys.stdout.write("\n".join(connection.iterdump()) + "\n")


if __name__ == "__main__":
    main()
