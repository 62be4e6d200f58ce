"""The walks in ARCHITECTURE.md: every step names a function that exists, and no package comes twice without a reason."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

import pytest

from tests.support.server import ROOT

AGAIN = "Again, because"
"""A step in a package that an earlier step has left begins with these words."""


class Step(NamedTuple):
    file: str
    function: str
    text: str

    @property
    def package(self) -> str:
        return self.file.rpartition("/")[0]


def walks() -> dict[str, list[Step]]:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    found: dict[str, list[Step]] = {}
    for title, body in re.findall(
        r"^### Walk: (.+?)\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL
    ):
        rows = re.findall(r"^\| `([^`]+\.py)` \| `([^`]+)` \| (.+) \|$", body, re.MULTILINE)
        assert len(rows) == len(re.findall(r"^\| `", body, re.MULTILINE)), (
            f"{title}: unreadable row"
        )
        found[title] = [Step(*row) for row in rows]
    return found


WALKS = walks()
STEPS = [(title, step) for title, steps in WALKS.items() for step in steps]


def test_the_four_walks_are_there():
    assert ["a message", "a schedule request", "an administration PUT", "a restart"] == list(WALKS)
    assert all(len(steps) >= 5 for steps in WALKS.values())


@pytest.mark.parametrize(("title", "step"), STEPS)
def test_a_step_names_a_function_of_its_file(title, step):
    names = set()
    for node in ast.parse((ROOT / step.file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    assert step.function in names


@pytest.mark.parametrize("title", WALKS)
def test_a_package_that_comes_again_has_a_reason(title):
    seen: list[str] = []
    for step in WALKS[title]:
        is_return = step.package in seen and seen[-1] != step.package
        assert is_return == step.text.startswith(AGAIN), step
        seen.append(step.package)
