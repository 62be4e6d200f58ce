"""What a measurement runs in: a plain environment, a quiet disk, and a Python that is known to be optimised or not."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.bench.observe import NOT_OPTIMISED, OPTIMISED, python_build
from tests.bench.plain_environment import make_plain_environment
from tests.bench.quiet_disk import DiskState, QuietDisk
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path


def test_the_plain_environment_has_only_what_the_broker_needs(tmp_path: Path):
    """It runs there, and tools of the developers cannot be imported."""
    python = make_plain_environment(tmp_path)
    tried = [
        subprocess.run([python, "-c", f"import {name}"], check=False, capture_output=True)
        for name in ("structlog", "rich", "pytest")
    ]
    assert [0, 1, 1] == [one.returncode for one in tried]
    with BrokerProcess(python=str(python), config={"queues": {"q": {}}}) as broker:
        assert broker.is_healthy()


class Disk(QuietDisk):
    """A disk whose syncs take a given time."""

    def __init__(self, folder: Path, checks: list[tuple[float, float]]) -> None:
        super().__init__(folder)
        self.checks = checks

    def _check(self) -> tuple[float, float]:
        return self.checks.pop(0)


def test_a_disk_is_quiet_after_two_checks_without_a_slow_sync(tmp_path: Path):
    """Slow are syncs that take several times the median of the fastest check."""
    disk = Disk(
        tmp_path, [*[(90.0, 120.0)] * 4, (1.0, 4.9), (1.0, 5.1), (1.0, 4.9), (2.0, 4.8), (9.0, 9.0)]
    )
    assert (2.0, 4.8) == disk.wait()[:2]


def test_the_wait_for_a_quiet_disk_ends(tmp_path: Path):
    """The row then says how slow the disk was."""
    disk = Disk(tmp_path, [*[(1.0, 1.0)] * 6, (50.0, 90.0), (1.0, 1.0)])
    disk.wait()
    assert (50.0, 90.0) == disk.wait(most_s=-1)[:2]


def test_the_disk_of_this_machine_is_checked(tmp_path: Path):
    """With syncs of a file in the folder."""
    state = QuietDisk(tmp_path).wait(most_s=0)
    assert isinstance(state, DiskState)
    assert 0 < state.p50_ms <= state.p99_ms


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'--prefix=/opt' '--enable-optimizations' '--with-lto'", OPTIMISED),
        ("'--prefix=/usr' '--with-wheel-pkg-dir=/usr/share/python-wheels/'", OPTIMISED),
        ("'--prefix=/opt' '--enable-shared'", NOT_OPTIMISED),
        ("", NOT_OPTIMISED),
    ],
)
def test_the_options_of_a_python_tell_whether_it_is_optimised(options: str, expected: str):
    """As pyenv, Debian and others build it."""
    assert expected == python_build(options)
