"""Faults built into a commit: they happen at the right call, and all steps exist."""

from __future__ import annotations

import random

import pytest

from tests.crash import failing_steps
from tests.crash.failing_steps import FailingStep
from tests.crash.faults import FileFault, choose


def test_every_part_of_a_commit_is_a_step():
    """A step that was renamed would no longer fail, and nobody would notice."""
    named = {"SqliteStore.commit", "RecordBatch.write", "SqlBatch._write_blocks"}
    assert named <= set(failing_steps.steps())
    for kind, name in failing_steps.OTHER_STEPS:
        assert hasattr(kind, name), f"{kind.__name__} has no {name}"


@pytest.mark.parametrize("for_good", [True, False])
def test_a_step_fails_after_its_calls(for_good: bool):
    """Once, or from then on."""
    step = FailingStep("RecordBatch.write", "MemoryError", calls_before=2, for_good=for_good)
    failing = step._failing(lambda: None)
    outcomes = []
    for _ in range(4):
        try:
            failing()
            outcomes.append("done")
        except MemoryError:
            outcomes.append("failed")
    assert ["done", "done", "failed", "failed" if for_good else "done"] == outcomes


def test_a_seed_chooses_the_same_faults():
    """Of both kinds."""
    first, second = random.Random(3), random.Random(3)
    faults = [choose(first) for _ in range(30)]
    assert faults == [choose(second) for _ in range(30)]
    assert {FileFault, FailingStep} == {type(fault) for fault in faults}
