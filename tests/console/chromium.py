"""Finds Debian's Chromium, and installs it if the tests run as root and it is missing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium-headless-shell", "chromium")
"""The first has no window, which tests do not need. Not every release of Debian has it."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # Names of web sites that resolve to this machine, for the tests of DNS rebinding.
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)


def executable() -> str:
    """Returns the path of the browser. Skips the tests if there is none and none can be installed."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "peeklock-chromium.lock").open("w") as lock:
            fcntl.flock(
                lock, fcntl.LOCK_EX
            )  # the processes of one run must not install it at the same time
            found = _found() or _installed()
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    return found


def _found() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def _installed() -> str | None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["update"],
        *(["install", "-y", "--no-install-recommends", one] for one in PACKAGES),
    ):
        subprocess.run(
            ["apt-get", "-q", *command], env=environment, check=False, stdout=subprocess.DEVNULL
        )
        if _found() is not None:
            break
    return _found()
