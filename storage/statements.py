"""Reads named SQL statements from the files beside the package of a store.

Splits a `.sql` file into statements, and expands a statement for many rows. A statement has one text for each size, so
that the database driver prepares each once.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MANY = re.compile(r"\{many ([^}]*)\}")
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


_PACKAGES_FOLDER = Path(__file__).parents[1]
"""`importlib.resources` would find files in archives, too, but takes a hundredth of the time and memory of a start."""


def sql_folder(package: str) -> Path:
    """Returns the folder of the SQL files of a package, in a work tree as in an installed one."""
    return _PACKAGES_FOLDER.joinpath(*package.split("."), "sql")


class Statements:
    """The statements of one file, by name."""

    def __init__(self, text: str) -> None:
        _, *parts = _NAME.split(text)
        names, bodies = parts[0::2], parts[1::2]
        self._texts = {
            name: _COMMENT.sub("", body).strip() for name, body in zip(names, bodies, strict=True)
        }
        self.names = tuple(names)
        self.one = self._texts.__getitem__
        """Returns the text of a statement for one row."""
        self.many = cache(self._widen)
        """`many(name, size)` returns the text of a statement for `size` rows."""

    def _widen(self, name: str, size: int) -> str:
        return _MANY.sub(lambda found: ", ".join([found[1]] * size), self._texts[name])
