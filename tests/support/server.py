"""A broker in its own process, for tests, measurements and crash runs.

Starts, watches, kills and restarts `python -m peeklock serve`. Ports stay the same over restarts,
and no process outlives its `with` block.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from protocol.identity import sas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
"""Where `python -m peeklock` finds the packages."""

HOST = "127.0.0.1"
MODULE = "peeklock"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.005
LOG_TAIL_CHARACTERS = 8_000


class BrokerFailed(Exception):
    """The broker did not start, did not stop or refused a request; the text ends with its log."""


def free_ports(count: int) -> list[int]:
    """Returns different ports on which no process listens now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


FOR_THE_ROOT_KEY = {"/metrics", "/$peeklock/clock"}
"""Requests that need a token in strict mode."""


def root_token() -> str:
    """Returns a token for the whole broker, which stays valid when the clock is moved."""
    return sas.make(f"sb://{HOST}/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", 1 << 40)


class BrokerProcess:
    """`with BrokerProcess(config={...}) as broker:` runs a broker until the block ends.

    `config` is a path, or the content of a config file as plain data. `storage` is a storage URL;
    give a file to keep messages over `restart()`. `testing_api` opens the movable clock.
    """

    def __init__(
        self,
        *,
        config: Path | Mapping[str, Any] | None = None,
        storage: str = "memory:",
        testing_api: bool = True,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        prefix: Sequence[str] = (),
        ready_timeout_s: float = READY_TIMEOUT_S,
        host: str = HOST,
        amqp_port: int | None = None,
    ) -> None:
        self.host = host
        self.amqp_port, self.http_port = free_ports(2)
        if amqp_port is not None:
            self.amqp_port = amqp_port
        self.storage = storage
        self.ready_after_s = 0.0
        """From the start of the process to the first 200 of /health."""
        self._ready_timeout_s = ready_timeout_s
        self._launched_s = 0.0
        self._folder = tempfile.TemporaryDirectory(prefix="peeklock-test-")
        self._log_path = Path(self._folder.name) / "broker.log"
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # Where no bytecode is written, every start would compile the broker again.
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PEEKLOCK_") and name != "PYTHONDONTWRITEBYTECODE"
        }
        if testing_api:
            self._environment["PEEKLOCK_TESTING_API"] = "true"
        self._environment.update(environment or {})
        self._command = [*prefix, python, "-m", MODULE, "serve", "--host", host]
        self._command += ["--amqp-port", str(self.amqp_port), "--http-port", str(self.http_port)]
        self._command += ["--storage", storage]
        if config is not None:
            self._command += ["--config", str(self._config_file(config))]
        self._command += arguments

    def _config_file(self, config: Path | Mapping[str, Any]) -> Path:
        if isinstance(config, Path):
            return config
        path = Path(self._folder.name) / "config.json"
        path.write_text(json.dumps(config, indent=2))
        return path

    def use_module(self, module: str = MODULE) -> None:
        """Start `python -m module` from now on: the broker, or a broker that a test has changed."""
        self._command[self._command.index("-m") + 1] = module

    # ---- start and stop ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            self._folder.cleanup()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None:
            print(self.log_tail(), file=sys.stderr)
        self._folder.cleanup()

    def start(self) -> None:
        """Start the process and wait until it is healthy."""
        self.launch()
        self.wait_until_healthy()

    def launch(self) -> None:
        """Start the process without waiting for it."""
        assert self._process is None, "the broker is running already"
        self._log = self._log_path.open("ab")
        self._launched_s = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def wait_until_healthy(self) -> None:
        """Wait for the first 200 of /health. If it does not come, the process is ended."""
        assert self._process is not None, "the broker was not launched"
        while not self.is_healthy():
            if self._process.poll() is not None:
                code = self._process.returncode
                self._forget()
                raise self._failure(f"the broker ended with {code} at start")
            if time.monotonic() - self._launched_s > self._ready_timeout_s:
                self.close()
                raise self._failure(f"the broker was not healthy after {self._ready_timeout_s} s")
            time.sleep(POLL_INTERVAL_S)
        self.ready_after_s = time.monotonic() - self._launched_s

    def kill(self) -> None:
        """Send SIGKILL: the process cannot finish anything."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> int:
        """Send SIGTERM, as an orchestrator does. Returns the exit code."""
        return self.stop(signal.SIGTERM)

    def stop(self, number: signal.Signals) -> int:
        """Send a signal that ends the process. Returns the exit code."""
        return self._signal(number)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal without waiting."""
        assert self._process is not None, "the broker is not running"
        self._process.send_signal(number)

    def wait_for_log(self, text: str) -> None:
        """Wait until the log contains this text."""
        deadline_s = time.monotonic() + self._ready_timeout_s
        while text not in self.log_text():
            if time.monotonic() > deadline_s:
                raise self._failure(f"the log never said {text!r}")
            time.sleep(POLL_INTERVAL_S)

    def wait(self) -> int:
        """Wait until the process ends by itself. Returns the exit code."""
        assert self._process is not None, "the broker was not launched"
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._failure("the broker did not end") from None
        self._forget()
        return code

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again on the same ports and storage."""
        if self.is_running:
            self.terminate()
        self.start()

    def close(self) -> None:
        """End the process if it still runs."""
        if self.is_running:
            self.kill()
        self._forget()

    def _signal(self, number: signal.Signals) -> int:
        assert self._process is not None, "the broker is not running"
        self._process.send_signal(number)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self._failure(f"the broker ignored {number.name}") from None
        self._forget()
        return code

    def _forget(self) -> None:
        self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    # ---- what it is ---------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def connection_string(self) -> str:
        return self._connection_string(self.amqp_port)

    @property
    def admin_connection_string(self) -> str:
        """The connection string for administration clients, which use HTTP."""
        return self._connection_string(self.http_port)

    def _connection_string(self, port: int) -> str:
        return (
            f"Endpoint=sb://{self.host}:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )

    def log_text(self) -> str:
        """Everything that the broker has logged, over all its runs."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def log_tail(self) -> str:
        return f"--- broker log ---\n{self.log_text()[-LOG_TAIL_CHARACTERS:]}\n--- end ---"

    def _failure(self, text: str) -> BrokerFailed:
        return BrokerFailed(f"{text}\n{self.log_tail()}")

    # ---- HTTP requests ------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, timeout_s: float = 10.0
    ) -> tuple[int, bytes]:
        """Send one HTTP request, with `body` as JSON. Returns the status and the content."""
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=timeout_s)
        try:
            content = None if body is None else json.dumps(body)
            headers = {} if body is None else {"Content-Type": "application/json"}
            if path in FOR_THE_ROOT_KEY:
                headers["Authorization"] = root_token()
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def is_healthy(self) -> bool:
        try:
            return self.request("GET", "/health", timeout_s=2.0)[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def advance_clock(self, advance_ms: int) -> None:
        """Move the broker's clock ahead. Locks, time to live and schedules follow."""
        status, content = self.request("POST", "/$peeklock/clock", {"advance_ms": advance_ms})
        if status >= http.HTTPStatus.BAD_REQUEST:
            raise self._failure(f"the clock did not move: {status} {content!r}")
