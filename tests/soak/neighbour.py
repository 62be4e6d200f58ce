"""A well-behaved client in its own process, which sends a message from time to time and waits for its outcome.

Its waits are the figures of the abuses. Other work on the machine makes them longer, so two more figures are shown. A
second client, the control, has an idle broker to itself at the same time: it waits for the processor and the disk as the
first one does, but not for the abuser. And the processor time of the broker during each wait says how long the wait would
have been if the broker had had a processor to itself, without the disk.
"""

from __future__ import annotations

import multiprocessing
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.support import amqp_frames
from tests.support.frame_client import FrameClient
from tests.support.message_sections import APPLICATION_PROPERTIES, DATA, PROPERTIES, VALUE, section
from tests.support.server import HOST, BrokerProcess, root_token

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAUSE_S = 0.01
PATIENCE_S = 60.0
QUEUE = "neighbour"


class Waits(NamedTuple):
    """How long a client waited."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    processor_p99_ms: float
    """Of the broker's processor time during each wait."""

    @classmethod
    def of(cls, waits_s: Sequence[float], processor_s: Sequence[float]) -> Self:
        """Returns the figures of single waits."""
        waits = sorted(1000 * wait_s for wait_s in waits_s)
        busy = sorted(1000 * busy_s for busy_s in processor_s)
        return cls(waits[len(waits) // 2], _p99(waits), waits[-1], _p99(busy))

    def __str__(self) -> str:
        return (
            f"p50 {self.p50_ms:6.1f}  p99 {self.p99_ms:7.1f} "
            f"({self.processor_p99_ms:.1f} of processor)  max {self.max_ms:7.1f} ms"
        )


def _p99(ordered: Sequence[float]) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def processor_s(process_id: int) -> float:
    """Returns how long the threads of a process have run so far."""
    run_ns = 0
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        with suppress(OSError):  # the thread has just ended
            run_ns += int((thread / "schedstat").read_text().split()[0])
    return run_ns / 1e9


@contextmanager
def control_neighbour(folder: Path) -> Iterator[Neighbour]:
    """Runs an idle broker, and a client of it."""
    storage = f"sqlite:///{folder / 'control.db'}"
    config: dict[str, Any] = {"queues": {QUEUE: {}}}
    with (
        BrokerProcess(config=config, storage=storage) as broker,
        Neighbour(broker) as one,
    ):
        yield one


class Neighbour:
    """A client in its own process that sends a message from time to time and waits for its
    outcome."""

    def __init__(self, broker: BrokerProcess) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_neighbour, args=(broker.amqp_port, broker.process_id, theirs), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        self._ours.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def begin(self) -> None:
        self._ours.send("begin")

    def end(self) -> Waits:
        """Stops. Returns how long its sends took."""
        self._ours.send("end")
        if not self._ours.poll(PATIENCE_S):
            return Waits.of([PATIENCE_S], [PATIENCE_S])
        return Waits.of(*self._ours.recv())


def _neighbour(port: int, broker_process_id: int, pipe: Any) -> None:
    client = FrameClient.opened(port, timeout_s=120)
    _put_token(client)
    client.write(amqp_frames.attach_sender("mine", 7, QUEUE))
    client.skip_to("attach")
    message = section(DATA, b"x" * 100)
    number = 1
    waits: list[float] = []
    busy: list[float] = []
    pipe.send("ready")
    pipe.recv()
    while not pipe.poll():
        busy_s, begun_s = processor_s(broker_process_id), time.monotonic()
        client.write(amqp_frames.transfer(number, message, handle=7))
        client.skip_to("disposition")
        waits.append(time.monotonic() - begun_s)
        busy.append(processor_s(broker_process_id) - busy_s)
        number += 1
        time.sleep(PAUSE_S)
    pipe.send((waits, busy))


def _put_token(client: FrameClient) -> None:
    """Puts the token of the whole broker."""
    audience = f"sb://{HOST}/"
    request = (
        section(PROPERTIES, ["token"])
        + section(
            APPLICATION_PROPERTIES,
            {"operation": "put-token", "type": "jwt", "name": audience},
        )
        + section(VALUE, root_token())
    )
    client.write(
        amqp_frames.attach_receiver("granted", 5, "$cbs"),
        amqp_frames.flow(10, handle=5),
        amqp_frames.attach_sender("token", 6, "$cbs"),
        amqp_frames.transfer(0, request, handle=6),
    )
    client.skip_to("transfer")
