"""Delivery ids that do not count up one by one: nothing is refused, and every answer carries the
client's own id."""

from __future__ import annotations

import random
import struct
from collections import Counter
from functools import partial
from typing import Any

import pytest
from cproton_ffi import ffi, lib

from protocol.amqp.engine.engine import ACCEPTED, RELEASED, EngineLink
from protocol.amqp.frames.delivery_ids import SERIAL_MASK, DeliveryIds
from protocol.codec import UInt, compound_of, encode
from tests.support.amqp_frames import (
    BATCH_FORMAT,
    EMPTY_FRAME,
    Frame,
    Recorder,
    accepted,
    attach_receiver,
    attach_sender,
    begin_frame,
    detach,
    disposition,
    flow,
    frame,
    frames,
    opened,
    pieces,
    raw_frame,
    say,
    transfer,
)

LAST = SERIAL_MASK


def answered(answers: list[Frame]) -> list[int]:
    """The ids in our dispositions, ranges taken apart."""
    found = []
    for each in answers:
        if each.name == "disposition":
            assert each[0] is True
            last = each[1] if each[2] is None else each[2]
            found += [(each[1] + i) & LAST for i in range(((last - each[1]) & LAST) + 1)]
    return found


@pytest.mark.parametrize(
    "ids",
    [
        [0, 1, 2, 3],
        [7, 8, 9],
        [1, 0, 3, 2],
        [0, 2, 1, 2, 5],
        [5, 5, 5],
        [0, 1, 1, 2, 3],
        [3, 2, 1, 0],
        [LAST - 1, LAST, 0, 1],
        [LAST, LAST - 1, 1, 0],
        [0, LAST, 1 << 31, 77, 300],
    ],
)
def test_every_delivery_is_answered_with_the_id_it_had(ids):
    engine, recorder = opened(attach_sender())

    answers = say(engine, *(transfer(number, b"%d" % i) for i, number in enumerate(ids)))

    assert [b"%d" % i for i in range(len(ids))] == recorder.payloads()
    assert ids == answered(answers)
    assert [] == recorder.of("transport error")


def test_a_delivery_without_an_id_has_the_next():
    engine, recorder = opened(attach_sender())
    bare = transfer(None, b"x", tag=b"t")

    assert [0, 1, 5, 6] == answered(say(engine, bare, bare, transfer(5, b"x"), bare))
    assert 4 == len(recorder.payloads())


def test_frames_of_one_delivery_may_have_any_id():
    """The Python SDK writes the number that is next when it writes the frame."""
    engine, recorder = opened(attach_sender("a", 0), attach_sender("b", 1))

    answers = say(
        engine,
        transfer(0, b"a1", more=True),
        transfer(0, b"b", handle=1),
        transfer(1, b"a2", more=True),
        transfer(None, b"a3", more=True),
        transfer(9, b"a4"),
        transfer(1, b"next"),
    )

    assert [b"b", b"a1a2a3a4", b"next"] == recorder.payloads()
    assert [0, 0, 1] == sorted(answered(answers))


def test_an_aborted_delivery_uses_up_an_id_and_is_forgotten():
    engine, recorder = opened(attach_sender())

    answers = say(
        engine,
        transfer(5, b"x"),
        transfer(5, b"never mind", more=True),
        transfer(8, b"", aborted=True),
        transfer(3, b"y"),
        transfer(4, b"", aborted=True),
        transfer(4, b"z"),
    )

    assert [b"x", b"y", b"z"] == recorder.payloads()
    assert [5, 3, 4] == answered(answers)
    assert_nothing_kept(engine)


def test_sessions_count_for_themselves_and_a_channel_may_be_used_again():
    engine, recorder = opened(begin_frame(5), attach_sender("a"), attach_sender("b", channel=5))

    first = say(engine, transfer(3, b"x"), transfer(1, b"x"), transfer(0, b"y", channel=5))
    assert [(3, 0), (1, 0), (0, 1)] == [
        (each[1], each.channel) for each in first if each.name == "disposition"
    ]
    say(engine, frame("end"), begin_frame(), attach_sender("c"))
    assert [0, 1, 2] == answered(say(engine, *(transfer(number, b"z") for number in range(3))))
    assert [1, 1, 9] == answered(say(engine, *(transfer(n, b"z", channel=5) for n in [1, 1, 9])))
    assert 9 == len(recorder.payloads())
    assert [] == recorder.of("transport error")


def test_begin_transfers_and_end_in_one_read_leave_nothing_behind():
    engine, _ = opened()
    for _ in range(50):
        cycle = begin_frame(1) + attach_sender(channel=1)
        cycle += transfer(5, b"x", channel=1) + transfer(2, b"x", channel=1)
        answers = say(engine, cycle + frame("end", channel=1))
        names = [each.name for each in answers]
        assert ["begin", "attach", "flow", *["disposition"] * 2, "end"] == names

    sessions = engine._sessions
    assert [] == sessions.unanswered
    assert set() == sessions.renumbered
    assert 1 == len(sessions.by_channel)
    assert not sessions.watches_output


def assert_nothing_kept(engine: Any) -> None:
    for session in engine._sessions.by_channel.values():
        assert {} == session.ids._client_ids
        assert {} == session.ids._numbers
        assert not any(link.open_numbers for link in session.links.values())


def test_settled_deliveries_are_forgotten():
    """However they are settled: by us, by the client, as they come, or with their link."""
    engine, recorder = opened(attach_sender(), handler=Recorder(accepts=False))
    say(engine, transfer(9, b"x"))
    for number in range(3):
        say(engine, transfer(number, b"settled", settled=True))
        say(engine, transfer(number, b"later", more=True), transfer(None, b"x", settled=True))
    assert_nothing_kept(engine)
    say(engine, transfer(9, b"x"), disposition(9, receiver=False, settled=True))
    assert_nothing_kept(engine)
    say(engine, *(transfer(number, b"x") for number in range(6)))
    assert 6 == len(engine._sessions.by_channel[0].ids._client_ids)
    deliveries = [call[2][0] for call in recorder.calls[-6:]]
    assert [0, 1] == answered(settled(engine, recorder, deliveries[:2]))
    say(engine, disposition(2, 3, receiver=False, settled=True))
    assert 2 == len(engine._sessions.by_channel[0].ids._client_ids)
    say(engine, detach())
    assert_nothing_kept(engine)


def settled(engine: Any, recorder: Recorder, deliveries: list[Any]) -> list[Frame]:
    engine.settle(recorder.links[-1], deliveries, ACCEPTED)
    return frames(engine.take_output())


def test_outcomes_of_a_range_are_split_where_ids_do_not_follow_each_other():
    engine, recorder = opened(attach_sender(), handler=Recorder(accepts=False))
    say(engine, *(transfer(number, b"x") for number in [0, 1, 2, 2, 3, 9, 8]))
    deliveries = [each for call in recorder.of("transfers") for each in call[1]]

    engine.settle(recorder.links[0], deliveries, RELEASED)
    answers = frames(engine.take_output())

    assert [(0, 2), (2, 3), (9, 9), (8, 8)] == [(each[1], each[2]) for each in answers]
    assert {0x26} == {each[4].descriptor for each in answers}


def settled_by_client(link: EngineLink, deliveries: list[Any]) -> list[bool]:
    """Whether Proton has heard that the client settled each of these deliveries."""
    addresses = link.received_deliveries.unsettled
    pointers = [ffi.cast("pn_delivery_t *", addresses[each]) for each in deliveries]
    return [bool(lib.pn_delivery_settled(pointer)) for pointer in pointers]


def test_the_senders_dispositions_reach_the_deliveries_it_means():
    engine, recorder = opened(attach_sender(), handler=Recorder(accepts=False))
    say(engine, *(transfer(number, b"%d" % number) for number in [10, 11, 13, 12, 12, 20]))
    deliveries = [each for call in recorder.of("transfers") for each in call[1]]

    say(engine, disposition(11, 12, receiver=False, settled=True))

    told = settled_by_client(recorder.links[0], deliveries)
    assert [False, True, False, True, True, False] == told
    say(engine, disposition(99, 120, receiver=False, settled=True))
    assert told == settled_by_client(recorder.links[0], deliveries)
    assert [] == recorder.of("transport error")


def test_a_receivers_dispositions_are_left_alone():
    """They contain the broker's own delivery ids, also in a session that is renumbered."""
    engine, recorder = opened(
        attach_sender("to", 0), attach_receiver("from", 1), flow(10, handle=1)
    )
    say(engine, transfer(5, b"x"), transfer(2, b"y"))
    engine.send(recorder.links[1], [b"a", b"b"], [b"h"] * 2, [b"b"] * 2, False)
    engine.take_output()

    answers = say(engine, disposition(0, 1, state=accepted()))

    ((_, deliveries, outcome, _),) = recorder.of("outcomes")
    assert (2, ACCEPTED) == (len(deliveries), outcome)
    assert [(False, 0, 1)] == [tuple(each.fields[:3]) for each in answers]


@pytest.mark.parametrize("size", [65_536, 65_535, 65_534])
def test_a_full_frame_takes_a_longer_id(size):
    """Proton refuses a frame that is larger than announced, so the id is sent before in its own
    frame."""
    engine, recorder = opened(attach_sender())
    say(engine, transfer(70_000, b"first"))
    start = b"\x00\x53\x14\xc0\x04\x02\x43\x52\x07"
    payload = bytes(size - 8 - len(start))

    answers = say(engine, raw_frame(start + payload), transfer(7, b"next"))

    assert [b"first", payload, b"next"] == recorder.payloads()
    assert [7, 7] == answered(answers)


def long_transfer(number: int, payload: bytes) -> bytes:
    """Long descriptor, long list, long tag, and an extended frame header."""
    fields = encode(UInt(0)) + b"\x70" + number.to_bytes(4, "big") + b"\xb0\x00\x00\x00\x01t"
    count = struct.pack(">BII", 0xD0, len(fields) + 4, 3)
    body = b"ext!" + b"\x00\x80" + (0x14).to_bytes(8, "big") + count + fields + payload
    return struct.pack(">IBBH", len(body) + 8, 3, 0, 0) + body


def short_transfer(number: int, payload: bytes) -> bytes:
    fields = b"\x43\x52" + bytes([number]) + b"\xa0\x01t"
    return raw_frame(b"\x00\x53\x14" + compound_of(0xC0, 3, fields) + payload)


STREAM = b"".join(
    [
        transfer(300, b"one", tag=b"0123456789abcdef"),
        transfer(301, b"two", tag=b"0123456789abcdef"),
        long_transfer(302, b"three"),
        short_transfer(7, b"four"),
        long_transfer(3, b"five"),
        EMPTY_FRAME,
        transfer(300, b"six, ", more=True, message_format=BATCH_FORMAT),
        transfer(9, b"seven", handle=1),
        transfer(301, b"and more"),
        transfer(2, b"", aborted=True),
        transfer(2, b"eight", settled=True),
        transfer(None, b"nine"),
    ]
)


def led(cuts: list[bytes], *, flush_often: bool) -> tuple[list[Any], Counter[int]]:
    """What arrived, and which ids were answered."""
    engine, recorder = opened(attach_sender("a", 0), attach_sender("b", 1))
    output = b""
    for cut in cuts:
        engine.feed(cut)
        output += engine.take_output() if flush_often else b""
    output += engine.take_output()
    assert [] == recorder.of("transport error")
    heard = [
        (link.name, payload, kind)
        for link, _, payloads, kind in recorder.of("transfers")
        for payload in payloads
    ]
    engine.connection_lost()
    return heard, Counter(answered(frames(output)))


def test_every_split_point_gives_the_same_answers():
    whole = led([STREAM], flush_often=False)
    assert 9 == len(whole[0])
    assert {300: 2, 301: 1, 302: 1, 7: 1, 3: 2, 9: 1} == whole[1]
    for position in range(1, len(STREAM)):
        cuts = [STREAM[:position], STREAM[position:]]
        assert whole[0] == led(cuts, flush_often=True)[0], position
    assert whole[0] == led([STREAM[i : i + 1] for i in range(len(STREAM))], flush_often=True)[0]


# --- at random, against a model that does not renumber ---------------------------------------------


class Model:
    """Deliveries of a session by what the client wrote, one list for all."""

    def __init__(self) -> None:
        self.client_ids: list[int] = []
        """Of all deliveries there ever were, in Proton's order."""
        self.open: set[int] = set()
        """Which of them are not settled."""


@pytest.mark.parametrize("seed", range(200))
def test_the_map_agrees_with_a_model_that_keeps_everything(seed):
    choose = random.Random(seed)
    start = choose.choice([0, 5, LAST - 3, (1 << 31) - 2])
    ids, model, unsettled = DeliveryIds(), Model(), set[int]()
    client_id = start
    for _ in range(200):
        move = choose.random()
        if move < 0.5:
            presettled = choose.random() < 0.2
            number = ids.assign(client_id, None if presettled else unsettled)
            assert (start + len(model.client_ids)) & LAST == number
            if not presettled:
                model.open.add(len(model.client_ids))
            model.client_ids.append(client_id)
            step = choose.choice([1, 1, 1, 1, 0, 2, -1, 5]) if seed % 4 else 1
            client_id = (client_id + step) & LAST
        elif move < 0.8 and model.open:
            first = last = choose.choice(sorted(model.open))
            while last + 1 in model.open and choose.random() < 0.8:
                last += 1
            settles = choose.random() < 0.8
            told = ids.to_client((start + first) & LAST, (start + last) & LAST, settled=settles)
            assert model.client_ids[first : last + 1] == taken_apart(told)
            if settles:
                model.open -= set(range(first, last + 1))
        elif model.open:
            place = choose.choice(sorted(model.open))
            first_id = model.client_ids[place]
            count = choose.choice([1, 1, 3, 10])
            meant = {
                each for each in model.open if (model.client_ids[each] - first_id) & LAST < count
            }
            settles = choose.random() < 0.5
            told = ids.from_client(first_id, (first_id + count - 1) & LAST, settled=settles)
            numbers = {(number - start) & LAST for number in taken_apart(told)}
            assert meant <= numbers
            assert not (numbers - meant) & model.open
            if settles:
                model.open -= meant
        kept = {(number - start) & LAST for number in ids._client_ids}
        assert kept <= model.open
        assert {(number - start) & LAST for number in unsettled} == kept


def taken_apart(ranges: list[tuple[int, int]]) -> list[int]:
    return [
        (first + i) & LAST for first, last in ranges for i in range(((last - first) & LAST) + 1)
    ]


@pytest.mark.parametrize("seed", range(120))
def test_any_ids_on_any_links_in_any_pieces_are_answered_once_each(seed):
    """Several links on two sessions, deliveries cut into frames and interleaved, some aborted or
    settled: what arrives and what is answered is what a broker without ids would do."""
    choose = random.Random(seed)
    handler = Recorder(accepts=False)
    engine, _ = opened(
        begin_frame(3),
        *(attach_sender(f"{c}{h}", h, channel=c) for c in (0, 3) for h in (0, 1, 300)),
        handler=handler,
    )
    data = b""
    pending: dict[tuple[int, int], tuple[int, bytes, bool]] = {}
    expected: Counter[tuple[int, bytes]] = Counter()
    answers: Counter[tuple[int, int]] = Counter()
    next_id = {0: choose.choice([0, 250, LAST - 5]), 3: choose.randrange(1 << 32)}
    for _ in range(150):
        channel, handle = choose.choice([0, 0, 3]), choose.choice([0, 1, 300])
        key = channel, handle
        more, aborted = choose.random() < 0.3, choose.random() < 0.05
        payload = b"" if aborted else choose.randbytes(choose.choice([1, 5, 300]))
        step = choose.choice([1, 1, 1, 0, 2, -1]) if seed % 3 else 1
        written: int | None = next_id[channel]
        if key in pending:
            written = choose.choice([None, pending[key][0], written]) if seed % 3 else None
            first_id, before, settled_ = pending.pop(key)
        else:
            first_id, before, settled_ = next_id[channel], b"", choose.random() < 0.2
            next_id[channel] = (first_id + step) & LAST
        data += transfer(
            written,
            payload,
            handle=handle,
            channel=channel,
            more=more or None,
            aborted=aborted or None,
            settled=settled_ or None,
            tag=choose.choice([b"t", b"0123456789abcdef"]),
        )
        if aborted:
            continue
        if more:
            pending[key] = first_id, before + payload, settled_
        else:
            expected[channel, before + payload] += 1
            if not settled_:
                answers[channel, first_id] += 1
    output = b""
    for piece in pieces(data, partial(choose.choice, [1, 10, 100, 1000])):
        engine.feed(piece)
        if choose.random() < 0.3:
            output += engine.take_output()
            output += settle_some(engine, handler, choose, 0.5)
    output += engine.take_output() + settle_some(engine, handler, choose, 1.0)

    assert [] == handler.of("transport error")
    arrived = Counter(
        (0 if link.name[0] == "0" else 3, payload)
        for link, _, payloads, _ in handler.of("transfers")
        for payload in payloads
    )
    assert expected == arrived
    own_channels = {0: 0, 1: 3}
    told: Counter[tuple[int, int]] = Counter()
    for each in frames(output):
        told.update((own_channels[each.channel], number) for number in answered([each]))
    assert answers == told
    if not pending:
        assert_nothing_kept(engine)


def settle_some(engine: Any, handler: Recorder, choose: random.Random, share: float) -> bytes:
    """Answer what has arrived, in any order."""
    waiting = [
        (link, delivery, kind.settled)
        for link, deliveries, _, kind in handler.of("transfers")
        for delivery in deliveries
        if delivery in link.unsettled
    ]
    choose.shuffle(waiting)
    for link, delivery, presettled in waiting[: int(len(waiting) * share)]:
        engine.settle(link, [delivery], None if presettled else ACCEPTED)
    return bytes(engine.take_output())
