"""Clients that make the broker hold as much memory as they can, beside a well-behaved client.

Has each abuse, and measures how large the broker gets and how long the other client waits for the
answer to a send. An abuse is limited and repeatable: it ends whether or not the broker allows it.
Run `python -m tests.soak.memory_abuse [name …]`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from protocol.codec import Described, Int, Long, Symbol, UInt, ULong, encode
from tests.bench.observe import resident_megabytes
from tests.soak.neighbour import Neighbour, Waits, control_neighbour
from tests.support import amqp_frames
from tests.support.amqp_frames import PART_BYTES, attach_coordinator, transfers
from tests.support.frame_client import ConnectionEnded, FrameClient
from tests.support.message_sections import DATA, section
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTES_ALLOWED = 300.0
WAIT_P99_ALLOWED_MS = 50.0
SAMPLE_EVERY_S = 0.02
TIMEOUT_S = 20.0
SETTLE_S = 15.0
SETTLED_SAMPLES = 10
QUEUES: dict[str, Any] = {name: {} for name in ("orders", "neighbour", "spare")}
ENTITIES: dict[str, Any] = {
    "queues": {
        **QUEUES,
        "large": {"max_message_size_in_kilobytes": 102_400},
        "baskets": {"requires_session": True},
    }
}


class Abuse:
    """What an abuser needs; all its connections end with it."""

    def __init__(self, broker: BrokerProcess, stack: ExitStack) -> None:
        self.broker = broker
        self._stack = stack

    def connect(self, **options: Any) -> FrameClient:
        options.setdefault("timeout_s", TIMEOUT_S)
        client = FrameClient.opened(self.broker.amqp_port, **options)
        self._stack.callback(client.close)
        return client

    def fill(self, queue: str, count: int, size_bytes: int) -> None:
        """Put messages into a queue."""
        client = FrameClient.opened(self.broker.amqp_port, timeout_s=TIMEOUT_S)
        client.write(amqp_frames.attach_sender(address=queue))
        client.skip_to("attach")
        message = data_section(size_bytes)
        at_once = max(1, min(100, 1_000_000 // size_bytes))
        for start in range(0, count, at_once):
            numbers = range(start, min(count, start + at_once))
            for number in numbers:
                client.write(*transfers(number, message))
            settled = -1
            while settled < numbers[-1]:
                outcome = client.skip_to("disposition")
                settled = max(outcome[1], outcome[2] or 0)
        client.close()

    def settle(self) -> None:
        """Wait until the broker has read what was written, and neither grows nor shrinks."""
        sizes: list[float] = []
        deadline_s = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline_s:
            sizes.append(resident_megabytes(self.broker.process_id))
            last = sizes[-SETTLED_SAMPLES:]
            if len(last) == SETTLED_SAMPLES and max(last) - min(last) < 1:
                break
            time.sleep(0.1)


def data_section(size_bytes: int) -> bytes:
    return section(DATA, b"x" * size_bytes)


def declare(client: FrameClient, number: int, handle: int) -> bytes:
    """The id of a new transaction. Raises `ConnectionEnded` where there will be none."""
    request = encode(Described(ULong(0x77), amqp_frames.described(0x31)))
    client.write(amqp_frames.transfer(number, request, handle=handle))
    outcome = client.skip_to("disposition")[4]
    if not isinstance(outcome, Described) or outcome.descriptor != 0x33:
        raise ConnectionEnded
    assert isinstance(outcome.value, list)
    return bytes(outcome.value[0])


def nobody(abuse: Abuse) -> None:
    """No abuse: measures how long the well-behaved client waits on this machine anyway."""
    time.sleep(5)
    abuse.settle()


# --- abuses ------------------------------------------------------------------------------------


def unfinished_tokens(abuse: Abuse) -> None:
    """60 connections, each with 100 links to $cbs and an unfinished put-token on every one."""
    part = b"x" * PART_BYTES
    for _ in range(60):
        with suppress(ConnectionEnded):
            client = abuse.connect()
            for handle in range(100):
                client.write(
                    amqp_frames.attach_sender(f"t{handle}", handle, "$cbs"),
                    amqp_frames.transfer(handle, part, handle=handle, more=True),
                )
    abuse.settle()


def unfinished_messages(abuse: Abuse) -> None:
    """Eight connections with messages of 93 MB that never end."""
    part = b"x" * PART_BYTES
    for _ in range(8):
        with suppress(ConnectionEnded):
            client = abuse.connect()
            client.write(amqp_frames.attach_sender(address="large"))
            client.skip_to("attach")
            client.skip_to("flow")
            for number in range(93_000_000 // PART_BYTES):
                client.write(amqp_frames.transfer(0 if number == 0 else None, part, more=True))
    abuse.settle()


def unread_peeks(abuse: Abuse) -> None:
    """2,500 peeks of a large message and no credit for the answers."""
    abuse.fill("orders", 1, 900_000)
    client = abuse.connect()
    node = "orders/$management"
    request = b"".join(
        encode(Described(ULong(code), value))
        for code, value in (
            (0x73, ["id"]),
            (0x74, {"operation": "com.microsoft:peek-message"}),
            (0x77, {"from-sequence-number": Long(0), "message-count": Int(1)}),
        )
    )
    with suppress(ConnectionEnded):
        client.write(
            amqp_frames.attach_receiver("answers", 0, node),
            amqp_frames.attach_sender("asks", 1, node),
        )
        for number in range(2_500):
            client.write(amqp_frames.transfer(number, request, handle=1))
    abuse.settle()


def unread_copies(abuse: Abuse) -> None:
    """Ten browsing links with endless credit, of which nothing is read."""
    abuse.fill("orders", 100, 900_000)
    copies = amqp_frames.described(0x28, "orders", None, None, None, None, None, Symbol("copy"))
    for _ in range(10):
        client = abuse.connect(receive_buffer_bytes=4096)
        attach = amqp_frames.frame(
            "attach", "look", UInt(0), True, None, None, copies, amqp_frames.target("here")
        )
        with suppress(ConnectionEnded):
            client.write(attach, amqp_frames.flow(1_000_000, incoming_window=1 << 30))
    abuse.settle()


def unread_by_many(abuse: Abuse) -> None:
    """300 connections with a browsing link each, of which nothing is read."""
    abuse.fill("orders", 100, 900_000)
    copies = amqp_frames.described(0x28, "orders", None, None, None, None, None, Symbol("copy"))
    for _ in range(300):
        with suppress(ConnectionEnded, OSError):
            client = abuse.connect(receive_buffer_bytes=4096)
            attach = amqp_frames.frame(
                "attach", "look", UInt(0), True, None, None, copies, amqp_frames.target("here")
            )
            client.write(attach, amqp_frames.flow(1_000_000, incoming_window=1 << 30))
    abuse.settle()


def unread_messages(abuse: Abuse) -> None:
    """Ten receivers with endless credit, of which nothing is read."""
    abuse.fill("orders", 100, 900_000)
    for _ in range(10):
        client = abuse.connect(receive_buffer_bytes=4096)
        with suppress(ConnectionEnded):
            client.write(
                amqp_frames.attach_receiver(address="orders"),
                amqp_frames.flow(1_000_000, incoming_window=1 << 30),
            )
    abuse.settle()


def open_transactions(abuse: Abuse) -> None:
    """172 transactions on as many connections, each with 18 MB of messages."""
    for _ in range(172):
        with suppress(ConnectionEnded):
            client = abuse.connect()
            client.write(amqp_frames.attach_sender(address="orders"))
            client.skip_to("attach")
            client.write(attach_coordinator(1))
            transaction_id = declare(client, 0, 1)
            state = amqp_frames.described(0x34, transaction_id)
            message = data_section(900_000)
            for number in range(1, 21):
                client.write(*transfers(number, message, state=state))
                client.skip_to("disposition")
    abuse.settle()


def many_transactions(abuse: Abuse) -> None:
    """30,000 transactions on one connection, over many coordinator links."""
    client = abuse.connect()
    request = encode(Described(ULong(0x77), amqp_frames.described(0x31)))
    number = 0
    with suppress(ConnectionEnded):
        for handle in range(300):
            client.write(attach_coordinator(handle))
            for _ in range(100):
                client.write(amqp_frames.transfer(number, request, handle=handle))
                number += 1
            client.skip_to("disposition")
    abuse.settle()


def refused_attaches(abuse: Abuse) -> None:
    """40,000 attaches to what is not there, of which no refusal is read."""
    client = abuse.connect(receive_buffer_bytes=4096, timeout_s=5)
    with suppress(ConnectionEnded):
        for handle in range(40_000):
            client.write(
                amqp_frames.attach_sender(f"link-{handle}", handle, f"missing/{handle}/$x")
            )
    abuse.settle()


def wordy_attaches(abuse: Abuse) -> None:
    """2,000 links with 50 kB of properties each."""
    client = abuse.connect()
    words: dict[Any, object] = {Symbol(f"p{number}"): Int(1000) for number in range(5_000)}
    with suppress(ConnectionEnded):
        for handle in range(2_000):
            client.write(
                amqp_frames.attach_sender(f"l{handle}", handle, "orders", properties=words)
            )
    abuse.settle()


def many_sessions(abuse: Abuse) -> None:
    """8,000 AMQP sessions on each of four connections, with a link each."""
    for _ in range(4):
        with suppress(ConnectionEnded):
            client = abuse.connect()
            for channel in range(1, 8_000):
                client.write(
                    amqp_frames.begin_frame(channel),
                    amqp_frames.attach_receiver("l", 0, "$cbs", channel=channel),
                )
    abuse.settle()


def many_links(abuse: Abuse) -> None:
    """20,000 links on each of four connections."""
    for _ in range(4):
        with suppress(ConnectionEnded):
            client = abuse.connect()
            for start in range(0, 20_000, 500):
                client.write(
                    *(
                        amqp_frames.attach_receiver(f"l{handle}", handle, "orders")
                        for handle in range(start, start + 500)
                    )
                )
    abuse.settle()


def session_waits(abuse: Abuse) -> None:
    """20,000 receivers that wait for any session."""
    client = abuse.connect()
    wanted: dict[Any, object] = {Symbol("com.microsoft:session-filter"): None}
    with suppress(ConnectionEnded):
        for handle in range(20_000):
            client.write(
                amqp_frames.attach_receiver(f"l{handle}", handle, "baskets", filters=wanted),
            )
    abuse.settle()


def unread_outcomes(abuse: Abuse) -> None:
    """Sends without end on ten connections, of which no outcome is read."""
    message = data_section(10)
    for _ in range(10):
        client = abuse.connect(receive_buffer_bytes=4096, timeout_s=3)
        with suppress(ConnectionEnded):
            # Settled one by one, each outcome is a frame of its own.
            client.write(amqp_frames.attach_sender(address="orders"))
            for number in range(0, 40_000, 2):
                client.write(
                    amqp_frames.transfer(number, message),
                    amqp_frames.transfer(number + 1, b"\x00", settled=False),
                )
    abuse.settle()


def unsettled_messages(abuse: Abuse) -> None:
    """A receiver that takes 400 MB of large messages and settles none of them."""
    _take_unsettled(abuse, 444, 900_000)


def unsettled_small_messages(abuse: Abuse) -> None:
    """A receiver that takes 400 MB in messages of 10 kB and settles none of them."""
    _take_unsettled(abuse, 40_000, 10_000)


def _take_unsettled(abuse: Abuse, count: int, size_bytes: int) -> None:
    abuse.fill("orders", count, size_bytes)
    client = abuse.connect()
    seen_bytes = 0
    with suppress(ConnectionEnded, OSError):
        client.write(
            amqp_frames.attach_receiver(address="orders"),
            amqp_frames.flow(1_000_000, incoming_window=1 << 30),
        )
        while seen_bytes < count * size_bytes and (part := client.stream.recv(1 << 20)):
            seen_bytes += len(part)
    assert seen_bytes >= count * size_bytes, "the receiver was stopped"
    abuse.settle()


ABUSES: dict[str, tuple[Callable[[Abuse], None], bool]] = {
    "nobody": (nobody, False),
    "unfinished-tokens": (unfinished_tokens, True),
    "unfinished-messages": (unfinished_messages, False),
    "unread-peeks": (unread_peeks, False),
    "unread-copies": (unread_copies, False),
    "unread-by-many": (unread_by_many, False),
    "unread-messages": (unread_messages, False),
    "unread-outcomes": (unread_outcomes, False),
    "unsettled-messages": (unsettled_messages, False),
    "unsettled-small-messages": (unsettled_small_messages, False),
    "open-transactions": (open_transactions, False),
    "many-transactions": (many_transactions, False),
    "refused-attaches": (refused_attaches, False),
    "wordy-attaches": (wordy_attaches, False),
    "many-sessions": (many_sessions, False),
    "many-sessions-without-token": (many_sessions, True),
    "many-links": (many_links, False),
    "session-waits": (session_waits, False),
}
"""And whether the broker is strict, so that the abuser has no token."""


# --- watching ----------------------------------------------------------------------------------


class Seen(NamedTuple):
    """What an abuse did."""

    before_megabytes: float
    most_megabytes: float
    waits: Waits
    control: Waits
    """The same of a client of an idle broker, at the same time: what the machine adds."""
    is_healthy: bool

    @property
    def failed(self) -> bool:
        return bool(self.missed)

    @property
    def missed(self) -> list[str]:
        """The bounds that did not hold."""
        missed = []
        if not self.is_healthy:
            missed.append("not healthy")
        if self.waits.p99_ms > WAIT_P99_ALLOWED_MS:
            missed.append(f"p99 over {WAIT_P99_ALLOWED_MS:g} ms")
        if self.most_megabytes > MEGABYTES_ALLOWED:
            missed.append(f"more than {MEGABYTES_ALLOWED:g} MB")
        return missed

    def __str__(self) -> str:
        return (
            f"{self.before_megabytes:4.0f} MB, at most {self.most_megabytes:5.0f} MB; "
            f"neighbour {self.waits}; control {self.control}; "
            f"p99 ratio {self.waits.p99_ms / self.control.p99_ms:.1f}  load {os.getloadavg()[0]:.1f}"
            f"{'  MISSED: ' if self.missed else ''}{', '.join(self.missed)}"
        )


def run_abuse(name: str) -> Seen:
    """Runs one abuse against a new broker, on sqlite."""
    abuse, is_strict = ABUSES[name]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="peeklock-memory-"))
        broker = stack.enter_context(
            BrokerProcess(
                config=ENTITIES,
                storage=f"sqlite:///{Path(folder) / 'memory.db'}",
                arguments=["--authorization", "strict"] if is_strict else [],
            )
        )
        neighbour = stack.enter_context(Neighbour(broker))
        control = stack.enter_context(control_neighbour(Path(folder)))
        before = resident_megabytes(broker.process_id)
        watch = stack.enter_context(MemoryWatch(broker.process_id))
        neighbour.begin()
        control.begin()
        abuse(Abuse(broker, stack))
        waits, control_waits = neighbour.end(), control.end()
        watch.stop()
        healthy = broker.is_healthy()
        return Seen(before, watch.most_megabytes, waits, control_waits, healthy)


class MemoryWatch:
    """The most memory that a process had."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.most_megabytes = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY_S):
            with suppress(OSError):
                self.most_megabytes = max(self.most_megabytes, resident_megabytes(self._process_id))


def run_memory_abuses(names: list[str] | None = None) -> bool:
    """Each abuse of the table, or of these; whether a bound was missed."""
    failed = False
    for name in names or ABUSES:
        seen = run_abuse(name)
        failed |= seen.failed
        print(f"{'FAILED' if seen.failed else 'ok':<6} {name:<28} {seen}", flush=True)
    return failed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.memory_abuse", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(ABUSES))
    return int(run_memory_abuses(parser.parse_args(arguments).names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
