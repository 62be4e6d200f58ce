"""What the compiled module allocates is freed: many messages and many connections take no more memory than few."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from protocol.amqp.engine import proton_connection
from protocol.amqp.engine.engine import ACCEPTED
from protocol.amqp.engine.proton_connection import FEW_OBJECTS
from tests.support.amqp_frames import (
    Recorder,
    accepted,
    attach_receiver,
    attach_sender,
    detach,
    disposition,
    flow,
    opened,
    say,
    transfer,
)

PAGE_BYTES = 4096
BATCH = 500
GROWTH_BYTES = 4 << 20


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def exchange(engine, recorder, batches: int) -> None:
    """Sends messages both ways, settles them in several ways, and leaves none unsettled."""
    incoming, outgoing = recorder.links
    for number in range(batches):
        first = number * BATCH
        payload = b"\x00\x53\x75\xa0\x01a" * 20
        say(engine, b"".join(transfer(first + i, payload) for i in range(BATCH)))
        for call in recorder.of("transfers"):
            engine.settle(incoming, call[1], ACCEPTED)
        engine.grant(incoming, BATCH)
        count = min(BATCH, engine.credit(outgoing))
        tags = [b"%016d" % each for each in range(count)]
        engine.send(outgoing, tags, [b"head"] * count, [payload] * count, False)
        engine.take_output()
        last = first + count - 1
        say(engine, disposition(first, last - 100, state=accepted(), settled=True))
        say(engine, *(disposition(last - i, state=accepted()) for i in range(99, -1, -1)))
        for call in recorder.of("outcomes"):
            engine.settle(outgoing, call[1], ACCEPTED)
        engine.take_output()
        say(engine, flow(BATCH, handle=1, delivery_count=outgoing.sent))
        recorder.calls.clear()
        assert [] == outgoing.unsettled == incoming.unsettled


def connect() -> None:
    engine, recorder = opened(
        attach_sender("to", 0),
        attach_receiver("from", 1),
        flow(BATCH, handle=1),
        handler=Recorder(accepts=False),
    )
    say(engine, transfer(0, b"x" * 500))
    engine.send(recorder.links[1], [b"t"] * 50, [b"h"] * 50, [b"b" * 200] * 50, False)
    say(engine, disposition(0, 10, state=accepted()))
    say(engine, detach(0))
    engine.connection_lost()


@pytest.mark.parametrize(("before", "more"), [(20, 100)])
def test_messages_leave_no_memory_behind(before, more):
    """Fifty thousand in each direction."""
    engine, recorder = opened(
        attach_sender("to", 0),
        attach_receiver("from", 1),
        flow(BATCH, handle=1),
        handler=Recorder(accepts=False),
    )
    exchange(engine, recorder, before)
    engine.connection_lost()
    start = resident_bytes()
    engine, recorder = opened(
        attach_sender("to", 0),
        attach_receiver("from", 1),
        flow(BATCH, handle=1),
        handler=Recorder(accepts=False),
    )
    exchange(engine, recorder, more)
    assert resident_bytes() - start < GROWTH_BYTES
    engine.connection_lost()


@pytest.mark.parametrize(("before", "more"), [(200, 400)])
def test_connections_leave_no_memory_behind(before, more):
    """With messages that nobody has settled."""
    for _ in range(before):
        connect()
    start = resident_bytes()
    for _ in range(more):
        connect()
    assert resident_bytes() - start < GROWTH_BYTES


def connect_with_many_links() -> None:
    links = [attach_sender(f"to {number}", number) for number in range(FEW_OBJECTS + 1)]
    engine, _ = opened(*links, handler=Recorder(accepts=False))
    engine.connection_lost()
    # They are freed in another thread. This waits for it.
    proton_connection._freeing.submit(int).result()


@pytest.mark.parametrize(("before", "more"), [(20, 60)])
def test_large_connections_leave_no_memory_behind(before, more):
    """Another thread frees them."""
    for _ in range(before):
        connect_with_many_links()
    start = resident_bytes()
    for _ in range(more):
        connect_with_many_links()
    assert resident_bytes() - start < GROWTH_BYTES
