"""Migrates a SQLite file to the newest schema with numbered scripts.

The version of a file is `PRAGMA user_version`. A new file runs the same scripts as an old one, so both have the same
schema.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from broker.core.contract.records import MessageRow
from storage.blocks.block_format import encode_block

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from typing import Any

    from storage.migration_scripts import Migration


def schema_version(connection: sqlite3.Connection) -> int:
    """Returns the version of a file; 0 for an empty one."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Runs the scripts that are newer than the file, each in a transaction, so that a file always has one version."""
    reached = schema_version(connection)
    for function in (rules_in_definition, definition_without_rules):
        connection.create_function(function.__name__, 1, function, deterministic=True)
    connection.create_aggregate("block_of_messages", len(MessageRow._fields), BlockOfMessages)  # type: ignore[arg-type]
    for migration in migrations:
        if migration.version <= reached:
            continue
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{migration.script}\n"
                f"PRAGMA user_version = {migration.version};\nCOMMIT;"
            )
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


# --- SQL functions that the scripts call ---------------------


def rules_in_definition(definition: str) -> str:
    """Used by 0002: returns the rules in the definition of a subscription, as an array of JSON texts."""
    rules = json.loads(definition).get("rules", [])
    return json.dumps([json.dumps(rule, separators=(",", ":")) for rule in rules])


def definition_without_rules(definition: str) -> str:
    """Used by 0002: returns the definition of a subscription without its rules."""
    content = {**json.loads(definition), "rules": []}
    return json.dumps(content, separators=(",", ":"), sort_keys=True)


class BlockOfMessages:
    """Used by 0004: an aggregate function that returns rows of messages as the first byte string of a block."""

    def __init__(self) -> None:
        self._rows: list[MessageRow] = []

    def step(self, *values: Any) -> None:
        """Adds a row."""
        self._rows.append(MessageRow(*values))

    def finalize(self) -> bytes:
        """Returns the bytes."""
        return encode_block(self._rows, ()).entries
