"""Bringing a SQLite file to the newest schema, one numbered script after the other.

Owns the order of scripts and the version a file carries (`PRAGMA user_version`); not what they do.
A fresh file takes the same road as an old one, so both always end with the same schema.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from importlib.resources.abc import Traversable

_FILE_NAME = re.compile(r"(\d{4})_\w+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """The script that leads from the version before to this one."""

    version: int
    script: str


def read_migrations(folder: Traversable) -> tuple[Migration, ...]:
    """The scripts of a folder, `0001_….sql` first, without a gap."""
    found = sorted(
        (int(match[1]), file)
        for file in folder.iterdir()
        if (match := _FILE_NAME.fullmatch(file.name))
    )
    versions = [version for version, _ in found]
    if versions != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations are not numbered 1, 2, 3, …: {versions}")
    return tuple(Migration(version, file.read_text("utf-8")) for version, file in found)


def schema_version(connection: sqlite3.Connection) -> int:
    """The version a file is at; 0 for an empty one."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Run what the file has not seen yet, each in a transaction: it is at one version, always."""
    reached = schema_version(connection)
    for function in (rules_in_definition, definition_without_rules):
        connection.create_function(function.__name__, 1, function, deterministic=True)
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


# --- functions for the scripts, by their own names: see those for what they do ---------------------


def rules_in_definition(definition: str) -> str:
    """Used by 0002: the rules inside a subscription's definition, as an array of JSON texts."""
    rules = json.loads(definition).get("rules", [])
    return json.dumps([json.dumps(rule, separators=(",", ":")) for rule in rules])


def definition_without_rules(definition: str) -> str:
    """Used by 0002: a subscription's definition with no rules in it."""
    content = {**json.loads(definition), "rules": []}
    return json.dumps(content, separators=(",", ":"), sort_keys=True)
