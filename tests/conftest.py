"""What holds for every test.

In CI a test that is skipped for want of something is a failure. Clients of the stock SDK are closed
without their pause of up to a second. Brokers that tests start do not ignore signals.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import ModuleType

    from tests.support.postgres_server import PostgresServer

UNAVAILABLE = "not available here: "
"""A reason that begins so is accepted in CI too: what it names cannot be installed with pip."""


def pytest_configure() -> None:
    """Stops ignoring signals: shells let background jobs ignore SIGINT and `nohup` lets them ignore
    SIGHUP, child processes inherit that, and the broker keeps it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        _refuse_skipping(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skipping(report)
    return report


def _refuse_skipping(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("CI") != "true" or not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(UNAVAILABLE):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing installable may be missing: {reason}"


# ---- the stock SDK ------------------------------------------------------------------------------

SDK_CLIENT = "azure.servicebus._pyamqp.client"
KEEP_ALIVE_SLEEP_S = 1
SHORT_SLEEP_S = 0.05


class ShortSleeps:
    """The module `time`, but for the sleep of one second.

    The keep-alive thread of each sender and receiver of azure-servicebus sleeps for a second between
    looks at whether its link was closed, and `close` waits for the thread. By then the broker has been
    told everything, so a shorter sleep changes nothing that a test could see.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def sleep(self, seconds: float) -> None:
        self._module.sleep(SHORT_SLEEP_S if seconds == KEEP_ALIVE_SLEEP_S else seconds)


def pytest_collection_finish() -> None:
    """Shortens the SDK's sleeps, if a test that was collected has imported it."""
    if (client := sys.modules.get(SDK_CLIENT)) is not None:
        client.time = ShortSleeps(time)  # type: ignore[attr-defined]


# ---- PostgreSQL ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for the tests of one process, started by the first test that needs it."""
    from tests.support.postgres_server import PostgresServer

    with PostgresServer() as server:
        yield server
