"""What a measured message carries, and whether what was received is what was sent.

It knows bytes, not connections. Every body names its run, stream, place and send time; a damaged
message counts as corrupt and, as nobody can tell which it was, also as lost.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAGIC = b"plld"
HEAD = Struct(">4sII")
"""Magic, run, body size: the same in every message of a run."""
BODY = Struct(">12sIQQ")
"""Head, stream, sequence, send time in nanoseconds."""
STAMP = Struct(">IQQ")
STAMP_OFFSET = HEAD.size
MIN_BODY_BYTES = BODY.size

HEADER_SECTION = b"\x00\x53\x70\xc0\x02\x01\x41"
"""Durable, the rest absent."""
DATA_SECTION = b"\x00\x53\x75\xb0"
STREAM_PROPERTY, KIND_PROPERTY, KIND = "stream", "kind", "measured"
ID_BYTES = 28
ID_OFFSET = 8
"""From the start of a properties section to the text of its first field."""
ALPHABET = bytes(range(ord("a"), ord("z") + 1))


def head(run: int, body_bytes: int) -> bytes:
    return HEAD.pack(MAGIC, run, body_bytes)


def filler(body_bytes: int) -> bytes:
    """What follows the fixed part of a body."""
    count = body_bytes - MIN_BODY_BYTES
    return (ALPHABET * (count // len(ALPHABET) + 1))[:count]


def message_annotations(scheduled_ms: int) -> bytes:
    """One annotation: when the message is to be enqueued."""
    entry = _short(b"\xa3", b"x-opt-scheduled-enqueue-time") + b"\x83" + scheduled_ms.to_bytes(8)
    return b"\x00\x53\x72" + _short(b"\xc1", b"\x02" + entry)


def properties(message_id: bytes, session_id: bytes) -> bytes:
    """The first field, the eleventh, and nothing else; the id is where the section's ends."""
    fields = [_short(b"\xa1", message_id) if message_id else b"\x40"]
    if session_id:
        fields += [b"\x40"] * 9 + [_short(b"\xa1", session_id)]
    return b"\x00\x53\x73" + _short(b"\xc0", bytes([len(fields)]) + b"".join(fields))


def application_properties(stream: int) -> bytes:
    """One that tells streams apart, one that all messages share."""
    entries = _short(b"\xa1", STREAM_PROPERTY.encode()) + b"\x71" + stream.to_bytes(4)
    entries += _short(b"\xa1", KIND_PROPERTY.encode()) + _short(b"\xa1", KIND.encode())
    return b"\x00\x53\x74" + _short(b"\xc1", b"\x04" + entries)


def _short(code: bytes, content: bytes) -> bytes:
    """A value with its length in one byte."""
    return code + bytes([len(content)]) + content


class Encoded(NamedTuple):
    """A whole message with an empty stamp, and where in it things are."""

    message: bytearray
    body_at: int
    id_at: int


def encode(
    run: int,
    body_bytes: int,
    *,
    session_id: str = "",
    stream: int | None = None,
    scheduled_ms: int = 0,
    with_id: bool = False,
) -> Encoded:
    """A message of a run: `stream` makes it show its stream in an application property."""
    start = HEADER_SECTION
    id_at = 0
    if scheduled_ms:
        start += message_annotations(scheduled_ms)
    if session_id or with_id:
        empty_id = bytes(ID_BYTES) if with_id else b""
        id_at = len(start) + ID_OFFSET
        start += properties(empty_id, session_id.encode())
    if stream is not None:
        start += application_properties(stream)
    start += DATA_SECTION + body_bytes.to_bytes(4)
    body = head(run, body_bytes) + bytes(STAMP.size) + filler(body_bytes)
    return Encoded(bytearray(start + body), len(start), id_at)


def message_id(run: int, stream: int, sequence: int) -> bytes:
    """No other message of any run has it."""
    return b"%08x%08x%012x" % (run, stream, sequence)


def shares(count: int, streams: int) -> list[int]:
    """How many of `count` messages each stream has."""
    return [count // streams + (index < count % streams) for index in range(streams)]


class Verdict(NamedTuple):
    """What was wrong with what came in. All zero is a clean run."""

    lost: int
    duplicate: int
    corrupt: int
    out_of_order: int
    foreign: int

    @property
    def is_clean(self) -> bool:
        return not any(self)

    @classmethod
    def sum_of(cls, verdicts: Iterable[Verdict]) -> Verdict:
        return cls(*map(sum, zip(*verdicts, strict=True)))


class DeliveryChecks:
    """Counts what the messages of one run, received over any number of links, got wrong.

    Messages of one stream may be spread over several links; on each link they must rise. Each
    stream's sequences begin at `first_sequence`.
    """

    def __init__(
        self,
        run: int,
        body_bytes: int,
        expected: Sequence[int],
        links: int = 1,
        first_sequence: int = 0,
    ) -> None:
        self.latencies_ns = array("q")
        self.received = 0
        self._body_bytes = body_bytes
        self._head = head(run, body_bytes)
        self._filler = filler(body_bytes)
        self._first_sequence = first_sequence
        self._seen = [bytearray(count) for count in expected]
        self._last = [[-1] * len(expected) for _ in range(links)]
        self._duplicate = self._corrupt = self._out_of_order = self._foreign = 0

    def add(self, payloads: Sequence[bytes], link: int, now_ns: int) -> None:
        """Check whole encoded messages in the order one link delivered them."""
        body_bytes, expected_head, expected_filler = self._body_bytes, self._head, self._filler
        unpack, seen, last = BODY.unpack_from, self._seen, self._last[link]
        first_sequence, add_latency = self._first_sequence, self.latencies_ns.append
        self.received += len(payloads)
        for payload in payloads:
            start = len(payload) - body_bytes
            if start < 0:
                self._foreign += 1
                continue
            found_head, stream, sequence, sent_ns = unpack(payload, start)
            if found_head != expected_head:
                self._refuse(payload)
                continue
            if not payload.endswith(expected_filler) or stream >= len(seen):
                self._corrupt += 1
                continue
            marks = seen[stream]
            sequence -= first_sequence
            if not 0 <= sequence < len(marks):
                self._corrupt += 1
                continue
            if marks[sequence]:
                self._duplicate += 1
                continue
            marks[sequence] = 1
            if sequence < last[stream]:
                self._out_of_order += 1
            last[stream] = sequence
            add_latency(now_ns - sent_ns)

    def _refuse(self, payload: bytes) -> None:
        """A message of this run with a damaged head still shows our magic and run somewhere."""
        if self._head[: HEAD.size - 4] in payload:
            self._corrupt += 1
        else:
            self._foreign += 1

    def verdict(self) -> Verdict:
        lost = sum(len(marks) - sum(marks) for marks in self._seen)
        return Verdict(lost, self._duplicate, self._corrupt, self._out_of_order, self._foreign)
