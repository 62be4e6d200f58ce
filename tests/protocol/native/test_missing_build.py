"""A source tree in which nothing was compiled."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["protocol.native.compiled"] = None
import protocol.codec
"""


def test_the_error_says_how_to_compile():
    """It is the first thing that a developer sees who has not run make."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 1 == done.returncode
    assert "python setup.py build_ext --inplace" in done.stderr.splitlines()[-1]
