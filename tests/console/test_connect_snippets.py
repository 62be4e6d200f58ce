"""The snippets of the page Connect run as they are, each with the stock SDK of its language, against this very broker.

They need the tools of their language, and packages from its registry, as `tests/clients` does. `make clients` runs them
all; `make test` runs those that take a few seconds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

from tests.clients.program import Client, ProgramFailed
from tests.conftest import UNAVAILABLE
from tests.examples.test_other_languages import ALL
from tests.support.server import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.console.console_page import ConsolePage
    from tests.control.client import ControlClient
    from tests.support.server import BrokerProcess

CLIENTS = ROOT / "tests" / "clients"
TIMEOUT_S = 110


class Program(NamedTuple):
    """Where a snippet is written, below a folder with the SDK, and how it is run there."""

    label: str
    client: str | None
    """The folder in `tests/clients`. None: it needs no packages."""
    file: str
    commands: Sequence[Sequence[str]]
    is_slow: bool = False
    copies: Sequence[str] = ()
    """Files of the client that are copied into a folder of its own. None: it runs in the folder of the client."""


JAVA = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
PROGRAMS = [
    Program("Python", None, "snippet.py", [[sys.executable, "snippet.py"]]),
    Program("JavaScript", "javascript", "build/connect.mjs", [["node", "build/connect.mjs"]]),
    Program("Go", "go", "build/connect/main.go", [["go", "run", "./build/connect"]]),
    Program(
        "Java",
        "java",
        "build/Hello.java",
        [["java", *JAVA, "-cp", "target/scenarios.jar:target/dependency/*", "build/Hello.java"]],
        is_slow=True,
    ),
    Program(
        ".NET",
        "dotnet",
        "Program.cs",
        [
            ["dotnet", "build", "--configuration", "Release", "--output", "build"],
            ["dotnet", "build/Scenarios.dll"],
        ],
        copies=["Scenarios.csproj"],
    ),
]


@pytest.mark.parametrize(
    "program",
    [one for one in PROGRAMS if ALL in os.environ or not one.is_slow],
    ids=lambda one: one.label,
)
def test_a_snippet_sends_and_receives(
    console: ConsolePage,
    api: ControlClient,
    broker: BrokerProcess,
    tmp_path: Path,
    program: Program,
) -> None:
    """Its last line is the body of the message, and the message is completed."""
    console.open("#/connect")
    console.page.get_by_role("tab", name=program.label, exact=True).click()
    snippet = console.field(f"{program.label} snippet")
    expect(snippet).to_contain_text(f"localhost:{broker.http_port}")
    code = snippet.inner_text()
    folder = ready(program, tmp_path)
    file = folder / program.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    for command in program.commands:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert 0 == done.returncode, done.stdout + done.stderr
    assert "hello" == done.stdout.strip().splitlines()[-1]
    found = api.get("/entities")["entities"]
    assert {0} == {one["counts"]["active"] + one["counts"]["locked"] for one in found}


def ready(program: Program, own: Path) -> Path:
    """Returns the folder in which the snippet runs. Fetches the SDK, unless that has been done."""
    if program.client is None:
        return own
    client = Client.load(CLIENTS / program.client)
    if missing := client.missing():
        pytest.skip(UNAVAILABLE + f"{missing[0]} is not on the PATH")
    if program.copies:
        for name in program.copies:
            shutil.copy(client.folder / name, own)
        return own
    lock = Path(tempfile.gettempdir()) / f"peeklock-client-{client.name}.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # other processes of the run may do the same
        try:
            client.make_ready()
        except ProgramFailed as failure:
            if ALL in os.environ:
                raise
            pytest.skip(UNAVAILABLE + f"{client.name} could not fetch packages: {failure}")
    return client.folder
