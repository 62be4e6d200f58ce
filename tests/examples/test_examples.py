"""Every example does what it says, as a user would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.server import ROOT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """A broker as the examples' README has it started."""
    with BrokerProcess(config=EXAMPLES / "entities.yaml") as process:
        yield process


def run(*command: object, **environment: str) -> str:
    """What a command prints; it has to end well."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_request_and_reply(broker: BrokerProcess) -> None:
    """The requester gets its own answer."""
    printed = run(
        EXAMPLES / "request_reply_over_sessions.py",
        SERVICEBUS_CONNECTION_STRING=broker.connection_string,
    )
    assert "IS ANYBODY THERE?\n" == printed


def test_automatic_lock_renewal(broker: BrokerProcess) -> None:
    """Seven seconds of work under a lock of five: delivered once."""
    printed = run(
        EXAMPLES / "automatic_lock_renewal.py",
        SERVICEBUS_CONNECTION_STRING=broker.connection_string,
    )
    assert "done: take your time, delivered 1 time(s)\n" == printed


def test_pytest_fixture() -> None:
    """The fixture starts the command, and the test that uses it passes."""
    command = f"{sys.executable} -m peeklock"
    printed = run(
        "-m",
        "pytest",
        "-q",
        "--rootdir",
        EXAMPLES,
        "-c",
        os.devnull,
        EXAMPLES / "pytest",
        PEEKLOCK=command,
    )
    assert "1 passed" in printed
