"""The compiled module is small: whoever changes the broker can read all of it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LINES_MAX = 800


def test_the_compiled_module_is_small():
    """Its C files together, with comments. Work that is done once for a batch belongs in Python."""
    files = [*ROOT.glob("protocol/native/*.c"), *ROOT.glob("protocol/native/*.h")]
    lines = {file.name: len(file.read_text().splitlines()) for file in files}
    assert lines
    assert LINES_MAX > sum(lines.values()), lines
