"""Cuts one direction of a connection into frames, and keeps what is needed to decode them later.

Of each frame at most `KEPT_MAX_BYTES` are kept, and at most one incomplete frame. Frames are decoded only when they are
shown, so this costs a few microseconds for each frame.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker.core.contract.errors import UndecodableMessage
from protocol.amqp.frames.performatives import (
    DETACH,
    END,
    FRAME_HEADER_BYTES,
    TRANSFER,
    field_starts,
    is_true_at,
    read_performative,
    uint_at,
)

KEPT_MAX_BYTES = 16 * 1024
"""Frames without a message are not longer; of a message it is far more than is shown."""
PROTOCOL_HEADER_START = b"AMQP"
UNFINISHED_MAX = 10_000
_MORE, _ABORTED = 5, 9

_read_header = struct.Struct(">IBBH").unpack_from


class CutFrame(NamedTuple):
    """A frame or a protocol header."""

    kept: bytes
    """Its beginning, or all of it."""
    size_bytes: int
    is_continuation: bool = False
    """A transfer that continues a message, so its payload begins within the message."""
    is_unframed: bool = False
    """No frame: its size is impossible. Where other frames begin is not known, so nothing follows."""


class FrameCutter:
    """One direction of one connection."""

    def __init__(self, frame_max_bytes: int, held: bytes = b"") -> None:
        """`held` is the beginning of a frame that was read before."""
        self._frame_max_bytes = frame_max_bytes
        self._held = held
        self._needed_bytes = FRAME_HEADER_BYTES
        self._is_unframed = False
        self._unfinished: set[tuple[int, int | None]] = set()
        """Channels and handles of links on which the last transfer has more to come."""

    def cut(self, data: bytes) -> list[CutFrame]:
        """Returns the frames that are complete now."""
        if self._is_unframed:
            return []
        held_bytes = len(self._held) + len(data)
        if held_bytes < self._needed_bytes:
            self._held += data
            return []
        data = self._held + data if self._held else data
        self._held = b""
        self._needed_bytes = FRAME_HEADER_BYTES
        found = []
        position = 0
        while len(data) - position >= FRAME_HEADER_BYTES:
            size, _, _, channel = _read_header(data, position)
            if data.startswith(PROTOCOL_HEADER_START, position):
                size = FRAME_HEADER_BYTES
            elif not FRAME_HEADER_BYTES <= size <= self._frame_max_bytes:
                self._is_unframed = True
                kept = data[position : position + FRAME_HEADER_BYTES]
                found.append(CutFrame(kept, len(data) - position, is_unframed=True))
                return found
            end = position + size
            if end > len(data):
                self._needed_bytes = size
                break
            kept = data[position : min(end, position + KEPT_MAX_BYTES)]
            found.append(CutFrame(kept, size, self._continues(data, position, end, channel)))
            position = end
        self._held = data[position:]
        return found

    def _continues(self, data: bytes, start: int, end: int, channel: int) -> bool:
        """Returns whether a frame is a transfer that continues a message."""
        if end - start < FRAME_HEADER_BYTES + 4 or data[start] == PROTOCOL_HEADER_START[0]:
            return False
        try:
            performative = read_performative(data, start, end)
            if performative is None:
                return False
            if performative.code == TRANSFER:
                starts = field_starts(data, performative, _ABORTED + 1)
                link = channel, uint_at(data, starts, 0)
                # A message begins with a transfer that has a delivery id.
                continues = link in self._unfinished or uint_at(data, starts, 1) is None
                if is_true_at(data, starts, _MORE) and not is_true_at(data, starts, _ABORTED):
                    self._unfinished.add(link)
                else:
                    self._unfinished.discard(link)
                return continues or len(self._unfinished) > UNFINISHED_MAX
            if performative.code == DETACH:
                starts = field_starts(data, performative, 1)
                self._unfinished.discard((channel, uint_at(data, starts, 0)))
            elif performative.code == END:
                self._unfinished = {one for one in self._unfinished if one[0] != channel}
        except (UndecodableMessage, IndexError):
            pass  # it is shown as malformed
        return False
