"""The PostgreSQL database of a crash run: its faults, and the check of what a broker leaves in it.

The broker has to go on by itself after each of these faults. The check copies the tables into a SQLite file, which has
the same ones, and looks at that.
"""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from config.model.storage_urls import parse_storage_url
from storage.sqlite.store import SqliteStore
from tests.crash import recovered_state
from tests.support.postgres_server import PostgresServer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from tests.crash.ledgers.report import Report

COPIED = {
    "blocks": "number, entries, payloads",
    "dead_slots": "number, rows, payloads",
    "payloads": "id, body, annotations",
    "namespaces": "convert_from(name, 'UTF8') AS name, convert_from(definition, 'UTF8') AS definition",
    "entities": "entity_id, convert_from(namespace, 'UTF8') AS namespace, "
    "convert_from(kind, 'UTF8') AS kind, convert_from(path, 'UTF8') AS path, "
    "convert_from(definition, 'UTF8') AS definition, created_time_ms, updated_time_ms",
    "rules": "entity_id, number, convert_from(definition, 'UTF8') AS definition",
    "sequence_numbers": "entity_id, sub_queue, sequence_number",
    "session_states": "entity_id, convert_from(session_id, 'UTF8') AS session_id, state, updated_time_ms",
    "message_ids": "entity_id, convert_from(message_id, 'UTF8') AS message_id, until_ms",
}
"""Tables and their columns. Text is bytes in PostgreSQL."""


class CrashDatabase:
    """A server with the schema of one run. `with` starts and ends it."""

    def __init__(self) -> None:
        self.server = PostgresServer()
        self.url = self.server.url("crash")
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.close()

    def stop(self) -> None:
        """Ends a fault: all of them end by themselves."""

    def end_sessions(self) -> None:
        """An administrator ends all sessions of brokers."""
        self.server.end_sessions()

    def restart(self) -> None:
        """Sessions are ended first."""
        self.server.restart()

    def crash(self) -> None:
        """The server ends at once, and recovers from its log when it starts."""
        self.server.stop(signal.SIGQUIT)
        self.server.start()

    def check(self, path: Path) -> Report:
        """Returns what is in the schema, and what contradicts itself. Writes a SQLite file."""
        copy = SqliteStore(path)
        copy.open()
        copy.close()
        schema = parse_storage_url(self.url).schema
        with (
            closing(self.server.connect()) as connection,
            closing(sqlite3.connect(path)) as file,
            connection.cursor(binary=True) as cursor,
        ):
            for table, columns in COPIED.items():
                cursor.execute(f"SELECT {columns} FROM {schema}.{table}".encode())
                assert cursor.description is not None
                names = [column.name for column in cursor.description]
                marks = ", ".join("?" * len(names))
                file.executemany(
                    f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", cursor
                )
            file.commit()
        return recovered_state.check_database(path)


FAULTS: dict[str, Callable[[CrashDatabase], None]] = {
    "its sessions are ended": CrashDatabase.end_sessions,
    "it restarts": CrashDatabase.restart,
    "it crashes": CrashDatabase.crash,
}


@dataclass(frozen=True, slots=True)
class DatabaseFault:
    """Something happens to the database."""

    kind: str

    @classmethod
    def chosen(cls, chance: random.Random) -> DatabaseFault:
        return cls(chance.choice(list(FAULTS)))

    def arm(self, database: CrashDatabase) -> None:
        FAULTS[self.kind](database)

    def __str__(self) -> str:
        return f"the database: {self.kind}"
