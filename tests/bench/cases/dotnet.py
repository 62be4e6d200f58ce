"""Through the stock .NET SDK: one message after the other, and a processor with 16 calls.

Brokers run side by side and take turns, as in `sdk.py`. Without a `dotnet` on the PATH there are no
rows.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import observe
from tests.bench.cases.setting import in_turns
from tests.bench.roles import percentiles_us
from tests.bench.rows import Row
from tests.bench.systems import DISK, MEMORY, QUEUE, SQLITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.cases.setting import Setting
    from tests.support.server import BrokerProcess

THROUGH_DOTNET = ".NET SDK: send, receive and complete one"
THROUGH_DOTNET_APPENDS = f"{THROUGH_DOTNET}, two appends and no store"
DOTNET_PROCESSOR = ".NET SDK: processor with 16 calls"
DOTNET_PROCESSOR_APPENDS = f"{DOTNET_PROCESSOR}, appends and no store"
SOURCES = Path(__file__).resolve().parents[1] / "dotnet"
SYSTEMS = (MEMORY, SQLITE, DISK)
ROUNDS = 16
CYCLES = 50
"""Per round and system."""
PROCESSED = 2_000
"""Also with --quick: in a shorter round, most of the time is the start of the processor."""
WARM_UP = 300
PROCESSOR_WARM_UPS = 15
"""After so many rounds of a processor, .NET has compiled it as well as it can."""


class _Client:
    """A program with a client, and what it measured."""

    def __init__(self, program: Path, broker: BrokerProcess, stack: ExitStack) -> None:
        self._broker = broker
        command = ["dotnet", str(program), broker.connection_string, QUEUE]
        self._process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(self._process.kill)
        self.took_ns = array("q")
        self.rates: list[float] = []
        self._cpu_s = 0.0

    def _ask(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def warm_up(self) -> None:
        """The program compiles itself while it runs. A processor is twice as fast in the end."""
        self._ask(f"one {WARM_UP}")
        for _ in range(PROCESSOR_WARM_UPS):
            self._ask(f"processor {PROCESSED}")

    def work(self, cycles: int) -> None:
        before_s = observe.cpu_s(self._broker.process_id)
        self.took_ns.extend(int(text) * 1_000 for text in self._ask(f"one {cycles}").split())
        self._cpu_s += observe.cpu_s(self._broker.process_id) - before_s

    def process(self, count: int) -> None:
        self.rates.append(count / float(self._ask(f"processor {count}")))

    def row(self, system: str) -> Row:
        figures = {f"ack_{name}_us": us for name, us in percentiles_us(self.took_ns).items()}
        figures["broker_cpu_us"] = self._cpu_s * 1e6 / len(self.took_ns)
        case = THROUGH_DOTNET_APPENDS if system == DISK else THROUGH_DOTNET
        return Row(case, figures, system=system)


def built(folder: Path) -> Path | None:
    """The compiled program, or None if there is no `dotnet`."""
    if shutil.which("dotnet") is None:
        return None
    sources = folder / "dotnet"
    shutil.copytree(SOURCES, sources)
    command = ["dotnet", "build", "--configuration", "Release", "--output", "build"]
    subprocess.run(command, cwd=sources, check=True, stdout=subprocess.DEVNULL)
    return sources / "build" / "Measure.dll"


def through_dotnet(setting: Setting) -> Iterator[Row]:
    """All systems in turns."""
    program = built(setting.folder)
    if program is None:
        print(".NET is left out: dotnet is not on the PATH", flush=True)
        return
    with ExitStack() as stack:
        clients = {}
        for system in SYSTEMS:
            broker = stack.enter_context(setting.on(system).broker())
            clients[system] = _Client(program, broker, stack)
            clients[system].warm_up()
        os.sync()  # the compiled program, for instance
        for _, order in in_turns(ROUNDS, SYSTEMS):
            for system in order:
                clients[system].work(setting.count(CYCLES))
            for system in order:
                clients[system].process(PROCESSED)
        for system, client in clients.items():
            yield client.row(system)
        for system, client in clients.items():
            figures = {"messages_per_s": statistics.median(client.rates)}
            case = DOTNET_PROCESSOR_APPENDS if system == DISK else DOTNET_PROCESSOR
            yield Row(case, figures, system=system)
