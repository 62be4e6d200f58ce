"""Compiles and runs the load generator in C (`generator/`), which plain queues are measured with.

It costs about half a microsecond for each message, so that it is not the bottleneck, and waits for nothing but the
broker, so that a latency is the broker's. Sessions, topics and schedules are measured with the roles in Python
(`roles.py`), which know more and cost more. Both read and write the same messages.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.roles import Load

SOURCES = Path(__file__).with_name("generator")
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
BOTH = "both"
ENDS_AFTER_S = 900.0


@functools.cache
def program() -> Path:
    """The compiled generator. It is compiled again when its sources have changed."""
    sources = sorted(SOURCES.glob("*.[ch]"))
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"peeklock-bench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    compiled = folder / f"amqp_load-{version}"
    if not compiled.exists():
        new = compiled.with_suffix(f".{os.getpid()}")
        compiler = os.environ.get("CC", "gcc")
        source = str(SOURCES / "amqp_load.c")
        subprocess.run([compiler, *FLAGS, "-o", str(new), source, "-lpthread"], check=True)
        new.replace(compiled)
    return compiled


def run_program(
    kind: str, load: Load, *, capability: str = "", sasl: bool = False
) -> list[dict[str, Any]]:
    """Run a role (`send`, `receive`) or both; returns their results, in the form of `Role.result`.

    `capability` is one that the link asks of its address; with `sasl` the connection logs in as ANONYMOUS.
    """
    arguments = [
        kind,
        load.host,
        load.port,
        load.address,
        capability,
        load.count,
        load.first_sequence,
        load.window,
        load.credit,
        load.run,
        load.body_bytes,
        load.connections,
        load.rate_per_s,
        load.stall_timeout_s,
        "sasl" if sasl else "plain",
    ]
    ended = subprocess.run(
        [str(program()), *map(str, arguments)],
        stdout=subprocess.PIPE,
        timeout=ENDS_AFTER_S,
        check=False,
    )
    try:
        results: list[dict[str, Any]] = json.loads(ended.stdout)
    except ValueError:
        error = f"the generator ended with {ended.returncode} and without a result"
        return [{"error": error, "is_clean": False}]
    return results
