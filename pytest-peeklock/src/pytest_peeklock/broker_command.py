"""Finds a broker: the command on the PATH, in a virtual environment or beside this Python, or a container image.

A `BrokerCommand` says how to start it and how to learn its address. `shared_broker.py` starts and stops it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_peeklock.errors import BrokerNotStarted
from pytest_peeklock.http_requests import default_connection_string

if TYPE_CHECKING:
    from collections.abc import Sequence

READY_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.01
LOG_TAIL_CHARACTERS = 4_000
SERVE = ("serve", "--storage", "memory:", "--log-format", "json")
CONTAINER_PORT = 5300


@dataclass(frozen=True)
class BrokerAddress:
    """Where a broker answers, and how to stop it."""

    url: str
    connection_string: str
    process_id: int | None = None
    container: str | None = None
    """The id of the container, and the program that runs it, such as `docker`."""
    container_program: str | None = None


@dataclass(frozen=True)
class LocalCommand:
    """The command `peeklock` on this machine."""

    words: Sequence[str]
    arguments: Sequence[str] = ()

    def start(self, log_path: Path) -> tuple[BrokerAddress, subprocess.Popen[bytes]]:
        """Starts a broker on free ports and waits until it is ready. Raises `BrokerNotStarted`."""
        command = [*self.words, *SERVE, "--amqp-port", "0", "--http-port", "0", *self.arguments]
        try:
            with log_path.open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 -- the command that the user named
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in a terminal is for pytest, which then stops the broker.
                    start_new_session=True,
                )
        except OSError as error:
            raise BrokerNotStarted(
                f"`{shlex.join(command)}` could not be started: {error}"
            ) from error
        ends_s = time.monotonic() + READY_TIMEOUT_S
        while (ready := _ready_line(log_path)) is None:
            if process.poll() is not None or time.monotonic() > ends_s:
                process.kill()
                process.wait()
                raise BrokerNotStarted(
                    f"`{shlex.join(command)}` did not become ready. Its log ends with:\n{tail(log_path)}"
                )
            time.sleep(POLL_INTERVAL_S)
        address = BrokerAddress(
            f"http://{ready['http']}", ready["connection_string"], process_id=process.pid
        )
        return address, process


@dataclass(frozen=True)
class ContainerImage:
    """An image that contains the broker. Docker or Podman runs it."""

    image: str
    arguments: Sequence[str] = ()

    def start(self, log_path: Path) -> tuple[BrokerAddress, None]:
        """Starts a container and waits until the broker is ready. Raises `BrokerNotStarted`."""
        program = next((one for one in ("docker", "podman") if shutil.which(one)), None)
        if program is None:
            raise BrokerNotStarted("Neither `docker` nor `podman` is on the PATH.")
        # Every port of the broker serves AMQP and HTTP, so one is enough.
        published = f"127.0.0.1::{CONTAINER_PORT}"
        command = ["run", "--detach", "--rm", "--publish", published, self.image, *SERVE]
        container = _run(program, *command, *self.arguments)
        try:
            address = _run(program, "port", container, str(CONTAINER_PORT)).splitlines()[0]
            url = f"http://{address}"
            ends_s = time.monotonic() + READY_TIMEOUT_S
            while not is_healthy(url):
                if time.monotonic() > ends_s:
                    raise BrokerNotStarted(f"The container of {self.image} did not become ready.")
                time.sleep(POLL_INTERVAL_S)
        except BaseException:
            log_path.write_text(_run(program, "logs", container))
            _run(program, "rm", "--force", container)
            raise
        found = BrokerAddress(
            url,
            default_connection_string(address),
            container=container,
            container_program=program,
        )
        return found, None


def local_command(
    command: str | None, environment: Path | None, arguments: Sequence[str]
) -> LocalCommand:
    """Returns the command that the user named, or the one that is found. Raises `BrokerNotStarted`."""
    if command is not None:
        return LocalCommand(shlex.split(command), arguments)
    folder = "Scripts" if os.name == "nt" else "bin"
    if environment is not None:
        found = shutil.which("peeklock", path=str(environment / folder))
        if found is None:
            raise BrokerNotStarted(f"There is no command `peeklock` in {environment / folder}.")
        return LocalCommand([found], arguments)
    beside = str(Path(sys.executable).parent)
    found = shutil.which("peeklock") or shutil.which("peeklock", path=beside)
    if found is None:
        raise BrokerNotStarted(
            f"The command `peeklock` is neither on the PATH nor in {beside}. Install the broker there, or name it: "
            "peeklock_venv, peeklock_command or peeklock_image in the configuration of pytest, or --peeklock-url for "
            "a broker that runs."
        )
    return LocalCommand([found], arguments)


def is_healthy(url: str) -> bool:
    """Whether a broker answers that it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:  # noqa: S310 -- http
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def tail(log_path: Path) -> str:
    """Returns the end of a log."""
    return log_path.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:] if log_path.exists() else ""


def _ready_line(log_path: Path) -> dict[str, Any] | None:
    for line in log_path.read_text(errors="replace").splitlines(keepends=True):
        if '"ready"' in line and line.endswith("\n"):
            event: dict[str, Any] = json.loads(line)
            if event.get("event") == "ready":
                return event
    return None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise BrokerNotStarted(f"`{shlex.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout.strip()
