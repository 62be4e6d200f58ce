"""Reads the numbered scripts that create and migrate the schema of a store.

Each store runs them in its own way. A new store runs the same scripts as an old one, so both have the same schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FILE_NAME = re.compile(r"(\d{4})_\w+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """The script that migrates from the previous version to this one."""

    version: int
    script: str


def read_migrations(folder: Path) -> tuple[Migration, ...]:
    """Returns the scripts of a folder in order, from `0001_….sql`, without a gap."""
    found = sorted(
        (int(match[1]), file)
        for file in folder.iterdir()
        if (match := _FILE_NAME.fullmatch(file.name))
    )
    versions = [version for version, _ in found]
    if versions != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations are not numbered 1, 2, 3, …: {versions}")
    return tuple(Migration(version, file.read_text("utf-8")) for version, file in found)
