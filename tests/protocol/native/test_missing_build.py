"""A source tree in which nothing was compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["{package}.native.compiled"] = None
import {user}
"""


@pytest.mark.parametrize(
    ("package", "user"), [("protocol", "protocol.codec"), ("storage", "storage.sqlite.store")]
)
def test_the_error_says_how_to_compile(package: str, user: str):
    """It is the first thing that a developer sees who has not run make."""
    command = [sys.executable, "-c", PROGRAM.format(package=package, user=user)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 1 == done.returncode
    assert "python setup.py build_ext --inplace" in done.stderr.splitlines()[-1]
