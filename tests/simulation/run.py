"""Simulate the whole broker from many seeds: `python -m tests.simulation.run --seeds N [--seed S]`.

A run that fails is printed with its seed: each broken promise in a sentence, then the last events before
the first of them. `--seed S --seeds 1 --verbose` shows every event of it again. It ends with 1 if a
promise was broken.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import textwrap
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.findings import sentences
from tests.simulation.injected_bugs import INJECTED_BUGS
from tests.simulation.simulation_run import Result, run_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SEEDS = 100
SEEDS_PER_PROCESS = 50
"""A simulated kill takes no memory back that Proton had for the broker's connections."""
DETAILS_CHARACTERS = 3_000
TELL_EVERY_S = 10.0


def run_one(
    injected_bug: str | None, seed: int, show_line: Callable[[str], None] | None = None
) -> Result:
    """A run, with or without a mistake built into the broker."""
    with INJECTED_BUGS[injected_bug]() if injected_bug is not None else nullcontext():
        return run_seed(seed, show_line)


def show_all(injected_bug: str | None, seed: int) -> bool:
    """Print what is wrong in a run, then every event of it; true if it failed."""
    result = run_one(injected_bug, seed)
    show_findings(result)
    again = run_one(injected_bug, seed, print)
    print(f"seed {seed}: {again.counts}")
    for finding in result.findings:
        print(f"  {finding.sentence}")
    return bool(result.findings)


def results(
    first: int, count: int, processes: int, injected_bug: str | None = None
) -> Iterator[Result]:
    """The runs of so many seeds, as they end."""
    seeds = range(first, first + count)
    run = partial(run_one, injected_bug)
    if processes == 1 and count <= SEEDS_PER_PROCESS:
        yield from map(run, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(run, seeds)


def show_findings(result: Result) -> None:
    """What was promised and what was found, before anything else."""
    print(f"\nseed {result.seed} {'FAILED' if result.findings else 'ok'}")
    for sentence in sentences(result.findings):
        print(f"  {sentence}")
    print(f"  run {result.hash}, faults: {', '.join(result.faults) or 'none'}")
    for details in dict.fromkeys(finding.details for finding in result.findings):
        if details:
            print(textwrap.indent(details[-DETAILS_CHARACTERS:], "    "))


def show_failure(result: Result, again: Result) -> None:
    """A run that failed, and whether it is the same run when it is repeated."""
    show_findings(result)
    print(f"  the last {len(result.lines)} events before the first of it was found:")
    for line in result.lines:
        print(f"    {line}")
    is_same = again.hash == result.hash and again.findings == result.findings
    repeated = "the same run" if is_same else f"ANOTHER run, {again.hash}: the seed does not decide"
    print(f"  repeated here: {repeated}")
    command = f"python -m tests.simulation.run --seeds 1 --seed {result.seed} --verbose"
    print(f"  again: {command}", flush=True)


def run_many(first: int, count: int, processes: int, injected_bug: str | None = None) -> list[int]:
    """Runs many seeds and prints the results. Returns the seeds that failed."""
    begun_s = told_s = time.monotonic()
    failed: list[int] = []
    done, virtual_s, events = 0, 0.0, 0
    totals: Counter[str] = Counter()
    for result in results(first, count, processes, injected_bug):
        done += 1
        virtual_s += result.virtual_s
        events += result.events
        totals.update(result.counts)
        totals.update(f"fault: {fault}" for fault in result.faults)
        if result.findings:
            failed.append(result.seed)
            show_failure(result, run_one(injected_bug, result.seed))
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
    if failed:
        print(f"failed seeds: {', '.join(map(str, failed))}", flush=True)
    return failed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="print every event")
    parser.add_argument(
        "--inject-bug",
        choices=INJECTED_BUGS,
        help="build a mistake into the broker: it must be found",
    )
    options = parser.parse_args(arguments)
    if options.verbose:
        seeds = range(options.seed, options.seed + options.seeds)
        return int(sum(show_all(options.inject_bug, seed) for seed in seeds) > 0)
    failed = run_many(options.seed, options.seeds, options.processes, options.inject_bug)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
