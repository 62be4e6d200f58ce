"""What a measured message carries, and whether what was received is what was sent.

It knows bytes, not connections. Every body names its run, sender, place and send time; a damaged
message counts as corrupt and, as nobody can tell which it was, also as lost.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = b"plld"
HEAD = Struct(">4sII")
"""Magic, run, body size: the same in every message of a run."""
BODY = Struct(">12sIQQ")
"""Head, sender, sequence, send time in nanoseconds."""
STAMP = Struct(">IQQ")
STAMP_OFFSET = HEAD.size
SEQUENCE_OFFSET = STAMP_OFFSET + 4
MIN_BODY_BYTES = BODY.size

HEADER_SECTION = b"\x00\x53\x70\xc0\x02\x01\x41"
"""Durable, the rest absent."""
DATA_SECTION = b"\x00\x53\x75\xb0"
ALPHABET = bytes(range(ord("a"), ord("z") + 1))


def head(run: int, body_bytes: int) -> bytes:
    return HEAD.pack(MAGIC, run, body_bytes)


def filler(body_bytes: int) -> bytes:
    """What follows the fixed part of a body."""
    count = body_bytes - MIN_BODY_BYTES
    return (ALPHABET * (count // len(ALPHABET) + 1))[:count]


def properties(session_id: bytes) -> bytes:
    """The properties section with a group id, its eleventh field, and nothing else."""
    fields = b"\x40" * 10 + b"\xa1" + bytes([len(session_id)]) + session_id
    return b"\x00\x53\x73\xc0" + bytes([len(fields) + 1, 11]) + fields


def encode(run: int, body_bytes: int, session_id: str = "") -> tuple[bytearray, int]:
    """A whole message with an empty stamp, and where in it the body begins."""
    start = HEADER_SECTION
    if session_id:
        start += properties(session_id.encode())
    start += DATA_SECTION + body_bytes.to_bytes(4, "big")
    body = head(run, body_bytes) + bytes(STAMP.size) + filler(body_bytes)
    return bytearray(start + body), len(start)


def shares(count: int, senders: int) -> list[int]:
    """How many of `count` messages each sender sends."""
    return [count // senders + (index < count % senders) for index in range(senders)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was wrong with what came in. All zero is a clean run."""

    lost: int
    duplicate: int
    corrupt: int
    out_of_order: int
    foreign: int

    @property
    def is_clean(self) -> bool:
        return not (
            self.lost or self.duplicate or self.corrupt or self.out_of_order or self.foreign
        )


class DeliveryChecks:
    """Counts what the messages of one run, received over any number of links, got wrong.

    Messages of one sender may be spread over several links; on each link they must rise. Each
    sender's sequences begin at `first_sequence`.
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
            found_head, sender, sequence, sent_ns = unpack(payload, start)
            if found_head != expected_head:
                self._refuse(payload)
                continue
            if not payload.endswith(expected_filler) or sender >= len(seen):
                self._corrupt += 1
                continue
            marks = seen[sender]
            sequence -= first_sequence
            if not 0 <= sequence < len(marks):
                self._corrupt += 1
                continue
            if marks[sequence]:
                self._duplicate += 1
                continue
            marks[sequence] = 1
            if sequence < last[sender]:
                self._out_of_order += 1
            last[sender] = sequence
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
