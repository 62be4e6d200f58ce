"""Frames that the compiled module reads and changes, compared with the decoder of the tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp.engine.proton_events import ALL_EVENTS, EVENTS, EVENTS_WITH_FLOWS
from protocol.codec import ULong
from protocol.native.compiled import pump, read_dispositions, skip_transfers
from tests.protocol.native.written import (
    DELIVERY,
    FLOW,
    HANDLED,
    MASK,
    NO_EVENTS,
    UNHANDLED,
    Written,
    transfer,
)
from tests.support.amqp_frames import (
    accepted,
    begin_frame,
    described,
    disposition,
    flow,
    frames,
)
from tests.support.amqp_frames import transfer as client_transfer

LARGEST = 65_536


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
    with Written(output, piece_bytes) as transport:
        changed, ended, runs, _ = pump(transport, {1: None}, NO_EVENTS, b"")
    assert not ended
    assert [False, True, True, False] == [
        frame[4] for frame in frames(changed) if frame.name == "transfer"
    ]
    same = [frame.fields for frame in frames(changed) if frame.name != "transfer"]
    assert same == [frame.fields for frame in frames(output) if frame.name != "transfer"]
    assert len(output) == len(changed)
    assert [(1, 0, 0), (1, 2, 2)] == runs


def test_deliveries_with_consecutive_ids_are_one_run():
    """With several transfers of one delivery, over the end of the ids. Of an unregistered link there are none."""
    written = [(1, MASK - 1), (1, MASK), (1, MASK), (1, 0), (3, 1), (2, 1), (2, 2), (2, 2), (1, 2)]
    written += [(1, 5), (1, 6)]
    with Written(b"".join(transfer(0, *each) for each in written)) as transport:
        _, _, runs, _ = pump(transport, {1: None, 2: None}, NO_EVENTS, b"")
    assert [(1, MASK - 1, 0), (2, 1, 2), (1, 2, 2), (1, 5, 6)] == runs


@pytest.mark.parametrize("stays", [EVENTS, EVENTS_WITH_FLOWS, ALL_EVENTS])
@given(events=st.lists(st.sampled_from([DELIVERY, FLOW, HANDLED, *UNHANDLED])))
def test_events_that_nobody_handles_are_skipped(stays, events):
    """Up to the first that somebody handles. Nobody may wait for flows of links."""
    first = next((place for place, one in enumerate(events) if one in stays), len(events))
    with Written(b"", events=events) as transport:
        *_, has_events = pump(transport, {}, NO_EVENTS, stays)
        assert (first < len(events)) is has_events
        assert events[first:] == Written.events


def test_output_without_registered_links_is_not_read():
    """There may be anything in it."""
    with Written(b"anything") as transport:
        assert (b"anything", False, [], False) == pump(transport, {}, NO_EVENTS, b"")


@given(st.binary(max_size=80), st.integers(0, 60), st.integers(0, 255))
def test_strange_output_is_an_error_or_stays(junk, position, value):
    """It would be a change in Proton. Nothing is read beyond the end."""
    output = bytearray(transfer(0, 1, 0) + junk)
    output[position % len(output)] = value
    with Written(bytes(output)) as transport:
        try:
            changed, _, _, _ = pump(transport, {1: None}, NO_EVENTS, b"")
        except (TypeError, ValueError):
            return
    assert len(output) == len(changed)


# --- dispositions ----------------------------------------------------------------------------------


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
    end, found = read_dispositions(bytes(frame), 0, LARGEST, {0: None})
    if end == 0:
        assert [] == found
        return
    assert len(frame) == end
    (decoded,) = frames(bytes(frame))
    fields = [*decoded.fields, None, None, None, None][:6]
    assert "disposition" == decoded.name
    assert fields[0] is True
    until = fields[1] if fields[2] is None else fields[2]
    code = 0 if fields[4] is None else fields[4].descriptor
    assert [(code << 1 | bool(fields[3]), fields[1], until)] == found


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("state", [None, accepted(), described(0x26)])
def test_a_disposition_of_most_clients_is_taken(state, settled):
    """The test above would also pass if none were."""
    frame = disposition(3, 9, state=state, settled=settled)
    code = 0 if state is None else state.descriptor
    found = read_dispositions(frame, 0, LARGEST, {0: None})
    assert (len(frame), [(code << 1 | settled, 3, 9)]) == found


def test_consecutive_dispositions_of_one_meaning_are_one():
    """As many clients settle each message in a frame of its own."""
    data = b"".join(disposition(each, state=accepted(), settled=True) for each in range(5))
    data += disposition(5, 6, state=accepted()) + disposition(7, 8, settled=True)
    data += disposition(7, 8, settled=True)
    rest = flow(1) + disposition(9, state=accepted(), settled=True)
    end, found = read_dispositions(data + rest, 0, LARGEST, {0: None})
    assert len(data) == end
    assert [
        (0x24 << 1 | 1, 0, 4),
        (0x24 << 1, 5, 6),
        (1, 7, 8),
        (1, 7, 8),
    ] == found


def test_a_disposition_that_is_not_complete_waits():
    """At every place where a read may end."""
    data = disposition(0, 2, state=accepted())
    for size in range(len(data)):
        assert (0, []) == read_dispositions(data[:size], 0, LARGEST, {0: None})
    assert (0, []) == read_dispositions(b"", 0, 100, {})


def test_a_disposition_of_an_unknown_session_is_left():
    """Proton refuses it."""
    data = disposition(0, state=accepted())
    assert (0, []) == read_dispositions(data, 0, LARGEST, {1: None})


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
