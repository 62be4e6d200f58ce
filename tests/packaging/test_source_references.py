"""What comments and docstrings refer to: every file name and every member of a class exists."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from tests.support.server import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_OTHERS = {"config.py", "logging.py", "structlog.py"}
"""Files of users' projects that hide modules of ours (`peeklock/__main__.py`)."""
FILE_NAME = re.compile(r"`([\w/-]+(?:\.\w+)?\.(?:py|c|h|sql|toml|md|yaml))`")
MEMBER = re.compile(r"`(?:\w+\.)*([A-Z]\w*)\.([a-z_]\w*)`")


@cache
def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


@cache
def sources() -> dict[str, str]:
    return {
        name: (ROOT / name).read_text()
        for name in tracked()
        if name.endswith((".py", ".c", ".h", ".sql"))
    }


def names_in(node: ast.ClassDef) -> Iterator[str]:
    """Returns the names of methods, of fields, and of attributes that methods set."""
    for one in ast.walk(node):
        match one:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield one.name
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                yield one.attr
            case ast.Name(ctx=ast.Store()):
                yield one.id


@cache
def members() -> dict[str, set[str]]:
    """The members of our classes, by the name of the class, with those of base classes."""
    found: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for name, text in sources().items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(names_in(node))
                bases.setdefault(node.name, set()).update(
                    base.id for base in node.bases if isinstance(base, ast.Name)
                )
    for name in found:
        above = list(bases[name])
        while above:
            base = above.pop()
            found[name] |= found.get(base, set())
            above += bases.get(base, ())
    return found


def test_every_file_that_is_named_exists():
    """By its name, or by its path from the root or from a package."""
    names = {PurePosixPath(one).name for one in tracked()}
    missing = [
        f"{name}: {file}"
        for name, text in sources().items()
        for file in FILE_NAME.findall(text)
        if file not in OF_OTHERS
        and not (file in names or any(f"/{one}".endswith(f"/{file}") for one in tracked()))
    ]
    assert [] == missing


def test_every_member_of_a_class_that_is_named_exists():
    """Of our own classes; others are not looked at."""
    known = members()
    missing = [
        f"{name}: {one}.{member}"
        for name, text in sources().items()
        for one, member in MEMBER.findall(text)
        if one in known and member not in known[one]
    ]
    assert [] == missing


@pytest.mark.parametrize("pattern", [FILE_NAME, MEMBER])
def test_something_is_named(pattern):
    assert 50 < sum(len(pattern.findall(text)) for text in sources().values())
