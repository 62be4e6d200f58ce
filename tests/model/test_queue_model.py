"""The core compared with a naive model, driven by random clients.

Every difference is a failure, which hypothesis shrinks: in answers, deliveries, counts, messages
and invariants. Shrunk failures are kept, with names, in `test_scenarios.py`. The default run is
always the same; `make soak` makes new ones.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.model.random_choices import HypothesisChoices, SeededChoices
from tests.model.random_commands import WEIGHTS, RandomCommands, run_random_commands

NAMES = [name for name, weight in WEIGHTS.items() for _ in range(weight)]

SHORT = settings(
    max_examples=100,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Dialogue(RuleBasedStateMachine):
    """Every step is one move of some client; both sides are compared after each turn."""

    moves: RandomCommands | None = None
    failed = False

    @initialize(data=st.data())
    def begin(self, data):
        self.moves = RandomCommands(HypothesisChoices(data))

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def move(self, data, name):
        assert self.moves is not None
        try:
            getattr(self.moves, name)(HypothesisChoices(data))
        except Exception:
            self.failed = True
            note("\n".join(["", "the dialogue:", *self.moves.comparison.log]))
            raise

    def teardown(self):
        """When all is deleted nothing may be left; a run that has failed has left enough."""
        if self.moves is not None and not self.failed:
            self.moves.end_turn()
            self.moves.comparison.finish()


def test_the_broker_does_what_the_naive_model_does():
    """Few steps, many beginnings, and a small example if anything differs."""
    run_state_machine_as_test(Dialogue, settings=SHORT)


@pytest.mark.parametrize("seed", [*range(12), 77092])
def test_long_runs_agree_too(seed):
    """Many steps over the same entities, from a fixed seed each. In the last one, an entity shows its
    number of locks while the backlog still has to release locks that have ended."""
    choices = SeededChoices(seed)
    moves = RandomCommands(choices)
    run_random_commands(moves, choices, 250)
    moves.comparison.finish()


@pytest.mark.parametrize("seed", [2, 6, 8, 9])
def test_floods_agree_too(seed):
    """Thousands of messages at once: more than one burst, block or read-ahead holds."""
    choices = SeededChoices(seed)
    moves = RandomCommands(choices, floods=True)
    run_random_commands(moves, choices, 25)
    moves.comparison.finish()
