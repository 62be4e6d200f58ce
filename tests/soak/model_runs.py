"""The model for a long time: many runs with new seeds and different lengths.

Counts and prints; `tests/model` has the runs and their checks. Each run has the seed of the
previous one plus one, so that one number repeats a failure.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from typing import NamedTuple

from storage.memory import MemoryStore
from tests.model.random_choices import SeededChoices
from tests.model.random_commands import WEIGHTS, RandomCommands
from tests.model.test_replay import Follower

LENGTHS = (40, 40, 40, 200, 200, 2_000)
"""Steps of a run: short ones begin anew often, long ones wear things out."""
RESTORED_ONE_IN = 4
"""So many runs are compared with a restored namespace after every turn, too."""
FLOODED_ONE_IN = 30
FLOODED_STEPS = 50
"""So many runs move thousands of messages at once, in not so many steps."""
TELL_EVERY_S = 10.0
DIALOGUE_LINES = 40


class Tally(NamedTuple):
    """What was done."""

    runs: int
    steps: int
    turns: int
    failed: bool
    seconds: float


class Failure(Exception):
    """A run found a difference; the text has all to bring it back."""


def run_many(seed: int, steps: int, runs: int | None = None) -> Tally:
    """Until there were so many steps, or so many runs; ends at the first failure."""
    begun_s = told_s = time.monotonic()
    done_runs = done_steps = turns = 0
    moved: Counter[str] = Counter()
    failed = False
    while done_steps < steps if runs is None else done_runs < runs:
        try:
            run_steps, run_turns = run_one(seed + done_runs, moved)
        except Failure as failure:
            print(failure)
            failed = True
            break
        done_runs += 1
        done_steps += run_steps
        turns += run_turns
        if time.monotonic() - told_s > TELL_EVERY_S:
            told_s = time.monotonic()
            print(f"  {done_runs} runs, {done_steps} steps, {turns} turns", flush=True)
    for name, count in moved.most_common():
        print(f"  {count:>8} {name.replace('_', ' ')}")
    return Tally(done_runs, done_steps, turns, failed, time.monotonic() - begun_s)


def run_one(seed: int, moved: Counter[str]) -> tuple[int, int]:
    """One run; its steps and turns. Raises `Failure`."""
    choices = SeededChoices(seed)
    steps = choices.pick(LENGTHS)
    floods = choices.rarely(FLOODED_ONE_IN)
    steps = FLOODED_STEPS if floods else steps
    follower = Follower(MemoryStore()) if choices.rarely(RESTORED_ONE_IN) else None
    names = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
    moves = RandomCommands(choices, follower, floods=floods)
    made = 0
    try:
        for _ in range(steps):
            name = choices.pick(names)
            made += 1
            moved[name] += 1
            getattr(moves, name)(choices)
        moves.end_turn()
        moves.comparison.finish()
    except Exception as error:
        lines = [
            *moves.comparison.log[-DIALOGUE_LINES:],
            "",
            traceback.format_exc(),
            f"failed at step {made} of a run over {', '.join(moves.focus)}",
            f"again: python -m tests.soak.run model --seed {seed} --runs 1",
        ]
        raise Failure("\n".join(lines)) from error
    return steps, moves.comparison.steps
