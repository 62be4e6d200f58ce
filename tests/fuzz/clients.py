"""The clients of a fuzz run: some send the cases, and one is well behaved.

Each runs in its own process, so that none waits for another and the measured latency is that of the
broker.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.clients.messages import encode_message
from tests.fuzz.cases import Cases
from tests.support.proton.client import ProtonClient
from tests.support.server import HOST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event

    from tests.fuzz.cases import Case

AT_ONCE = 10
NICENESS = 5
"""Making up cases takes time that a broker and a client on the same machine shall not lack."""
WRITE_TIMEOUT_S = 5.0
READ_BYTES = 65_536
VICTIM_QUEUE = "fuzz-victim"
VICTIM_INTERVAL_S = 0.02
NO_LINGERING = struct.pack("ii", 1, 0)


class Ports(NamedTuple):
    """Where brokers listen: the lenient one, and the strict one."""

    lenient: Sequence[int]
    strict: Sequence[int]


def send_cases(
    seed: int, first: int, step: int, ports: Ports, newest: Synchronized[int], stop: Event
) -> None:
    """Sends every `step`-th case from the first, until it is stopped."""
    os.nice(NICENESS)
    asyncio.run(_send_cases(Cases(seed), first, step, ports, newest, stop))


async def _send_cases(
    cases: Cases, first: int, step: int, ports: Ports, newest: Synchronized[int], stop: Event
) -> None:
    numbers = count(first, step)

    async def work() -> None:
        while not stop.is_set():
            case = cases.case(next(numbers))
            newest.value = case.number
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await send(case, ports)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def send(case: Case, ports: Ports) -> None:
    """Say it, listen for a while, go."""
    targets = ports.strict if case.is_for_strict else ports.lenient
    reader, writer = await asyncio.open_connection(HOST, targets[case.number % len(targets)])
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            for piece in case.pieces:
                writer.write(piece)
                await writer.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(case.listens_s):
                while await reader.read(READ_BYTES):
                    pass
    finally:
        if case.resets:
            taken = writer.get_extra_info("socket")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
        writer.close()


class Round(NamedTuple):
    """One message sent, received and completed."""

    begun_s: float
    took_s: float
    loop_s: float
    """What the broker's event loop worked meanwhile: the wait that is its own doing, and not that
    of a machine busy with something else."""


def behave(
    port: int, process_id: int, begun: Event, stop: Event, parent: Connection[object, object]
) -> None:
    """Sends, receives and completes a message, again and again. Reports every round, and the error
    that ended them."""
    rounds: list[Round] = []
    problem = ""
    try:
        asyncio.run(_behave(port, process_id, begun, stop, rounds))
    except BaseException as error:  # noqa: BLE001 -- it is told to whoever judges
        problem = repr(error)
    parent.send((rounds, problem))


def loop_s(process_id: int) -> float:
    """Time on a processor of the main thread of a process."""
    text = Path(f"/proc/{process_id}/task/{process_id}/schedstat").read_text()
    return int(text.split()[0]) / 1e9


async def _behave(
    port: int, process_id: int, begun: Event, stop: Event, rounds: list[Round]
) -> None:
    client = ProtonClient(HOST, port, "well-behaved client")
    sender = await client.sender(VICTIM_QUEUE)
    receiver = await client.receiver(VICTIM_QUEUE, 10)
    loop = asyncio.get_running_loop()
    for number in count():
        if stop.is_set():
            break
        begun_s, begun_loop_s = time.monotonic(), loop_s(process_id)
        outcome = await sender.send(encode_message(("victim", number)))
        assert outcome.is_accepted, outcome
        arrival = await receiver.next(30.0)
        assert arrival is not None, "a message that was accepted does not come"
        settled = loop.create_future()
        client.settle(arrival.delivery, settled.set_result)
        await client.answer(settled, "a completion")
        worked_s = loop_s(process_id) - begun_loop_s
        rounds.append(Round(begun_s, time.monotonic() - begun_s, worked_s))
        begun.set()
        await asyncio.sleep(VICTIM_INTERVAL_S)
    client.close()
