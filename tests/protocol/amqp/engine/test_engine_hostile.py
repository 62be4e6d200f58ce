"""What no decent client sends: the connection ends cleanly, nothing raises, nothing grows."""

from __future__ import annotations

import gc
import random
import struct
import tracemalloc
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from config.model.limits import RELAXED
from protocol.amqp.engine.engine import ACCEPTED, EngineLink, WireError
from protocol.amqp.held_memory import HeldMemory, MemoryBudgets
from protocol.codec import Symbol, UInt, UShort
from tests.support.amqp_frames import (
    BATCH_FORMAT,
    EMPTY_FRAME,
    HEADER,
    Recorder,
    accepted,
    attach_receiver,
    attach_sender,
    begin_frame,
    described,
    detach,
    disposition,
    flow,
    frame,
    frames,
    open_frame,
    opened,
    pieces,
    raw_frame,
    rejected,
    say,
    served,
    source,
    transfer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR = WireError("amqp:not-allowed", "no", {"com.microsoft:tracking-id": "id"})
BOTH_LINKS = attach_sender("to", 0) + attach_receiver("from", 1) + flow(10, handle=1)


def header(size: int, offset: int = 2, kind: int = 0) -> bytes:
    return struct.pack(">IBBH", size, offset, kind, 0)


BROKEN_ARRAY = b"\xe0\x07\x02\xa3\x03abc\x7f"
"""Two symbols, the second of which runs past the end."""
ATTACH_START = b"\xa1\x05other\x52\x07\x42\x40\x40"
"""Name, handle and role of a link on which the client sends, and no settle modes."""


def raw_list(code: int, count: int, fields: bytes) -> bytes:
    """A frame whose performative counts its fields as it likes."""
    size = struct.pack(">II", len(fields) + 4, count)
    return raw_frame(b"\x00\x53" + bytes((code,)) + b"\xd0" + size + fields)


def with_outcomes(outcomes: bytes) -> bytes:
    """An attach whose source has these outcomes."""
    source_fields = b"\xa1\x01x" + b"\x40" * 8 + outcomes
    source_list = b"\x00\x53\x28\xc0" + bytes((len(source_fields) + 1, 10)) + source_fields
    return raw_list(0x12, 7, ATTACH_START + source_list + b"\x00\x53\x29\xc0\x04\x01\xa1\x01q")


# Proton does not check the sizes inside a value, and crashes the process when it writes the value again.
MALFORMED_INSIDE = {
    "an attach with a broken array": with_outcomes(BROKEN_ARRAY),
    "an attach with a broken array of arrays": with_outcomes(b"\xe0\x03\x09\xf0\x01"),
    "an attach that counts more fields than it has": raw_list(0x12, 0xBA25, ATTACH_START),
    "a begin that counts more fields than it has": raw_list(0x11, 64, b"\x40\x43\x43\x43"),
    "a disposition with a broken array": raw_list(
        0x15, 5, b"\x41\x43\x43\x41\x00\x53\x24\xc0\x0a\x01" + BROKEN_ARRAY
    ),
    "a transfer whose state has a broken array": raw_list(
        0x14, 8, b"\x43\x43\xa0\x01t\x43\x40\x40\x40\x00\x53\x34\xc0\x0a\x01" + BROKEN_ARRAY
    ),
    "a frame of SASL": raw_frame(b"\x00\x53\x11\xc0\x05\x04\x40\x43\x43\x43", kind=1),
}

VIOLATIONS = {
    **MALFORMED_INSIDE,
    "garbage": b"\xde\xad\xbe\xef" * 100,
    "a frame shorter than its header": header(7) + bytes(100),
    "a frame of size zero": header(0) + bytes(100),
    "a frame over our limit": raw_frame(bytes(65_536)),
    "a frame of four gigabytes": header(0xFFFFFFFF) + bytes(100),
    "a body that starts inside the header": header(16, offset=1) + bytes(8),
    "a body that starts behind the frame": header(16, offset=255) + bytes(8),
    "a frame of an unknown type": raw_frame(b"\x00\x53\x10\x45", kind=9),
    "an unknown performative": raw_frame(b"\x00\x53\x99\x45"),
    "a performative that is no list": raw_frame(b"\x00\x53\x12\xa1\x03abc"),
    "a list longer than its frame": raw_frame(b"\x00\x53\x14\xc0\xff\x10"),
    "a transfer on an unknown channel": transfer(0, b"x", channel=9),
    "a transfer to a receiver": transfer(0, b"x", handle=1),
    "a settled transfer to a receiver": transfer(0, b"x", handle=1, settled=True),
    "an accepted transfer to a receiver": transfer(0, b"x", handle=1, state=accepted()),
    "part of a transfer to a receiver": transfer(0, b"x", handle=1, more=True),
    "a batch to a receiver": transfer(0, b"x", handle=1, message_format=BATCH_FORMAT),
    "a flow on an unknown channel": flow(1, channel=9),
    "a disposition on an unknown channel": disposition(0, channel=9),
    "an attach on an unknown channel": attach_sender("other", 7, channel=9),
    "an attach without a handle": frame("attach", "other", None, False),
    "an attach without a name": frame("attach", None, UInt(7), False),
    "a session on a channel that has one": begin_frame(),
    "a begin that answers none of ours": frame("begin", UShort(0), *[UInt(1)] * 3, channel=1),
    "a channel over our limit": begin_frame(9000),
    "a range that runs backwards": disposition(5, 2, state=accepted()),
    "a second open": open_frame(),
}

CONDITIONS = {
    "amqp:decode-error",
    "amqp:not-allowed",
    "amqp:invalid-field",
    "amqp:connection:framing-error",
}
"""Of AMQP 1.0 §2.8.15 and §2.8.16. Clients decide by the condition what to do."""


@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_closes_the_connection_with_an_error_that_has_info(violation):
    """One close with an error, one call of the handler, and nothing more is listened to."""
    engine, recorder = opened(BOTH_LINKS)

    answers = say(engine, violation)

    assert [1] == [answer.channel + 1 for answer in answers if answer.name == "close"]
    condition, description, info = answers[-1][0].value
    assert condition in CONDITIONS
    assert [(condition, description)] == recorder.of("transport error")
    assert {"container-id": "broker"} == info
    assert engine.finished
    assert all(link.closed for link in recorder.links)
    calls = len(recorder.calls)
    assert [] == say(engine, transfer(0, b"x") + frame("close"))
    assert calls == len(recorder.calls)
    engine.connection_lost()


@pytest.mark.parametrize("start", [b"garbage, not a header", b"AMQP\x00\x00\x09\x01", b"\0" * 100])
def test_a_wrong_protocol_header_ends_the_connection(start):
    engine, recorder = served()

    say(engine, start)

    assert engine.finished
    assert ["transport error"] == recorder.names()


def test_a_transfer_before_its_link_is_granted_ends_the_connection():
    """There is no credit yet, and no handler for the message."""
    engine, recorder = opened(attach_sender(), handler=Recorder(grants=False))

    (close,) = say(engine, transfer(0, b"x"))

    assert "amqp:link:transfer-limit-exceeded" == close[0].value[0]
    assert ["open", "attach", "transport error"] == recorder.names()


def memory_of(max_bytes: int) -> HeldMemory:
    limits = replace(RELAXED, held_per_connection_max_bytes=max_bytes)
    return HeldMemory(MemoryBudgets(limits), lambda: None, needs_token=False)


def test_messages_begun_and_never_finished_have_a_bound_together():
    """Many links, each with half a message: what is kept for all of them is limited."""
    engine, recorder = opened(memory=memory_of(40_000))
    for number in range(6):
        say(engine, attach_sender(f"{number}", number))
        say(engine, transfer(number, b"x" * 2_000, handle=number, more=True))

    assert ["amqp:resource-limit-exceeded"] == [call[0] for call in recorder.of("transport error")]
    assert 4 == len(recorder.links)


def test_messages_begun_on_links_that_went_do_not_count():
    memory = memory_of(40_000)
    engine, recorder = opened(memory=memory)
    for number in range(50):
        say(engine, attach_sender(f"{number}", 0))
        say(engine, transfer(3 * number, b"x" * 900, more=True), transfer(None, b"", aborted=True))
        say(engine, transfer(3 * number + 1, b"x" * 900, more=True), transfer(None, b"x"))
        say(engine, transfer(3 * number + 2, b"x" * 900, more=True), detach())

    assert [] == recorder.of("transport error")
    say(engine, frame("end"))
    assert 0 == memory.held_bytes


def test_a_truncated_stream_keeps_the_engine_waiting():
    """The engine answers only the complete frames."""
    data = transfer(0, b"hello")
    for length in range(len(data)):
        engine, recorder = opened(attach_sender())
        assert [] == say(engine, data[:length])
        assert not engine.finished
        assert [] == recorder.payloads()
        engine.connection_lost()


def test_a_flood_of_links_ends_with_its_session():
    """Thousands of links that are not detached: each is reported and freed."""
    count = 3000
    engine, recorder = opened()
    for number in range(count):
        engine.feed(attach_sender(f"{number}", number))
    assert 2 * count == len(frames(engine.take_output()))

    say(engine, frame("end"))

    ((links,),) = recorder.of("session end")
    assert recorder.links == links
    assert all(link.closed for link in links)
    assert {} == engine._dispatch._links


def test_nothing_is_left_of_links_that_came_and_went():
    """Neither our objects nor Proton's memory."""
    engine, recorder = opened()

    def come_and_go() -> None:
        say(engine, attach_sender("to", 0) + attach_receiver("from", 1) + flow(5, handle=1))
        say(engine, transfer(counter[0], b"x" * 100))
        counter[0] += 1
        engine.send(recorder.links[-1], [b"t"], [b"h"], [b"b"], False)
        say(engine, detach(0) + detach(1))
        recorder.links.clear()
        recorder.attaches.clear()
        recorder.calls.clear()

    counter = [0]
    come_and_go()
    gc.collect()
    before = sum(isinstance(thing, EngineLink) for thing in gc.get_objects())
    tracemalloc.start()
    for _ in range(50):
        come_and_go()
    gc.collect()
    start, _ = tracemalloc.get_traced_memory()
    for _ in range(200):
        come_and_go()
    gc.collect()
    end, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert before == sum(isinstance(thing, EngineLink) for thing in gc.get_objects())
    assert end - start < 20_000


def test_an_engine_and_its_handler_are_freed_without_the_garbage_collector():
    engine, recorder = opened(BOTH_LINKS)
    say(engine, transfer(0, b"x"))
    engine.send(recorder.links[1], [b"t"], [b"h"], [b"b"], False)
    engine.connection_lost()
    links = [weakref.ref(recorder)]
    recorder.engine = None  # type: ignore[assignment]
    gc.disable()
    try:
        del engine, recorder
        assert [None] == [link() for link in links]
    finally:
        gc.enable()


# --- at random ---------------------------------------------------------------------------------------


class RandomHandler(Recorder):
    """A handler that grants, refuses and detaches links at random, and answers late or never."""

    def __init__(self, moods: random.Random) -> None:
        super().__init__()
        self.moods = moods
        self.open_deliveries: list[tuple[EngineLink, Sequence[object]]] = []

    def on_attach(self, link, attach):
        self.links.append(link)
        mood = self.moods.random()
        if mood < 0.8:
            self.engine.attach(link, credit=100 if link.is_receiver else 0)
        elif mood < 0.9:
            self.engine.refuse(link, ERROR)

    def on_transfers(self, link, deliveries, payloads, kind):
        self.open_deliveries.append((link, deliveries))

    def on_outcomes(self, link, deliveries, outcome, settled):
        self.open_deliveries.append((link, deliveries))

    def on_flow(self, link):
        if self.engine.credit(link) > 0:
            tag = self.moods.randbytes(16)
            settled = self.moods.random() < 0.3
            settled = settled if link.sends_settled is None else link.sends_settled
            sent = self.engine.send(link, [tag], [b"head"], [b"body"], settled)
            self.open_deliveries.append((link, sent))
        self.engine.drained(link)

    def answer(self) -> None:
        """Settle some of what is open, perhaps twice, perhaps too late."""
        while self.open_deliveries and self.moods.random() < 0.6:
            place = self.moods.randrange(len(self.open_deliveries))
            link, deliveries = self.open_deliveries.pop(place)
            mood = self.moods.random()
            if mood < 0.5:
                self.engine.settle(link, deliveries, ACCEPTED)
            elif mood < 0.7:
                self.engine.settle_refused(link, deliveries, ERROR)
            elif mood < 0.8:
                self.engine.settle(link, deliveries, None)
                self.engine.settle(link, deliveries, ACCEPTED)
            elif mood < 0.9:
                self.engine.detach(link, ERROR)


STATES = [
    None,
    accepted(),
    described(0x25),
    described(0x25, 5),
    described(0x27, 1, 2, 3),
    described(0x34, b"t", accepted()),
    described(0x34),
    described(0x99),
    rejected("a:b", "c", {Symbol("k"): 1}),
]


def anything(choose: random.Random) -> bytes:
    """Any frame, sensible or not."""
    handle, channel = choose.randrange(4), choose.choice([0, 0, 0, 1])
    number = choose.choice([0, 1, 2, 3, choose.randrange(20)])
    place: dict[str, Any] = {"handle": handle, "channel": channel}
    makers = [
        lambda: attach_sender(choose.choice("abcd"), **place),
        lambda: attach_receiver(choose.choice("efgh"), **place),
        lambda: frame("attach", "t", UInt(handle), False, None, None, source("s"), described(0x30)),
        lambda: transfer(
            choose.choice([None, number]),
            b"x" * choose.choice([0, 5, 1500]),
            more=choose.choice([None, None, True]),
            aborted=choose.choice([None, None, None, True]),
            settled=choose.choice([None, True]),
            message_format=choose.choice([0, BATCH_FORMAT]),
            state=choose.choice(STATES),
            **place,
        ),
        lambda: flow(
            choose.choice([None, 0, 1, 10]),
            drain=choose.choice([None, True]),
            delivery_count=choose.randrange(3),
            incoming_window=choose.choice([0, 1, 100]),
            **place,
        ),
        lambda: disposition(
            number,
            choose.choice([None, number, number + 5]),
            state=choose.choice(STATES),
            settled=choose.random() < 0.5,
            channel=channel,
            receiver=choose.random() < 0.8,
        ),
        lambda: detach(closed=choose.random() < 0.7, **place),
        lambda: frame("end", channel=channel),
        lambda: begin_frame(channel),
        lambda: EMPTY_FRAME,
        lambda: frame("close"),
    ]
    return choose.choices(makers, weights=[4, 4, 1, 8, 6, 6, 3, 1, 1, 1, 0.2])[0]()


@pytest.mark.parametrize("seed", range(300))
def test_no_stream_of_frames_raises_or_outlives_its_connection(seed):
    """Random frames, some with bytes changed, in random pieces, answered at random."""
    choose = random.Random(seed)
    handler = RandomHandler(choose)
    engine, _ = served(handler, max_message_size_bytes=1000, max_frame_size_bytes=4096)
    engine.feed(HEADER + open_frame() + begin_frame() + begin_frame(1))
    engine.take_output()
    data = bytearray(b"".join(anything(choose) for _ in range(choose.randrange(1, 60))))
    if seed % 3 == 0:
        for _ in range(choose.randrange(1, 6)):
            data[choose.randrange(len(data))] = choose.randrange(256)

    for piece in pieces(bytes(data), lambda: choose.choice([1, 10, 100, 1000])):
        engine.feed(piece)
        if choose.random() < 0.5:
            engine.take_output()
        handler.answer()
    engine.take_output()
    engine.tick(1)
    engine.connection_lost()

    assert all(link.closed for link in handler.links if link.unsettled)
    assert not any(link.unsettled for link in handler.links)
