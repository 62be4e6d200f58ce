"""Every example does what it says, as a user would run it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.server import ROOT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = ROOT / "examples"
BUSY_MACHINE_S = 90.0
PROCESSOR_S = 8.0


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


def test_order_processing() -> None:
    """Thirty tests in parallel. The bounds are for a busy machine: they find tests that wait for each other or for a
    timeout, and do not say how long the tests take on an idle one. The SDK mostly waits, so the processor time is bounded,
    too."""
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-c", EXAMPLES / "order_processing" / "pytest.ini"),
        *("--peeklock-command", f"{sys.executable} -m peeklock", "--peeklock-timeout", "60"),
        EXAMPLES / "order_processing",
        PYTHONPATH=str(ROOT),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "30 passed" in printed
    assert time.monotonic() - began_s < BUSY_MACHINE_S
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < PROCESSOR_S
