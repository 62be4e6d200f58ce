"""docs/control-api.md: its commands do what it says, in their order, and it names every route."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from protocol.http.control.route_table import ROUTES
from tests.conftest import UNAVAILABLE
from tests.packaging.dockerfile import ROOT
from tests.packaging.markdown import Page
from tests.support.server import BrokerProcess

PAGE = Page(ROOT / "docs" / "control-api.md")
_BLOCK = re.compile(r"^```(bash|sh|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps() -> list[tuple[str, Any]]:
    """The commands of the page, each with the answer that it shows, or None."""
    found: list[tuple[str, Any]] = []
    for language, content in _BLOCK.findall(PAGE.text):
        if language == "json":
            command, shown = found.pop()
            assert shown is None
            found.append((command, json.loads(content)))
        else:
            found += [(line, None) for line in content.splitlines()]
    return found


def differences(shown: Any, given: Any, where: str = "$") -> list[str]:
    """What the page shows and the answer does not contain. The answer may have more fields. An ellipsis stands for
    any text."""
    if isinstance(shown, dict) and isinstance(given, dict):
        return [
            one
            for name, value in shown.items()
            for one in differences(value, given.get(name), f"{where}.{name}")
        ]
    if isinstance(shown, list) and isinstance(given, list) and len(shown) == len(given):
        return [
            one
            for position, pair in enumerate(zip(shown, given, strict=True))
            for one in differences(*pair, f"{where}[{position}]")
        ]
    if isinstance(shown, str) and shown.endswith("…"):
        return [] if str(given).startswith(shown[:-1]) else [f"{where}: {given}"]
    return [] if shown == given else [f"{where}: {given}"]


def test_the_commands_answer_what_the_page_shows():
    if shutil.which("curl") is None:
        pytest.skip(UNAVAILABLE + "curl is not on the PATH")
    with BrokerProcess(testing_api=False) as broker:
        for command, shown in steps():
            line = command.replace("localhost:5300", f"localhost:{broker.http_port}")
            done = subprocess.run(
                ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True
            )
            answer = json.loads(done.stdout)
            assert shown is not None or "error" not in answer, (command, answer)
            assert [] == ([] if shown is None else differences(shown, answer)), command


def test_the_page_names_every_route():
    rows = re.findall(r"^\| `(GET|POST|PUT|DELETE) (/\S+)` \|", PAGE.text, re.MULTILINE)
    routes = [(route.method, re.sub(r"\{\w+\}", "NAME", route.path)) for route in ROUTES]
    assert {*routes, ("GET", "/openapi.json")} <= set(rows)


def test_the_conditions_of_the_page_are_valid():
    from protocol.http.control.wait_conditions import Condition

    conditions = re.findall(r"^\| `(\{.*?\})` \|", PAGE.text, re.MULTILINE)
    assert len(conditions) >= 7
    for text in conditions:
        Condition.model_validate_json(text, strict=True)
