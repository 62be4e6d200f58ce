"""The bytes of a block: rows of messages, and their bodies.

A block consists of two byte strings. The second has the bodies, one after the other, each followed by its annotations. The
first has everything else, so that a start reads no bodies:

| content | |
|---|---|
| uint8 | version of the format: 1 |
| uint8 | ids of the bodies: 0 own ids, 1 the ids of the rows, in their order |
| uint16 | number of sections |
| uint32 | number of bodies |
| columns | if there are bodies: their ids (if own), their lengths, the lengths of their annotations |
| sections | rows (`broker/core/messages/packed_rows.py`), most of them one section for each queue |

Rows and bodies have slots: their positions in the block, counted over all sections.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Union

from broker.core.messages.packed_columns import (
    Column,
    equal_column,
    packed_column,
    unset_positions,
)
from broker.core.messages.packed_rows import (
    FEW_ROWS,
    PackedRows,
    pack_rows,
    pack_sent_row,
    pack_sent_rows,
    read_ids,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.records import MessageRow, PayloadRow
    from broker.core.contract.sent_rows import SentPayloads, SentRows

BLOCK_MAX_ROWS = 1 << 12
"""Limit of the rows, and of the bodies, in a block. Slots have 16 bits."""
BLOCK_MAX_BYTES = 128 << 10
"""Limit of the bodies in a block. Reading one body reads all of them."""
LARGE_PAYLOAD_BYTES = 16 << 10
"""Larger bodies are not in blocks, so that they are not copied with others."""
_SECTION_MIN_ROWS = 8
"""If queues have fewer rows than this on average, one section has the rows of all queues."""
_VERSION = 1
_HEAD = Struct("<BBHI")
_ONE_MESSAGE_HEAD = _HEAD.pack(_VERSION, 1, 1, 1)
_ID = itemgetter(0)
_QUEUE = itemgetter(1, 2)
_BODY = itemgetter(1)
_ANNOTATIONS = itemgetter(2)

SentMessages = tuple["SentRows", "SentPayloads", int, int]
"""Messages that were sent together, from one position to another."""
Sizes = Union[int, "array[int]"]
"""The size of each body of a block: one number if all are equal."""


class EncodedBlock(NamedTuple):
    """A block to write, and where its rows and bodies are in it."""

    entries: bytes
    payloads: bytes
    ids: Sequence[int]
    """Of the messages, by slot."""
    payload_ids: Sequence[int]
    """Of the bodies, by slot. If they are the ids of the messages, it is the same object."""
    payload_sizes: Sizes


def encode_block(rows: Sequence[MessageRow], payloads: Sequence[PayloadRow]) -> EncodedBlock:
    """Returns rows and bodies as a block. Raises `OverflowError` or `UnicodeEncodeError` for values that have no form."""
    sections = _sections(rows)
    ids = list(map(_ID, rows if len(sections) == 1 else [row for part in sections for row in part]))
    packed = [b"", *map(pack_rows, sections)]
    if not payloads:
        packed[0] = _HEAD.pack(_VERSION, 0, len(sections), 0)
        return EncodedBlock(b"".join(packed), b"", ids, (), 0)
    payload_ids = list(map(_ID, payloads))
    bodies = list(map(_BODY, payloads))
    annotations = list(map(_ANNOTATIONS, payloads))
    sizes = tuple(map(len, bodies))
    annotations_sizes = tuple(map(len, annotations))
    same_ids = payload_ids == ids
    head = _HEAD.pack(_VERSION, int(same_ids), len(sections), len(payloads))
    own_ids = b"" if same_ids else packed_column(tuple(payload_ids))
    packed[0] = b"".join([head, own_ids, packed_column(sizes), packed_column(annotations_sizes)])
    if any(annotations_sizes):
        bodies = [part for _, body, annotation in payloads for part in (body, annotation)]
        sizes = tuple(map(sum, zip(sizes, annotations_sizes, strict=True)))
    if same_ids:
        payload_ids = ids
    return EncodedBlock(b"".join(packed), b"".join(bodies), ids, payload_ids, _sizes(sizes))


def encode_sent_block(sent: Sequence[SentMessages]) -> EncodedBlock:
    """Does the same as `encode_block` for messages that were sent together. Most commits have no others."""
    sections = _sent_sections(sent)
    if sections is None:
        return encode_block(
            [row for rows, _, start, stop in sent for row in rows[start:stop]],
            [one for _, payloads, start, stop in sent for one in payloads[start:stop]],
        )
    ordered = sent if len(sections) == 1 else [one for section in sections for one in section]
    bodies: list[bytes] = []
    annotations: list[bytes] | None = None
    ids: Sequence[int]
    if len(ordered) == 1:
        rows, payloads, start, stop = ordered[0]
        ids = rows.ids[start:stop]
        bodies = list(payloads.bodies[start:stop])
    else:
        ranges = [rows.ids[start:stop] for rows, _, start, stop in ordered]
        if all(before.stop == after.start for before, after in pairwise(ranges)):
            ids = range(ranges[0].start, ranges[-1].stop)
        else:
            ids = list(chain.from_iterable(ranges))
        for _, payloads, start, stop in ordered:
            bodies += payloads.bodies[start:stop]
    if any(payloads.annotations is not None for _, payloads, _, _ in ordered):
        annotations = []
        for _, payloads, start, stop in ordered:
            annotations += (payloads.annotations or [b""] * len(payloads))[start:stop]
    entries = [
        b"",
        *[
            pack_sent_rows([(rows, start, stop) for rows, _, start, stop in one])
            for one in sections
        ],
    ]
    sizes = tuple(map(len, bodies))
    packed_sizes = packed_column(sizes)
    annotations_sizes = equal_column(0)
    if annotations is not None:
        lengths = tuple(map(len, annotations))
        annotations_sizes = packed_column(lengths)
        sizes = tuple(map(sum, zip(sizes, lengths, strict=True)))
        pairs = zip(bodies, annotations, strict=True)
        bodies = [part for pair in pairs for part in pair]
    head = _HEAD.pack(_VERSION, 1, len(sections), len(sizes))
    entries[0] = b"".join([head, packed_sizes, annotations_sizes])
    return EncodedBlock(b"".join(entries), b"".join(bodies), ids, ids, _sizes(sizes))


def encode_sent_message(rows: SentRows, payloads: SentPayloads) -> tuple[bytes, bytes]:
    """Returns the entries and the payloads of a block of one message that was sent alone. Most messages are."""
    body = payloads.bodies[0]
    annotations = b"" if payloads.annotations is None else payloads.annotations[0]
    sizes = equal_column(len(body)) + equal_column(len(annotations))
    return _ONE_MESSAGE_HEAD + sizes + pack_sent_row(rows, 0), body + annotations


def _sent_sections(sent: Sequence[SentMessages]) -> list[list[SentMessages]] | None:
    """Returns sent messages by queue, or None if the queues have few each."""
    if len(sent) == 1:
        return [list(sent)]
    by_queue: dict[tuple[int, int], list[SentMessages]] = {}
    for one in sent:
        by_queue.setdefault((one[0].entity_id, one[0].sub_queue), []).append(one)
    count = sum([stop - start for _, _, start, stop in sent])
    if len(by_queue) > 1 and len(by_queue) * _SECTION_MIN_ROWS > count:
        return None
    return list(by_queue.values())


def _sizes(sizes: tuple[int, ...]) -> Sizes:
    return sizes[0] if sizes.count(sizes[0]) == len(sizes) else array("I", sizes)


def _sections(rows: Sequence[MessageRow]) -> list[Sequence[MessageRow]]:
    if not rows:
        return []
    if len(rows) <= FEW_ROWS:
        return [rows]
    queues = list(map(_QUEUE, rows))
    if queues.count(queues[0]) == len(queues):
        return [rows]
    by_queue: dict[tuple[int, int], list[MessageRow]] = {queue: [] for queue in queues}
    if len(by_queue) * _SECTION_MIN_ROWS > len(rows):
        return [rows]
    for queue, row in zip(queues, rows, strict=True):
        by_queue[queue].append(row)
    return list(by_queue.values())


class StoredBlock:
    """The first byte string of a block, opened for reading."""

    __slots__ = (
        "_annotations_sizes",
        "_body_sizes",
        "_entries",
        "_payload_ids",
        "_position",
        "_sections",
    )

    def __init__(self, entries: bytes) -> None:
        version, same_ids, self._sections, payload_count = _HEAD.unpack_from(entries)
        if version != _VERSION:
            raise ValueError(f"a block of the unknown format {version}")
        self._entries = entries
        self._payload_ids: Column | None = None
        self._body_sizes: Column | None = None
        self._annotations_sizes: Column | None = None
        position = _HEAD.size
        if payload_count:
            if not same_ids:
                self._payload_ids = Column(entries, position, payload_count)
                position = self._payload_ids.end
            self._body_sizes = Column(entries, position, payload_count)
            self._annotations_sizes = Column(entries, self._body_sizes.end, payload_count)
            position = self._annotations_sizes.end
        self._position = position

    def sections(self) -> list[PackedRows]:
        """Returns the rows."""
        position = self._position
        sections = []
        for _ in range(self._sections):
            section = PackedRows(self._entries, position)
            sections.append(section)
            position = section.end
        return sections

    def live_rows(self, dead: int) -> list[MessageRow]:
        """Returns the rows of the slots that are not set in `dead`."""
        rows: list[MessageRow] = []
        for section in self.sections():
            rows += section.live_rows(dead & ((1 << section.count) - 1))
            dead >>= section.count
        return rows

    def ids(self) -> Sequence[int]:
        """Returns the ids of the messages, by slot."""
        if self._sections == 1:
            return read_ids(self._entries, self._position)
        sections = [section.ids() for section in self.sections()]
        return [one for ids in sections for one in ids]

    def payload_ids(self, ids: Sequence[int]) -> Sequence[int]:
        """Returns the ids of the bodies, by slot. `ids` are those of the messages."""
        if self._body_sizes is None:
            return ()
        if self._payload_ids is None:
            return ids
        own: Iterable[int] = self._payload_ids.values(0, self._body_sizes.count)  # type: ignore[assignment]
        return own if isinstance(own, range) else list(own)

    def payload_sizes(self) -> Sizes:
        """Returns the sizes of the bodies with their annotations."""
        bodies, annotations = self._body_sizes, self._annotations_sizes
        if bodies is None or annotations is None:
            return 0
        if bodies.is_equal and annotations.is_equal:
            return bodies.first + annotations.first
        return _sizes(tuple(map(sum, zip(*self._lengths(), strict=True))))

    def _lengths(self) -> tuple[Iterable[int], Iterable[int]]:
        bodies, annotations = self._body_sizes, self._annotations_sizes
        if bodies is None or annotations is None:
            return (), ()
        lengths: tuple[Iterable[int], Iterable[int]]
        lengths = bodies.values(0, bodies.count), annotations.values(0, bodies.count)  # type: ignore[assignment]
        return lengths

    def read_payloads(self, payloads: bytes, slots: Iterable[int]) -> list[tuple[bytes, bytes]]:
        """Returns body and annotations of each slot, from the second byte string of the block."""
        body_sizes, annotations_sizes = map(list, self._lengths())
        ends = list(accumulate(map(sum, zip(body_sizes, annotations_sizes, strict=True))))
        return [
            (
                payloads[
                    ends[slot] - annotations_sizes[slot] - body_sizes[slot] : ends[slot]
                    - annotations_sizes[slot]
                ],
                payloads[ends[slot] - annotations_sizes[slot] : ends[slot]],
            )
            for slot in slots
        ]

    def live_payloads(self, payloads: bytes, dead: int) -> list[tuple[int, bytes, bytes]]:
        """Returns id, body and annotations of the slots that are not set in `dead`."""
        if self._body_sizes is None:
            return []
        ids = self.payload_ids(self.ids() if self._payload_ids is None else ())
        slots = list(unset_positions(dead, len(ids)))
        read = self.read_payloads(payloads, slots)
        return [(ids[slot], *parts) for slot, parts in zip(slots, read, strict=True)]
