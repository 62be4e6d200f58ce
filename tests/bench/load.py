"""The load generator: each role in a process of its own, started together, one JSON result.

`python -m tests.bench.load --port 5672 --address orders --role both --count 100000` measures a
broker that is running already. It ends with 1 if a message was lost, doubled, damaged or moved.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import random
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tests.bench.receiver import Receiver
from tests.bench.roles import FIRST, SECOND, SETTLED, Load, Mark, Role, Take
from tests.bench.sender import Sender
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

ROLES: dict[str, type[Role]] = {"send": Sender, "receive": Receiver}
START_TIMEOUT_S = 60.0


def new_run() -> int:
    """A number no earlier run had, so that what it left behind is recognised."""
    return random.SystemRandom().randrange(1, 1 << 32)


def run_role(kind: str, load: Load, parent: Connection[Any, Any]) -> None:
    """The life of a role's process: attach, wait for the word, work, report."""
    gc.disable()
    role = ROLES[kind](load)
    try:
        role.attach()
    except (PeerFailed, OSError) as failure:
        role.error = str(failure)
        parent.send(role.result())
        return
    parent.send(None)
    parent.recv()
    role.run()
    parent.send(role.result())


def measure(*parts: tuple[str, Load]) -> list[dict[str, Any]]:
    """Run roles at the same time: all attach, then all begin in the order given."""
    context = multiprocessing.get_context("spawn")
    processes, pipes = [], []
    for kind, load in parts:
        ours, theirs = context.Pipe()
        process = context.Process(target=run_role, args=(kind, load, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    try:
        early = [_receive(pipe) for pipe in pipes]
        failed = [result for result in early if result is not None]
        if failed:
            return failed
        for pipe in pipes:
            pipe.send("go")
        return [_receive(pipe) for pipe in pipes]
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _receive(pipe: Connection[Any, Any]) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return {"error": "the role's process ended without a result", "is_clean": False}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.load", description=__doc__)
    parser.add_argument("--role", choices=("send", "receive", "both"), default="both")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--run", type=int, default=new_run(), help="tag of this run's messages")
    parser.add_argument("--body-bytes", type=int, default=256)
    parser.add_argument("--connections", type=int, default=1, help="per role")
    parser.add_argument("--links", type=int, default=0, help="per role; 0: one per connection")
    parser.add_argument("--streams", type=int, help="series of messages, if not one per link")
    parser.add_argument("--mark", type=Mark, choices=Mark, default=Mark.NONE)
    parser.add_argument("--take", type=Take, choices=Take, default=Take.ANY)
    parser.add_argument("--window", type=int, default=1000, help="unsettled sends per link")
    parser.add_argument("--credit", type=int, default=1000, help="link credit per link")
    parser.add_argument("--settle", choices=(SETTLED, FIRST, SECOND), default=SECOND)
    parser.add_argument("--with-ids", action="store_true", help="a message id of its own for each")
    parser.add_argument("--scheduled-ms", type=int, default=0, help="when to enqueue them")
    parser.add_argument("--presettled", action="store_true", help="send without outcomes")
    parser.add_argument("--rate-per-s", type=float, default=0.0, help="0: as fast as it goes")
    parser.add_argument("--first-sequence", type=int, default=0)
    parser.add_argument("--stall-timeout-s", type=float, default=30.0)
    options = vars(parser.parse_args(arguments))
    options["streams"] = options["streams"] or options["links"] or options["connections"]
    load = Load(**{field.name: options[field.name] for field in fields(Load)})
    roles = ("receive", "send") if options["role"] == "both" else (options["role"],)
    results = measure(*[(role, load) for role in roles])
    print(json.dumps({"run": load.run, "results": results}, indent=2))
    return 0 if all(result["is_clean"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
