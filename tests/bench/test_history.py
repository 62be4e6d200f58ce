"""The measurement of the history records what it says, and the history takes the smaller part of a message's time."""

from __future__ import annotations

import pytest

from tests.bench.history import MeasuredCore, measure


def test_every_measured_message_is_sent_locked_and_completed():
    core, without = MeasuredCore(records=True), MeasuredCore(records=False)
    core.pass_through(10, 5)
    without.pass_through(10, 5)
    history = core.histories.of("ns")
    assert history is not None
    kinds = [view.batch.kind for batch in history.after(0, 100) for view in batch.expand()]
    assert {"sent": 50, "locked": 50, "completed": 50} == {
        str(kind): kinds.count(kind) for kind in kinds
    }
    nothing = without.histories.of("ns")
    assert nothing is not None
    assert 0 == nothing.last_number


@pytest.mark.parametrize("batch", [1, 100])
def test_the_history_takes_less_than_the_core_itself(batch):
    """By processor time, so also on a busy machine. The figures are in ARCHITECTURE.md."""
    without, recorded = measure(batch, rounds=5, messages=2_000)
    assert recorded - without < 0.7 * without
