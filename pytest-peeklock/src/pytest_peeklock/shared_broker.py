"""One broker for a test run, which all processes of pytest-xdist use.

The first process that needs the broker starts it and writes its address into a folder that they share. The process that
the user started stops it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_peeklock.broker_command import BrokerAddress, is_healthy
from pytest_peeklock.errors import BrokerNotStarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_peeklock.broker_command import ContainerImage, LocalCommand

POLL_INTERVAL_S = 0.01
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0


class SharedBroker:
    """The broker of a test run."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        """If this process has started it."""
        self._starting: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        """Returns the folder that the processes of the run share."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="pytest-peeklock-"))
        return self._folder

    @property
    def log_path(self) -> Path:
        """Returns where the broker writes its log."""
        return self.folder / "broker.log"

    @property
    def _result(self) -> Path:
        return self.folder / "broker.json"

    def address(self, find: Callable[[], LocalCommand | ContainerImage]) -> BrokerAddress:
        """Returns the address of the broker. Starts it if no process has yet. Raises `BrokerNotStarted`."""
        try:
            os.close(os.open(self.folder / "starting", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return self._wait_for_address()
        result: dict[str, object]
        try:
            address, self._process = find().start(self.log_path)
            result = asdict(address)
        except BrokerNotStarted as error:
            result = {"error": str(error)}
        written = self.folder / "broker.json.part"
        written.write_text(json.dumps(result))
        written.replace(self._result)  # others see all of it or nothing
        return self._wait_for_address()

    def begin(self, find: Callable[[], LocalCommand | ContainerImage]) -> None:
        """Starts the broker while this process does something else. `address` returns or raises how that ended."""
        self._starting = threading.Thread(target=self._begin, args=(find,), daemon=True)
        self._starting.start()

    def _begin(self, find: Callable[[], LocalCommand | ContainerImage]) -> None:
        with suppress(BrokerNotStarted):  # the first test that needs it says so
            self.address(find)

    def wait_until_begun(self) -> None:
        """Waits until `begin` has ended. A process must not fork while another thread of it runs."""
        if self._starting is not None:
            self._starting.join()
            self._starting = None

    def _wait_for_address(self) -> BrokerAddress:
        ends_s = time.monotonic() + START_TIMEOUT_S
        while not self._result.exists():
            if time.monotonic() > ends_s:
                raise BrokerNotStarted("Another process of this run did not start the broker.")
            time.sleep(POLL_INTERVAL_S)
        found = json.loads(self._result.read_text())
        if "error" in found:
            raise BrokerNotStarted(found["error"])
        return BrokerAddress(**found)

    def stop(self) -> None:
        """Stops the broker if one was started, and deletes the folder."""
        self.wait_until_begun()
        if self._folder is None:
            return
        with suppress(BrokerNotStarted):
            if self._result.exists():
                self._stop(self._wait_for_address())
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _stop(self, address: BrokerAddress) -> None:
        if address.container is not None and address.container_program is not None:
            command = [address.container_program, "rm", "--force", address.container]
            subprocess.run(command, capture_output=True, check=False)  # noqa: S603 -- as started
        if address.process_id is None:
            return
        with suppress(ProcessLookupError):
            os.kill(address.process_id, signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            return
        # It is the child of a process of pytest-xdist that has ended, so there is nothing to wait for but its port.
        ends_s = time.monotonic() + STOP_TIMEOUT_S
        while is_healthy(address.url):
            if time.monotonic() > ends_s:
                os.kill(address.process_id, getattr(signal, "SIGKILL", signal.SIGTERM))
                return
            time.sleep(POLL_INTERVAL_S)
