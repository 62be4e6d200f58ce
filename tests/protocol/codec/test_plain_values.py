"""Values that are checked without decoding them, compared with the decoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import Char, Described, Symbol, UInt, ULong, decode, encode, is_plain
from tests.support.amqp_frames import attach_receiver, attach_sender, begin_frame, detach, flow

SESSION_FILTER: dict[Symbol, object] = {Symbol("com.microsoft:session-filter"): None}
PLAIN_FRAMES = (
    attach_receiver(filters=SESSION_FILTER, properties={Symbol("com.microsoft:timeout"): UInt(9)}),
    attach_sender(),
    begin_frame(),
    detach(),
    flow(10),
)


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
