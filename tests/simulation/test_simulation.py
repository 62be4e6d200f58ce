"""The whole broker from some seeds, the same run from the same seed, and mistakes that are found."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.simulation.findings import sentences
from tests.simulation.injected_bugs import INJECTED_BUGS, full_disks
from tests.simulation.simulation_run import run_seed

SEEDS = 32
PARTS = 4
BUG_SEEDS = 300
"""Each mistake shows within far fewer."""


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_is_kept(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        result = run_seed(seed)
        broken = "\n".join(sentences(result.findings))
        assert not broken, f"{broken}\npython -m tests.simulation.run --seeds 1 --seed {seed}"
        assert result.events


@cache
def hash_of(seed: int) -> str:
    """Returns the hash of a run in this process; that it can be repeated here, too, is tested with
    the failed runs of `test_findings.py`."""
    return run_seed(seed).hash


@pytest.mark.parametrize("seed", [6, 37])
def test_a_seed_gives_the_same_run_in_every_process(seed: int) -> None:
    """Neither hashes of texts nor addresses of objects decide anything."""
    program = f"from tests.simulation.simulation_run import run_seed; print(run_seed({seed}).hash)"
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == hash_of(seed)


def test_another_seed_gives_another_run() -> None:
    assert hash_of(6) != hash_of(37)


@pytest.mark.parametrize("name", INJECTED_BUGS)
def test_a_mistake_in_the_broker_is_found(name: str) -> None:
    with INJECTED_BUGS[name]():
        assert any(run_seed(seed).findings for seed in range(BUG_SEEDS))


def test_full_disks_are_no_mistake_of_the_broker() -> None:
    """They only make it probable that one is found."""
    with full_disks():
        assert not any(run_seed(seed).findings for seed in range(5))
