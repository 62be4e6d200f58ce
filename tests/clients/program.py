"""A client of the matrix: what its folder says, how it is made ready, what its program reports.

Owns `client.json` and the lines between runner and program (SCENARIOS.md); judges nothing.
No program outlives its time limit, nor do the processes it has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FOLDER = Path(__file__).resolve().parent
LIMIT_S = 600
FAULTS = ("fault-server-busy", "fault-detach", "fault-drop-before", "fault-drop-after")
"""The scenarios of a program that is started with the argument `faults`."""
SHOWN_CHARACTERS = 6_000


class ProgramFailed(Exception):
    """A command could not do its work; the text is what it had to say."""


class Outcome(NamedTuple):
    """What became of a scenario."""

    outcome: str
    """`passed`, `failed` or `skipped`."""
    detail: str


@dataclass
class Report:
    """What a program said while it ran."""

    versions: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    problem: str = ""
    """Why the program itself failed, whatever it reported."""
    output: str = ""
    """The end of all else that it wrote."""

    def count(self, outcome: str) -> int:
        """How many scenarios ended so."""
        return sum(one.outcome == outcome for one in self.outcomes.values())

    @property
    def is_good(self) -> bool:
        return not self.problem and not self.count("failed")


@dataclass(frozen=True)
class Client:
    """`client.json`, and where it lies."""

    folder: Path
    name: str
    needs: Sequence[str]
    install: Sequence[str]
    run: Sequence[str]
    installed: str | None = None
    lock: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = LIMIT_S
    faults: bool = False
    """Whether its program has scenarios with faults, which `FAULTS` starts."""

    @classmethod
    def load(cls, folder: Path) -> Client:
        return cls(folder=folder, **json.loads((folder / "client.json").read_text()))

    def missing(self) -> list[str]:
        """What this machine has not got."""
        return [program for program in self.needs if shutil.which(program) is None]

    def make_ready(self) -> None:
        """Fetch and build, unless that has been done."""
        if self._is_ready():
            return
        done = subprocess.run(
            self.install, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            text = f"{done.stdout}\n{done.stderr}".strip()[-SHOWN_CHARACTERS:]
            raise ProgramFailed(f"{' '.join(self.install)} ended with {done.returncode}\n{text}")

    def _is_ready(self) -> bool:
        if self.installed is None or self.lock is None:
            return False
        installed, lock = self.folder / self.installed, self.folder / self.lock
        return installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        restart: Callable[[], None],
        on_outcome: Callable[[str, Outcome], None],
    ) -> Report:
        """Run the program to its end, or to its time limit."""
        own = {
            name: Template(text).substitute(environment) for name, text in self.environment.items()
        }
        late = threading.Event()
        with (
            tempfile.TemporaryFile("w+", errors="replace") as errors,
            subprocess.Popen(
                [*self.run, *arguments],
                cwd=self.folder,
                env={**os.environ, **environment, **own},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="replace",
                start_new_session=True,  # so that its children can be ended with it
            ) as process,
        ):

            def end_late() -> None:
                late.set()
                _end(process)

            timer = threading.Timer(self.limit_s, end_late)
            timer.start()
            try:
                report = _listen(process, restart, on_outcome)
            finally:
                timer.cancel()
                _end(process)
            errors.seek(0)
            report.output = f"{report.output}\n{errors.read()}".strip()[-SHOWN_CHARACTERS:]
        if late.is_set():
            report.problem = f"was not done after {self.limit_s:g} s"
        return report


def all_clients(names: Sequence[str]) -> list[Client]:
    """Those named, or every one there is: .NET, which most users have, and then by their names."""
    folders = sorted(path.parent for path in FOLDER.glob("*/client.json"))
    clients = sorted(map(Client.load, folders), key=lambda client: client.name != "dotnet")
    unknown = set(names) - {client.name for client in clients}
    if unknown:
        raise ProgramFailed(f"there is no client {', '.join(sorted(unknown))}")
    return [client for client in clients if not names or client.name in names]


def _listen(
    process: subprocess.Popen[str],
    restart: Callable[[], None],
    on_outcome: Callable[[str, Outcome], None],
) -> Report:
    report = Report()
    assert process.stdin is not None
    assert process.stdout is not None
    other = []
    for line in process.stdout:
        said = _said(line)
        if "scenario" in said:
            outcome = Outcome(str(said.get("outcome")), str(said.get("detail") or ""))
            report.outcomes[said["scenario"]] = outcome
            on_outcome(said["scenario"], outcome)
        elif "versions" in said:
            report.versions.update(said["versions"])
        elif said.get("control") == "restart":
            restart()
            _answer(process.stdin, "restarted")
        else:
            other.append(line)
    code = process.wait()
    if code:
        report.problem = f"the program ended with {code}"
    report.output = "".join(other)
    return report


def _said(line: str) -> dict[str, Any]:
    """A line as the object it is; anything else is nothing to us."""
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _answer(program: IO[str], text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        program.write(f"{text}\n")
        program.flush()


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
