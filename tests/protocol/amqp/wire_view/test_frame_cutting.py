"""The bytes of a socket are cut into frames, wherever the reads end."""

from __future__ import annotations

import pytest

from protocol.amqp.wire_view.frame_cutting import KEPT_MAX_BYTES, FrameCutter
from tests.support.amqp_frames import (
    EMPTY_FRAME,
    HEADER,
    SASL_HEADER,
    begin_frame,
    detach,
    frame,
    open_frame,
    transfer,
)

FRAME_MAX_BYTES = 65_536
STREAM = [SASL_HEADER, HEADER, open_frame(), begin_frame(), EMPTY_FRAME, frame("close")]


def cutter(held: bytes = b"") -> FrameCutter:
    return FrameCutter(FRAME_MAX_BYTES, held)


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 50, 1000])
def test_frames_are_found_wherever_reads_end(size):
    data = b"".join(STREAM)
    cut = cutter()
    found = [
        one for start in range(0, len(data), size) for one in cut.cut(data[start : start + size])
    ]
    assert STREAM == [one.kept for one in found]
    assert [len(one) for one in STREAM] == [one.size_bytes for one in found]


def test_a_view_that_begins_within_a_frame_gets_all_of_it():
    data = open_frame()
    assert [data] == [one.kept for one in cutter(data[:20]).cut(data[20:])]


def test_only_the_beginning_of_a_large_frame_is_kept():
    large = transfer(0, b"x" * 50_000)
    (one,) = cutter().cut(large)
    assert (large[:KEPT_MAX_BYTES], len(large)) == (one.kept, one.size_bytes)


@pytest.mark.parametrize("size", [0, 7, FRAME_MAX_BYTES + 1, 1 << 31])
def test_nothing_is_looked_for_after_an_impossible_size(size):
    cut = cutter()
    found = cut.cut(open_frame() + size.to_bytes(4, "big") + b"\x02\0\0\0" + open_frame())
    assert [False, True] == [one.is_unframed for one in found]
    assert [] == cut.cut(open_frame())


def test_frames_that_continue_a_message_are_known():
    """A view may begin between them: a first transfer has a delivery id."""

    found = cutter().cut(
        transfer(None, b"x", handle=0, more=False)
        + transfer(1, b"x", handle=0, more=True)
        + transfer(2, b"x", handle=1, more=False)
        + transfer(3, b"x", handle=0, more=False, channel=1)
        + transfer(1, b"x", handle=0, more=True)
        + transfer(None, b"x", handle=0, more=False)
        + transfer(4, b"x", handle=0, more=True)
        + detach(0)
        + transfer(5, b"x", handle=0, more=True)
        + frame("end")
        + transfer(6, b"x", handle=0, more=False)
    )
    expected = [True, False, False, False, True, True, False, False, False, False, False]
    assert expected == [one.is_continuation for one in found]
