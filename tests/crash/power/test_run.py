"""A short run of the power cuts, which tests the run itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.power import run as power

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_broker_that_was_killed_twice_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The first run ends in order, the others are killed, and each image is judged."""
    monkeypatch.setattr(power, "RUNS", 3)
    monkeypatch.setattr(power, "RUN_S", (0.5, 0.8))
    report = power.run(5, 1, tmp_path, None)
    assert report.is_clean, report.violations
