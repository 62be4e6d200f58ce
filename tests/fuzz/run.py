"""`make fuzz`: sends hostile bytes to a running broker for a given time, and measures the effect on other clients.

`python -m tests.fuzz.run [--seconds N] [--seed S]`. It ends with 1 if a broker dies, logs a traceback or
a critical error, grows beyond its bound, keeps descriptors when the clients are gone, or if a client
that behaves waits too long. `--case N` sends one case of a seed again and prints it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.observe import resident_megabytes
from tests.fuzz.cases import Cases
from tests.fuzz.clients import VICTIM_QUEUE, Ports, behave, send, send_cases
from tests.fuzz.performatives import QUEUES
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fuzz.clients import Round

SECONDS = 60.0
ATTACKERS = 1
QUIET_S = 2.0
"""The well-behaved client is alone for so long first, to know what this machine can do."""
MOST_MEGABYTES = 300.0
VICTIM_P99_MS = 50.0
DESCRIPTORS_ALLOWED = 10
"""More than before: files a broker opens when it first needs them."""
GONE_TIMEOUT_S = 30.0
SAMPLE_EVERY_S = 0.2
TELL_EVERY_S = 30.0
LOG_SHOWN = 3_000
_BROKEN = re.compile(
    r"^.*(?:\[critical|Traceback \(most recent call last\)|\[error).*$", re.MULTILINE
)
CONFIG = {
    "queues": {VICTIM_QUEUE: {}, **{name: {} for name in QUEUES}},
    "topics": {"topic.1": {"subscriptions": {"subscription.1": {}}}},
}


class Watched:
    """A broker, and the most it ever took."""

    def __init__(self, name: str, broker: BrokerProcess) -> None:
        self.name = name
        self.broker = broker
        self.most_megabytes = 0.0
        self.descriptors_before = self.descriptors

    @property
    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.broker.process_id}/fd").iterdir())

    def sample(self) -> None:
        resident = resident_megabytes(self.broker.process_id)
        self.most_megabytes = max(self.most_megabytes, resident)

    def problems(self, most_megabytes: float) -> list[str]:
        """What is wrong with it, once its clients are gone."""
        found = []
        if broken := _BROKEN.search(log := self.broker.log_text()):
            found.append(f"{self.name} logged: {log[broken.start() :][:LOG_SHOWN]}")
        if not self.broker.is_running:
            return [*found, f"{self.name} ended\n{self.broker.log_tail()}"]
        if self.most_megabytes > most_megabytes:
            found.append(f"{self.name} took {self.most_megabytes:.0f} MB")
        allowed = self.descriptors_before + DESCRIPTORS_ALLOWED
        deadline_s = time.monotonic() + GONE_TIMEOUT_S
        while self.descriptors > allowed and time.monotonic() < deadline_s:
            time.sleep(SAMPLE_EVERY_S)
        if self.descriptors > allowed:
            found.append(
                f"{self.name} has {self.descriptors} descriptors, {self.descriptors_before} before"
            )
        while not self.broker.is_healthy() and time.monotonic() < deadline_s:
            time.sleep(SAMPLE_EVERY_S)
        if not self.broker.is_healthy():
            found.append(f"{self.name} is not healthy")
        return found


def brokers(stack: ExitStack) -> tuple[Watched, Watched]:
    """A lenient one, and one that verifies every token; both on a file."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peeklock-fuzz-")))
    common = {"PEEKLOCK_TLS_FOLDER": str(folder / "tls"), "PEEKLOCK_LOG_LEVEL": "warning"}
    lenient = BrokerProcess(
        config=CONFIG,
        storage=f"sqlite:///{folder / 'lenient.db'}",
        environment={**common, "PEEKLOCK_CREATE_ON_FIRST_USE": "true"},
    )
    strict = BrokerProcess(
        config=CONFIG,
        storage=f"sqlite:///{folder / 'strict.db'}",
        environment={**common, "PEEKLOCK_AUTHORIZATION": "strict"},
    )
    return (
        Watched("the lenient broker", stack.enter_context(lenient)),
        Watched("the strict broker", stack.enter_context(strict)),
    )


def ports_of(lenient: Watched, strict: Watched) -> Ports:
    return Ports(*((one.broker.amqp_port, one.broker.http_port) for one in (lenient, strict)))


def fuzz(seconds: float, seed: int, options: argparse.Namespace) -> list[str]:
    """Run; what was wrong."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fuzz.clients"])
    with ExitStack() as stack:
        watched = brokers(stack)
        stop, victim_begun, victim_stop = context.Event(), context.Event(), context.Event()
        ours, theirs = context.Pipe()
        lenient = watched[0].broker
        victim = context.Process(
            target=behave,
            args=(lenient.amqp_port, lenient.process_id, victim_begun, victim_stop, theirs),
            daemon=True,
        )
        victim.start()
        newest = [context.Value("i", -1) for _ in range(ATTACKERS)]
        attackers = [
            context.Process(
                target=send_cases,
                args=(seed, number, ATTACKERS, ports_of(*watched), newest[number], stop),
                daemon=True,
            )
            for number in range(ATTACKERS)
        ]
        stack.callback(_end, [victim, *attackers])
        victim_begun.wait(GONE_TIMEOUT_S)
        time.sleep(QUIET_S)
        begun_s = told_s = time.monotonic()
        for process in attackers:
            process.start()
        while (now_s := time.monotonic()) < begun_s + seconds:
            if not all(one.broker.is_running for one in watched):
                break
            for one in watched:
                one.sample()
            if now_s > told_s + TELL_EVERY_S:
                told_s = now_s
                done = sum(value.value // ATTACKERS for value in newest)
                print(f"  {now_s - begun_s:.0f} s, {done:,} cases", flush=True)
            time.sleep(SAMPLE_EVERY_S)
        stop.set()
        for process in attackers:
            process.join(30)
        ended_s = time.monotonic()
        victim_stop.set()
        rounds, problem = ours.recv() if ours.poll(60) else ([], "it never answered")
        problems = [found for one in watched for found in one.problems(options.megabytes)]
        if problem:
            problems.append(f"the well-behaved client: {problem}")
        else:
            problems += _judge_latency(rounds, begun_s, ended_s, options.victim_p99_ms)
        cases = ", ".join(f"{value.value:,}" for value in newest)
        print(f"cases up to number {cases}")
        for one in watched:
            print(f"{one.name}: at most {one.most_megabytes:.0f} MB")
        return problems


def _judge_latency(
    rounds: Sequence[Round], begun_s: float, ended_s: float, bound_ms: float
) -> list[str]:
    """Long waits are the broker's if its loop worked all that time; the machine's otherwise."""
    quiet = [one for one in rounds if one.begun_s < begun_s]
    loaded = [one for one in rounds if begun_s <= one.begun_s <= ended_s]
    if not quiet or not loaded:
        return ["the well-behaved client did not finish a single round"]
    for name, some in (("alone", quiet), ("among hostile ones", loaded)):
        took = sorted(one.took_s * 1e3 for one in some)
        print(
            f"a well-behaved client {name}: {len(some)} rounds, p50 {_share(took, 0.5):.1f} ms, "
            f"p99 {_share(took, 0.99):.1f} ms, at most {took[-1]:.1f} ms"
        )
    p99_ms = _share(sorted(min(one.took_s, one.loop_s) * 1e3 for one in loaded), 0.99)
    print(f"of which the broker's event loop worked: p99 {p99_ms:.1f} ms")
    if p99_ms > bound_ms:
        return [f"the well-behaved client waited p99 {p99_ms:.1f} ms for the broker's own work"]
    return []


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _end(processes: Sequence[Any]) -> None:
    for process in processes:
        if process.pid is not None:
            process.kill()
            process.join()


def send_one(seed: int, number: int) -> list[str]:
    """One case again, on its own."""
    case = Cases(seed).case(number)
    print(f"case {number}: {case.kind}\n{b''.join(case.pieces)!r}")
    with ExitStack() as stack:
        watched = brokers(stack)
        asyncio.run(send(case, ports_of(*watched)))
        return [found for one in watched for found in one.problems(MOST_MEGABYTES)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--megabytes", type=float, default=MOST_MEGABYTES)
    parser.add_argument("--victim-p99-ms", type=float, default=VICTIM_P99_MS)
    parser.add_argument("--case", type=int, help="only this one of the seed, and show it")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}: --seed {options.seed} makes the same cases", flush=True)
    if options.case is not None:
        problems = send_one(options.seed, options.case)
    else:
        problems = fuzz(options.seconds, options.seed, options)
    for problem in problems:
        print(f"FAILED (seed {options.seed}): {problem}")
    print("nothing found" if not problems else f"{len(problems)} problems, seed {options.seed}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
