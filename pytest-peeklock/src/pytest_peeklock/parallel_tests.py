"""Runs tests at the same time in forked processes: `--peeklock-parallel 30`.

Clients of Service Bus mostly wait: the Python SDK takes half a second to open a link, and nearly no processor time. So
many more tests than cores can run at once. Each process of pytest-xdist imports the SDK, which takes longer than most
tests; a forked process has it already.
"""

from __future__ import annotations

import gc
import os
import pickle
import platform
import selectors
import signal
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LENGTH = struct.Struct("!I")
READ_BYTES = 1 << 20


class Child:
    """A process that runs some of the tests, and what it has reported."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self.waiting = list(items)
        """Tests that it has not finished."""
        self._received = bytearray()
        self.results, write = os.pipe()
        self.process_id = os.fork()
        if self.process_id:
            os.close(write)
            return
        code = 1
        try:
            os.close(self.results)
            _run(items, write)
            code = 0
        finally:
            os._exit(code)  # what ends a run is for the process that the user started

    def reports(self, data: bytes) -> Iterator[dict[str, Any] | None]:
        """Yields what has arrived completely: {} when a test begins, its reports, and None when it ends."""
        self._received += data
        while len(self._received) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._received)
            end = LENGTH.size + length
            if len(self._received) < end:
                return
            yield pickle.loads(bytes(self._received[LENGTH.size : end]))  # noqa: S301 -- our own child
            del self._received[:end]

    def end(self, *, kill: bool = False) -> int:
        """Waits until the process has ended. Returns how."""
        if kill:
            with suppress(ProcessLookupError):
                os.kill(self.process_id, signal.SIGKILL)
        _, status = os.waitpid(self.process_id, 0)
        os.close(self.results)
        return status


def run_forked(session: pytest.Session, process_count: int) -> None:
    """Runs the tests of a session in so many processes. Reports are made in this one."""
    children: dict[int, Child] = {}
    platform.processor()  # the SDK asks for it; found once here, it is known in all processes
    gc.collect()
    gc.freeze()  # a collection would write to pages that the processes share; the run ends soon
    try:
        for number in range(min(process_count, len(session.items))):
            child = Child(session.items[number::process_count])
            children[child.results] = child
        while children:
            with selectors.DefaultSelector() as selector:
                for results in children:
                    selector.register(results, selectors.EVENT_READ)
                ready = [key.fd for key, _ in selector.select()]
            for results in ready:
                _receive(session, children, results)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
    finally:
        for child in children.values():
            child.end(kill=True)


def _receive(session: pytest.Session, children: dict[int, Child], results: int) -> None:
    child = children[results]
    data = os.read(results, READ_BYTES)
    for serialized in child.reports(data):
        item = child.waiting[0]
        if serialized == {}:
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            continue
        if serialized is None:
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            del child.waiting[0]
            continue
        hook = session.config.hook
        report = hook.pytest_report_from_serializable(config=session.config, data=serialized)
        item.ihook.pytest_runtest_logreport(report=report)
    if data:
        return
    del children[results]
    status = child.end()
    for item in child.waiting:
        report = pytest.TestReport(
            item.nodeid,
            item.location,
            {},
            "failed",
            f"The process that ran this test ended before it, with status {status}.",
            "call",
        )
        item.ihook.pytest_runtest_logreport(report=report)


def _run(items: Sequence[pytest.Item], results: int) -> None:
    """Runs tests in a forked process, and writes the reports."""
    config = items[0].config
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:  # all processes would write into the same files
        capture.stop_global_capturing()
        capture.start_global_capturing()
    for item, following in zip(items, [*items[1:], None]):
        _write(results, {})
        for report in runtestprotocol(item, nextitem=following, log=False):
            _write(results, config.hook.pytest_report_to_serializable(config=config, report=report))
        _write(results, None)


def _write(results: int, value: dict[str, Any] | None) -> None:
    data = pickle.dumps(value)
    data = LENGTH.pack(len(data)) + data
    while data:
        data = data[os.write(results, data) :]
