"""Frames that the compiled module reads and changes, compared with the decoder of the tests."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import Char, Described, Symbol, UInt, ULong, decode, encode
from protocol.native.compiled import (
    Deliveries,
    SentSession,
    is_plain,
    pump,
    skip_events,
    skip_transfers,
    take_dispositions,
)
from tests.protocol.native.written import (
    DELIVERY,
    FLOW,
    HANDLED,
    UNHANDLED,
    Queued,
    Written,
    transfer,
)
from tests.support.amqp_frames import (
    accepted,
    attach_receiver,
    attach_sender,
    begin_frame,
    described,
    detach,
    disposition,
    flow,
    frames,
)
from tests.support.amqp_frames import transfer as client_transfer

LARGEST = 65_536


SESSION_FILTER: dict[Symbol, object] = {Symbol("com.microsoft:session-filter"): None}
PLAIN_FRAMES = (
    attach_receiver(filters=SESSION_FILTER, properties={Symbol("com.microsoft:timeout"): UInt(9)}),
    attach_sender(),
    begin_frame(),
    detach(),
    flow(10),
)


# --- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", PLAIN_FRAMES)
def test_frames_of_most_clients_are_plain_and_incomplete_ones_are_not(frame):
    assert is_plain(frame, 8, len(frame))
    for end in range(8, len(frame)):
        assert not is_plain(frame, 8, end), end
    assert not is_plain(frame, 8, len(frame) + 1)


@pytest.mark.parametrize(
    "value",
    [
        "é",
        Symbol("é"),
        Char("a"),
        b"\x56\x02",
        b"\xe0\x02\x01\x40",
        {UInt(1): "a"},
        b"\xc1\x02\x01\x40",
    ],
)
def test_what_may_be_malformed_is_left_to_the_decoder(value):
    encoded = value if isinstance(value, bytes) else encode(value)
    for around in (
        encoded,
        b"\x00\x53\x10" + encoded,
        bytes((0xC0, 1 + len(encoded), 1)) + encoded,
    ):
        assert not is_plain(around, 0, len(around))


def test_values_that_are_nested_deeply_are_left_to_the_decoder():
    value: object = None
    for depth in range(20):
        encoded = encode(value)
        assert is_plain(encoded, 0, len(encoded)) is (depth <= 8)
        value = [value] if depth % 2 else Described(ULong(1), value)


@given(
    st.sampled_from(PLAIN_FRAMES),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 200),
)
def test_the_decoder_can_decode_what_is_plain(frame, changes, end):
    """And it does not read beyond the end."""
    changed = bytearray(frame)
    for position, value in changes:
        changed[8 + position % (len(frame) - 8)] = value
    end = min(end, len(frame))
    if is_plain(bytes(changed), 8, end):
        try:
            assert decode(bytes(changed), 8)[1] <= end
        except UndecodableMessage as error:
            pytest.fail(f"{changed.hex()}: {error}")


# --- output ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_transfers_of_registered_links_are_unsettled(piece_bytes):
    """All others stay as they are, wherever Proton's output is cut."""
    output = b"AMQP\x00\x01\x00\x00" + b"".join(
        [
            begin_frame(),
            transfer(0, 1, 0),
            transfer(3, 1, 0, b"y" * 300),
            transfer(0, 2, 1),
            transfer(0, 1, 2),
            flow(5),
        ]
    )
    link = Deliveries(SentSession())
    with Written(output, piece_bytes) as transport:
        changed, ended = pump(transport, {1: link})
    assert not ended
    assert [False, True, True, False] == [
        frame[4] for frame in frames(changed) if frame.name == "transfer"
    ]
    same = [frame.fields for frame in frames(changed) if frame.name != "transfer"]
    assert same == [frame.fields for frame in frames(output) if frame.name != "transfer"]
    assert len(output) == len(changed)
    assert [0, 2] == link.find([0, 1, 2], False)


@pytest.mark.parametrize("skips_flows", [False, True])
@given(events=st.lists(st.sampled_from([DELIVERY, FLOW, HANDLED, *UNHANDLED])))
def test_events_that_nobody_handles_are_skipped(skips_flows, events):
    """Up to the first that somebody handles. Nobody may wait for flows of links."""
    stays = [DELIVERY, HANDLED] if skips_flows else [DELIVERY, FLOW, HANDLED]
    first = next((place for place, one in enumerate(events) if one in stays), len(events))
    with Queued(events) as queue:
        assert (first < len(events)) is skip_events(queue.address, skips_flows)
        assert events[first:] == queue.events


def test_output_without_registered_links_is_not_read():
    """There may be anything in it."""
    with Written(b"anything") as transport:
        assert (b"anything", False) == pump(transport, {})


@given(st.binary(max_size=80), st.integers(0, 60), st.integers(0, 255))
def test_strange_output_is_an_error_or_stays(junk, position, value):
    """It would be a change in Proton. Nothing is read beyond the end."""
    output = bytearray(transfer(0, 1, 0) + junk)
    output[position % len(output)] = value
    link = Deliveries(SentSession())
    with Written(bytes(output)) as transport:
        try:
            changed, _ = pump(transport, {1: link})
        except (TypeError, ValueError):
            return
    assert len(output) == len(changed)


# --- dispositions ----------------------------------------------------------------------------------


def session_with(count: int) -> tuple[SentSession, Deliveries]:
    session = SentSession()
    link = Deliveries(session)
    with Written(b"".join(transfer(0, 1, number) for number in range(count))) as transport:
        pump(transport, {1: link})
    return session, link


states = st.sampled_from(
    [None, accepted(), described(0x26), described(0x27, True), described(0x25), ULong(0x24)]
)


@given(
    st.integers(0, 300),
    st.none() | st.integers(0, 300),
    states,
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_a_disposition_is_taken_as_it_is_or_left(first, last, state, settled, receiver, data):
    """What is taken has exactly the meaning that a decoder finds in it, also if a byte is changed."""
    frame = bytearray(disposition(first, last, state=state, settled=settled, receiver=receiver))
    if data.draw(st.booleans()):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    session, link = session_with(300)
    end, groups = take_dispositions(
        bytes(frame), 0, LARGEST, {0: SimpleNamespace(sent_deliveries=session)}
    )
    if end == 0:
        assert [] == groups
        assert 300 == len(link)
        return
    assert len(frame) == end
    (decoded,) = frames(bytes(frame))
    fields = [*decoded.fields, None, None, None, None][:6]
    assert "disposition" == decoded.name
    assert fields[0] is True
    until = fields[1] if fields[2] is None else fields[2]
    wanted = [number for number in range(fields[1], until + 1) if number < 300]
    assert wanted == [number for _, numbers, _, _ in groups for number in numbers]
    for found, _, code, is_settled in groups:
        assert found is link
        assert (0 if fields[4] is None else fields[4].descriptor) == code
        assert bool(fields[3]) is is_settled
    assert (300 - len(wanted) if fields[3] else 300) == len(link)


def test_dispositions_of_one_meaning_are_one_group():
    """As many clients settle each message in a frame of its own."""
    session, link = session_with(10)
    data = b"".join(disposition(each, state=accepted(), settled=True) for each in range(5))
    data += disposition(5, 6, state=accepted()) + disposition(7, 8, settled=True)
    rest = flow(1) + disposition(9, state=accepted(), settled=True)
    sessions = {0: SimpleNamespace(sent_deliveries=session)}
    end, groups = take_dispositions(data + rest, 0, LARGEST, sessions)
    assert len(data) == end
    assert [
        (link, [0, 1, 2, 3, 4], 0x24, True),
        (link, [5, 6], 0x24, False),
        (link, [7, 8], 0, True),
    ] == groups
    assert [5, 6, 9] == link.numbers()


def test_a_disposition_that_is_not_complete_waits():
    """At every place where a read may end."""
    session, _ = session_with(3)
    sessions = {0: SimpleNamespace(sent_deliveries=session)}
    data = disposition(0, 2, state=accepted())
    for size in range(len(data)):
        assert (0, []) == take_dispositions(data[:size], 0, LARGEST, sessions)


def test_a_disposition_of_an_unknown_session_is_left():
    """Proton refuses it."""
    data = disposition(0, state=accepted())
    assert (0, []) == take_dispositions(data, 0, LARGEST, {})
    assert (0, []) == take_dispositions(data, 0, LARGEST, {0: SimpleNamespace(sent_deliveries=1)})


# --- transfers of clients --------------------------------------------------------------------------


def test_transfers_of_one_layout_are_skipped():
    """Up to one with another id, layout or size."""
    data = b"".join(client_transfer(1000 + number, b"z" * number) for number in range(5))
    first = client_transfer(1000, b"")
    mark = first.index((1000).to_bytes(4))
    tag = mark + 4
    before, tag_size = first[4:mark], first[tag + 1]
    after = first[tag + 2 + tag_size :]
    layout = (before, tag_size, after)
    assert (len(data), 1005) == skip_transfers(data, 0, LARGEST, *layout, 1000)
    assert (0, 999) == skip_transfers(data, 0, LARGEST, *layout, 999)
    assert (0, 1000) == skip_transfers(data, 0, len(first) - 1, *layout, 1000)
    ends = [0]
    for number in range(5):
        ends.append(ends[-1] + len(first) + number)
    for size in range(len(data)):
        end, number = skip_transfers(data[:size], 0, LARGEST, *layout, 1000)
        assert max(each for each in ends if each <= size) == end
        assert 1000 + ends.index(end) == number
    other = data[: len(first)] + client_transfer(1001, b"", settled=True)
    assert (len(first), 1001) == skip_transfers(other, 0, LARGEST, *layout, 1000)
