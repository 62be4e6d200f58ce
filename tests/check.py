"""What CI runs: `python -m tests.check`. Every step runs, whatever became of the one before.

`--static` leaves the tests out; all other arguments go to pytest. Settings of every tool are in
pyproject.toml, so each can be called by hand and says the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

STATIC: dict[str, list[str | Path]] = {
    "lint": [BIN / "ruff", "check", "."],
    "format": [BIN / "ruff", "format", "--check", "."],
    "types": [BIN / "mypy", "--strict"],
    "layers": [BIN / "lint-imports"],
}
TESTS = [sys.executable, "-m", "pytest", "--numprocesses=4", "--dist=loadfile"]
"""More processes than cores: tests through real clients mostly wait for those to wake up."""
CLIENTS: list[str | Path] = [sys.executable, "-m", "tests.clients.run", "--short"]
"""A few scenarios of every stock client; `make clients` runs them all. A client whose tools are not
here is named and left out, but where `CI=true` that is a failure."""


def main(arguments: list[str]) -> int:
    steps = dict(STATIC)
    if "--static" not in arguments:
        steps["tests"] = [*TESTS, *arguments]
    if not arguments:
        steps["clients"] = CLIENTS
    results = {name: _run(name, command) for name, command in steps.items()}
    print("\n--- summary")
    for name, (code, seconds) in results.items():
        print(f"{name:8} {'ok' if code == 0 else 'FAILED':6} {seconds:6.1f} s")
    return int(any(code for code, _ in results.values()))


def environment() -> dict[str, str]:
    """Returns the environment of every step: with bytecode written, processes start twice as fast."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _run(name: str, command: list[str | Path]) -> tuple[int, float]:
    print(f"\n--- {name}", flush=True)
    begin_s = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False, env=environment()).returncode
    return code, time.monotonic() - begin_s


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
