"""Simulate the whole broker from many seeds: `python -m tests.simulation.run --seeds N [--seed S]`.

A run that fails is printed with its seed; `--seed S --seeds 1 --verbose` shows every event of it again.
It ends with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.world import Result, run_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SEEDS = 100
SEEDS_PER_PROCESS = 50
VIOLATIONS_SHOWN = 5
TELL_EVERY_S = 10.0


def results(first: int, count: int, processes: int) -> Iterator[Result]:
    """The runs of so many seeds, as they end."""
    seeds = range(first, first + count)
    if processes == 1:
        yield from map(run_seed, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(run_seed, seeds)


def show(result: Result) -> None:
    print(f"\nseed {result.seed} FAILED, {result.hash}, faults: {', '.join(result.faults)}")
    for line in result.lines:
        print(f"  {line}")
    for violation in result.violations[:VIOLATIONS_SHOWN]:
        print(f"  VIOLATION: {violation}")
    print(f"  again: python -m tests.simulation.run --seeds 1 --seed {result.seed} --verbose")


def run_many(first: int, count: int, processes: int) -> list[int]:
    """Run and tell; the seeds that failed."""
    begun_s = told_s = time.monotonic()
    failed: list[int] = []
    done, virtual_s, events = 0, 0.0, 0
    totals: Counter[str] = Counter()
    for result in results(first, count, processes):
        done += 1
        virtual_s += result.virtual_s
        events += result.events
        totals.update(result.counts)
        totals.update(f"fault: {fault}" for fault in result.faults)
        if result.violations:
            failed.append(result.seed)
            show(result)
        if time.monotonic() - told_s > TELL_EVERY_S:
            told_s = time.monotonic()
            print(f"  {done} of {count} seeds, {len(failed)} failed", flush=True)
    for name, total in sorted(totals.items()):
        print(f"  {total:>10,} {name}")
    seconds = time.monotonic() - begun_s
    print(
        f"{'FAILED' if failed else 'ok'}: {done} seeds from {first}, {len(failed)} failed, "
        f"{events:,} events, {virtual_s:,.0f} virtual seconds in {seconds:.1f} s "
        f"({seconds / max(done, 1):.3f} s a seed)"
    )
    return failed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="print every event")
    options = parser.parse_args(arguments)
    if options.verbose:
        for seed in range(options.seed, options.seed + options.seeds):
            result = run_seed(seed, print)
            print(f"seed {seed}: {result.hash} {result.faults} {result.counts}")
            for violation in result.violations:
                print(f"VIOLATION: {violation}")
        return 0
    return 1 if run_many(options.seed, options.seeds, options.processes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
