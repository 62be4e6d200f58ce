"""The dispositions that the broker writes itself are the frames that an AMQP encoder writes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from protocol.amqp.frames.delivery_ids import ranges_of
from protocol.amqp.frames.output_frames import sender_dispositions
from protocol.amqp.frames.performatives import DISPOSITION, frame_of
from protocol.codec import UInt, encode

IDS = st.integers(0, 300) | st.integers(0, 2**32 - 1)
HIGHEST = 2**32 - 1


@given(
    st.integers(0, 2**16 - 1),
    st.lists(IDS, unique=True, max_size=6),
    st.binary(max_size=3) | st.binary(min_size=230, max_size=260),
    st.booleans(),
)
@example(0, [1, 2, 3], b"", True)
@example(1, [HIGHEST - 1, HIGHEST, 0], b"", True)
@example(2, [3, 2, 1, 4], b"", False)
def test_a_disposition_is_in_its_shortest_encoding(channel, ids, state, settled):
    """One for each range of ids, in the order of the ids."""
    expected = [
        frame_of(
            DISPOSITION,
            channel,
            5 if state else 4,
            encode(False)
            + encode(UInt(first))
            + encode(None if first == last else UInt(last))
            + encode(settled)
            + state,
        )
        for first, last in ranges_of(ids)
    ]
    assert expected == sender_dispositions(channel, ids, state, settled=settled)
