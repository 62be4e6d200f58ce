"""`.ci/run` finds a .NET SDK beside the checkout, and only where the machine has none."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.support.server import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def program(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def dotnet_found(folder: Path) -> str:
    """Which `dotnet` the tests would call; `make` is one that only tells that."""
    tools = folder / "tools"
    for name in ("bash", "dirname", "sh", "env"):
        tools.mkdir(exist_ok=True)
        (tools / name).symlink_to(str(shutil.which(name)))
    program(tools / "make", 'echo "$@: $(command -v dotnet)"')
    script = folder / "project" / ".ci" / "run"
    script.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / ".ci" / "run", script)
    environment = {**os.environ, "PATH": str(tools)}
    done = subprocess.run(
        [script], env=environment, capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout.strip()


def test_an_sdk_beside_the_checkout_is_used(tmp_path):
    """Without it the .NET client could not run."""
    program(tmp_path / "shared" / "dotnet" / "bin" / "dotnet")
    assert f"test: {tmp_path}/project/../shared/dotnet/bin/dotnet" == dotnet_found(tmp_path)


def test_an_installed_sdk_comes_first(tmp_path):
    """What the developer has is what the developer wants."""
    program(tmp_path / "tools" / "dotnet")
    program(tmp_path / "shared" / "dotnet" / "bin" / "dotnet")
    assert f"test: {tmp_path}/tools/dotnet" == dotnet_found(tmp_path)


def test_a_machine_without_any_is_left_alone(tmp_path):
    """The runner of the clients says what is missing."""
    assert "test:" == dotnet_found(tmp_path)
