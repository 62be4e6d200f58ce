"""`make soak`: the model for at least 100,000 random steps, the simulation of the whole broker from
10,000 seeds, a broker under load for minutes, then the delays of a client beside clients that abuse the broker's time or
memory.

`python -m tests.soak.run [model|simulation|broker|neighbours|memory] [--seed N] [--steps N]
[--seeds N] [--minutes M] [--disk]`. The exit code is 1 if anything differed, failed, kept growing, took
too much memory or delayed others too long. Without a seed it chooses a new one and prints it.
"""

from __future__ import annotations

import argparse
import os
import resource
import secrets
import sys

from tests.simulation.run import run_many as simulate_many
from tests.soak.broker_run import GROWTH_ALLOWED_MEGABYTES, run_broker
from tests.soak.memory_abuse import run_memory_abuses
from tests.soak.model_runs import run_many
from tests.soak.noisy_neighbour import run_neighbours

STEPS = 100_000
SEEDS = 10_000
MINUTES = 10.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.run", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("model", "simulation", "broker", "neighbours", "memory", "all"),
        default="all",
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--steps", type=int, default=STEPS, help="of the model, at least")
    parser.add_argument("--runs", type=int, default=None, help="of the model, instead of steps")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of the simulation")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of the broker")
    parser.add_argument("--disk", action="store_true", help="the broker stores in a file")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    failed = False
    if options.what in ("model", "all"):
        failed |= _model(seed, options.steps, options.runs)
    if options.what in ("simulation", "all"):
        print(f"--- simulation, {options.seeds} seeds from {seed}", flush=True)
        failed |= bool(simulate_many(seed, options.seeds, os.cpu_count() or 1))
    if options.what in ("broker", "all"):
        failed |= _broker(seed, options.minutes, on_disk=options.disk)
    if options.what in ("neighbours", "all"):
        print("--- neighbours, on sqlite", flush=True)
        failed |= any(felt.failed for felt in run_neighbours())
    if options.what in ("memory", "all"):
        print("--- memory, on sqlite", flush=True)
        failed |= run_memory_abuses()
    return int(failed)


def _model(seed: int, steps: int, runs: int | None) -> bool:
    print(f"--- model, seed {seed}", flush=True)
    tally = run_many(seed, steps, runs)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{'FAILED' if tally.failed else 'ok'}: seed {seed}, {tally.runs} runs, "
        f"{tally.steps} steps, {tally.turns} turns, {tally.seconds:.0f} s, at most {megabytes:.0f} MB"
    )
    return tally.failed


def _broker(seed: int, minutes: float, *, on_disk: bool) -> bool:
    print(f"--- broker, seed {seed}, {minutes:g} minutes", flush=True)
    watched = run_broker(seed, minutes, on_disk=on_disk)
    print(
        f"{'FAILED' if watched.failed else 'ok'}: {watched.seconds:.0f} s, {watched.acts} acts, "
        f"{watched.messages} messages, {len(watched.failures)} failures, "
        f"{watched.first_megabytes:.1f} MB early and {watched.last_megabytes:.1f} MB late "
        f"(at most {GROWTH_ALLOWED_MEGABYTES:g} MB of growth), {watched.cpu_s:.0f} s of processor"
    )
    return watched.failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
