"""The frame scan: finds batch transfers at every split point and in any input. Also changes to
Proton's output."""

from __future__ import annotations

import random
import struct

import pytest

from protocol.amqp.frames.frame_scan import BATCH_NEEDLE, FrameScan
from protocol.amqp.frames.incoming_sessions import IncomingSessions
from protocol.amqp.frames.output_frames import (
    LinkFlow,
    last_attach,
    with_link_flow,
    without_bare_settlements,
)
from protocol.amqp.frames.stream_pieces import InputBytes, WriteOutput
from tests.support.amqp_frames import (
    BATCH_FORMAT,
    EMPTY_FRAME,
    HEADER,
    accepted,
    attach_receiver,
    attach_sender,
    begin_frame,
    disposition,
    flow,
    frame,
    frames,
    open_frame,
    pieces,
    raw_frame,
    transfer,
)

MAX_FRAME_BYTES = 65_536
SETUP = (
    HEADER
    + open_frame()
    + begin_frame()
    + attach_sender("a", 0)
    + attach_sender("b", 7)
    + attach_sender("c", 300)
    + attach_sender("d", 70_000)
)


def a_scan() -> FrameScan:
    return FrameScan(MAX_FRAME_BYTES, IncomingSessions())


def through(scan: FrameScan, chunk: bytes) -> bytes:
    """Returns the output of the scan for these bytes, which must be bytes only."""
    found = b""
    for piece in scan.split(chunk):
        if not isinstance(piece, WriteOutput):
            assert isinstance(piece, InputBytes)
            found += piece.data
    return found


def scanned(chunks: list[bytes]) -> tuple[bytes, list[tuple[int, int]]]:
    """What came through, and the ranges of it that are batches."""
    scan = a_scan()
    whole = b""
    batches: list[tuple[int, int]] = []
    for chunk in chunks:
        for piece in scan.split(chunk):
            if isinstance(piece, WriteOutput):
                continue
            assert isinstance(piece, InputBytes)
            if piece.batch:
                batches.append((len(whole), len(whole) + len(piece.data)))
            whole += piece.data
    return whole, batches


def stream(random_source: random.Random, count: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A client's bytes, and the ranges that are frames of batches."""
    data = SETUP
    batches = []
    for number in range(count):
        batch = random_source.random() < 0.3
        payload = random_source.choice(
            [b"x" * random_source.randint(1, 300), BATCH_NEEDLE * 5, b"y" * 3000, b""]
        )
        tag = random_source.randbytes(random_source.choice([0, 1, 4, 16, 32]))
        part = transfer(
            number,
            payload,
            handle=random_source.choice([0, 7, 300]),
            tag=random_source.choice([tag, BATCH_NEEDLE]),
            message_format=BATCH_FORMAT if batch else random_source.choice([0, None, 1]),
        )
        if batch:
            batches.append((len(data), len(data) + len(part)))
        data += part
        if random_source.random() < 0.1:
            data += EMPTY_FRAME
    return data, batches


@pytest.mark.parametrize("seed", range(10))
def test_random_fragments_show_the_same_batches(seed):
    """However a stream is cut, exactly its batch transfers are found, and no byte is lost."""
    random_source = random.Random(seed)
    data, batches = stream(random_source, 200)

    cut = list(pieces(data, lambda: random_source.choice([1, 3, 7, 50, 500, 4000, 70_000])))

    assert (data, batches) == scanned(cut)


def test_every_single_split_shows_the_same_batches():
    data, batches = stream(random.Random(7), 6)
    for position in range(1, len(data)):
        assert (data, batches) == scanned([data[:position], data[position:]]), position


def test_byte_by_byte_shows_the_same_batches():
    data, batches = stream(random.Random(8), 20)

    assert (data, batches) == scanned([data[i : i + 1] for i in range(len(data))])


@pytest.mark.parametrize(
    ("transfer_frame", "expected"),
    [
        (transfer(0, b"x", message_format=BATCH_FORMAT), True),
        (transfer(0, b"x", message_format=0), False),
        (transfer(0, BATCH_NEEDLE, message_format=0), False),
        (transfer(0, BATCH_NEEDLE, message_format=None), False),
        (transfer(0, b"x", tag=BATCH_NEEDLE * 6, message_format=1), False),
        (transfer(0, b"x", tag=b"", message_format=BATCH_FORMAT), True),
        (transfer(70_000, b"x", handle=70_000, message_format=BATCH_FORMAT), True),
        (frame("flow", None, BATCH_NEEDLE), False),
        (
            raw_frame(b"\x00\x53\x14\xd0\0\0\0\x11\0\0\0\x04\x43\x43\xb0\0\0\0\1t" + BATCH_NEEDLE),
            True,
        ),
        (raw_frame(b"\x00\x53\x14\xc0\x09\x04\x43\x43\x40" + BATCH_NEEDLE), True),
        (
            raw_frame(b"\x00\x80" + bytes(7) + b"\x14\xc0\x0b\x04\x43\x43\xa0\1t" + BATCH_NEEDLE),
            True,
        ),
        (raw_frame(b"\x00\x53\x14\xc0\x09\x03\x43\x43\xa0\1t" + BATCH_NEEDLE), False),
        (
            # An extended frame header, which a frame's data offset may announce.
            struct.pack(">IBBH", 26, 3, 0, 0)
            + b"ext!"
            + b"\x00\x53\x14\xc0\x09\x04\x43\x43\x40"
            + BATCH_NEEDLE,
            True,
        ),
    ],
)
def test_a_batch_is_recognised_by_its_message_format_alone(transfer_frame, expected):
    """Not by bytes that look like it elsewhere in the frame, whole or cut anywhere."""
    data = SETUP + transfer_frame + EMPTY_FRAME
    found = [(len(SETUP), len(SETUP) + len(transfer_frame))] if expected else []
    for position in range(len(SETUP) + 1, len(data) + 1):
        assert (data, found) == scanned([data[:position], data[position:]]), position


@pytest.mark.parametrize("size", [0, 1, 7, MAX_FRAME_BYTES + 1, 0xFFFFFFFF])
def test_an_impossible_size_stops_the_scan_but_nothing_is_lost(size):
    """Proton gets every byte and refuses the frame; nothing is kept and nothing loops."""
    data = HEADER + open_frame() + struct.pack(">IBBH", size, 2, 0, 0) + BATCH_NEEDLE * 3
    scan = a_scan()
    whole = b"".join(through(scan, bytes([byte])) for byte in data)

    assert data == whole
    more = transfer(0, b"x", message_format=BATCH_FORMAT)
    assert [InputBytes(more)] == scan.split(more)


def test_less_than_a_frame_is_ever_held_back():
    """Not even for a frame that claims a tag longer than itself."""
    scan = a_scan()
    scan.split(HEADER)
    body = b"\x00\x53\x14\xd0\0\0\xff\0\0\0\0\x04\x43\x43\xb0\xff\xff\xff\xff"
    data = raw_frame(body + bytes(60_000))
    for chunk in pieces(data, lambda: 1000):
        scan.split(chunk)
        assert scan._held_bytes == sum(map(len, scan._held)) < MAX_FRAME_BYTES
    assert [] == scan._held


def test_the_last_attach_has_channel_and_handle():
    data = HEADER + open_frame() + attach_receiver("a", 3, channel=5) + attach_receiver("b", 700)

    assert (0, 700) == last_attach(data)
    assert (5, 3) == last_attach(attach_receiver("a", 3, channel=5))
    assert last_attach(HEADER + open_frame()) is None


def test_a_session_flow_becomes_a_drained_link_flow():
    """Only the first flow on the channel; all else stays as it was."""
    before = flow(channel=1) + transfer(0, b"x")
    after = flow(3, handle=4) + flow()

    (other, message, answer, link_flow, session_flow) = frames(
        with_link_flow(before + flow() + after, 0, LinkFlow(9, 1234, drain=True))
    )

    assert frames(before) == [other, message]
    assert frames(after) == [link_flow, session_flow]
    assert [*frames(flow())[0].fields, 9, 1234, 0, None, True] == answer.fields


def test_a_flow_of_another_link_is_followed_by_the_flow_of_a_link():
    """If the session has a link on which the client sends, Proton's flow is about that link."""
    before = flow(3, handle=4)

    first, answer = frames(with_link_flow(before, 0, LinkFlow(9, 1234, 5)))

    assert frames(before) == [first]
    assert [*frames(flow())[0].fields, 9, 1234, 5, None, False] == answer.fields


def test_bare_settlements_are_left_out_and_nothing_else():
    kept = [transfer(0, b"x"), disposition(1, state=accepted(), settled=True), flow()]
    bare = disposition(0, 5, settled=True)

    assert b"".join(kept) == without_bare_settlements(bare.join([b"", *kept, b""]))
