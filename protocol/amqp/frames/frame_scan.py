"""Inspects a client's bytes, frame by frame, before Proton gets them.

Proton is stricter than the service, and does not report everything that it reads. So the stream is cut into pieces
after which events are handled (a transfer of a batch, a drain), transfers get the delivery ids that Proton expects, and
`session_frames` inspects the other frames. Less than one frame is buffered.

Transfers are the hot path. A client encodes all transfers of a link in the same way, except for id and tag. So one
transfer is read completely, and the next ones are compared with its layout.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.errors import UndecodableMessage
from protocol.amqp.frames.incoming_sessions import ProtocolViolation
from protocol.amqp.frames.performatives import (
    DISPOSITION,
    FRAME_HEADER_BYTES,
    TRANSFER,
    check_values,
    field_starts,
    is_true_at,
    read_performative,
    uint_at,
    with_delivery_id,
)
from protocol.amqp.frames.session_frames import (
    Frame,
    inspect_frame,
    inspect_frame_without_session,
    link_of,
)
from protocol.amqp.frames.stream_pieces import (
    CloseConnection,
    InputBytes,
    InputRewriter,
    Outcomes,
)
from protocol.codec import decode
from protocol.native import compiled

if TYPE_CHECKING:
    from protocol.amqp.frames.incoming_sessions import (
        IncomingLink,
        IncomingSession,
        IncomingSessions,
    )
    from protocol.amqp.frames.sent_deliveries import OutcomeGroup
    from protocol.amqp.frames.stream_pieces import InputPiece

BATCH_NEEDLE = b"\x70\x80\x01\x37\x00"
"""Message format 0x80013700 as a uint: a value this large has only this encoding."""

_PROTOCOL_HEADER_BYTES = 8
_LAYOUT_AFTER_TAG_MAX_BYTES = 64
_CONTROL_FRAME_MAX_BYTES = 16 * 1024
"""Maximum size of a frame that has no message and no outcome. Proton keeps its content decoded, which takes many
times as much memory. No client has link properties of this size."""
_STATE_MAX_BYTES = 1024
"""Maximum size of the state of a transfer: the id of a transaction, and an outcome."""

_TOO_LARGE = CloseConnection(
    ProtocolViolation(
        "amqp:resource-limit-exceeded",
        f"Only transfers and dispositions may have more than {_CONTROL_FRAME_MAX_BYTES} bytes.",
    )
)
_STATE_TOO_LARGE = CloseConnection(
    ProtocolViolation(
        "amqp:resource-limit-exceeded",
        f"The state of a transfer may have at most {_STATE_MAX_BYTES} bytes.",
    )
)
_UNREADABLE = CloseConnection(
    ProtocolViolation("amqp:decode-error", "A frame could not be decoded.")
)

_read_header = struct.Struct(">IBBH").unpack_from


class Layout(NamedTuple):
    """How a client encodes transfers of one frame on a link, except size, id, tag and payload."""

    before: bytes
    """From behind the size of the frame up to the id."""
    tag_size: int
    after: bytes
    """Between tag and payload."""
    session: IncomingSession


class ScanState(Enum):
    """What the input of a connection begins with."""

    PROTOCOL_HEADER = "protocol header"
    FRAMES = "frames"
    UNFRAMED = "unframed"
    """A frame had an impossible size. Proton refuses it, and where other frames begin is not known."""


_PROTOCOL_HEADER, _FRAMES, _UNFRAMED = ScanState
"""A member of an enum is not looked up for each message: that takes longer than calling a function."""


class FrameScan:
    """Cuts the input of one connection into pieces."""

    def __init__(self, max_frame_size_bytes: int, sessions: IncomingSessions) -> None:
        self._max_frame_size_bytes = max_frame_size_bytes
        self._sessions = sessions
        self._held: list[bytes] = []
        """The beginning of a frame that is not complete."""
        self._held_bytes = 0
        self._needed_bytes = _PROTOCOL_HEADER_BYTES
        """How many bytes of it must be there before it is inspected again."""
        self._state = _PROTOCOL_HEADER
        self._layout: Layout | None = None
        """The layout of the link of the last transfer."""

    def split(self, data: bytes) -> list[InputPiece]:
        """Returns the bytes to push and the actions between them, in order."""
        if self._state is _UNFRAMED:
            # Proton has got a frame that it refuses, and where frames begin is not known any more.
            return [InputBytes(data)]
        held_bytes = self._held_bytes + len(data)
        if held_bytes < self._needed_bytes:
            self._held.append(data)
            self._held_bytes = held_bytes
            return []
        if self._held:
            self._held.append(data)
            data = b"".join(self._held)
            self._held.clear()
            self._held_bytes = 0
        self._needed_bytes = FRAME_HEADER_BYTES
        # Messages that come alone nearly always come in reads of one kind of frame.
        position = 0
        outcomes = None
        if self._layout is not None:
            position = self._skip_expected(self._layout, data, 0)
            if position == len(data):
                return [InputBytes(data)]
        elif self._sessions.by_channel:
            position, groups = self._take_dispositions(data, 0)
            outcomes = Outcomes(groups)
            if position == len(data):
                return [outcomes]
        pieces = InputRewriter(data)
        if outcomes is not None and position:
            pieces.add_outcomes(0, position, outcomes)
        end = self._scan(data, pieces, position)
        if end < len(data):
            self._held.append(data[end:])
            self._held_bytes = len(data) - end
        return pieces.made(end)

    @property
    def incomplete_input(self) -> bytes:
        """The beginning of a frame of which the rest has not arrived."""
        return b"".join(self._held)

    def _scan(self, data: bytes, pieces: InputRewriter, position: int) -> int:
        """Inspects every complete frame from `position` on. Returns where they end."""
        largest = self._max_frame_size_bytes
        if self._state is _PROTOCOL_HEADER:
            self._state = _FRAMES
            position = _PROTOCOL_HEADER_BYTES
        last_header = len(data) - FRAME_HEADER_BYTES
        while position <= last_header:
            if self._layout is not None:
                position = self._skip_expected(self._layout, data, position)
            end, groups = self._take_dispositions(data, position)
            if end > position:
                pieces.add_outcomes(position, end, Outcomes(groups))
                position = end
                continue
            if position > last_header:
                break
            size, _, _, channel = _read_header(data, position)
            if size < FRAME_HEADER_BYTES or size > largest:
                self._state = _UNFRAMED
                return len(data)
            end = position + size
            if end > len(data):
                self._needed_bytes = size
                break
            if size == FRAME_HEADER_BYTES:
                position = end
            else:
                position = self._inspect(pieces, position, end, channel)
        return position

    def _take_dispositions(self, data: bytes, position: int) -> tuple[int, list[OutcomeGroup]]:
        """Takes dispositions that need no inspection. Returns where they end, and their outcomes."""
        sessions = self._sessions
        if sessions.discarding or sessions.ended_with_deliveries:
            return position, []
        by_channel = sessions.by_channel
        position, found = compiled.read_dispositions(
            data, position, self._max_frame_size_bytes, by_channel
        )
        groups: list[OutcomeGroup] = []
        for key, first, last in found:
            sent = by_channel[key >> 32].sent_deliveries
            groups += sent.take(first, last, key >> 1 & 0xFF, settled=bool(key & 1))
        return position, groups

    def _skip_expected(self, layout: Layout, data: bytes, position: int) -> int:
        """Skips transfers that need no change: encoded as the last one, with the next id. Returns where they end."""
        before, tag_size, after, session = layout
        ids = session.ids
        assert ids.next_number is not None, "a layout is that of an earlier transfer"
        position, ids.next_number = compiled.skip_transfers(
            data, position, self._max_frame_size_bytes, before, tag_size, after, ids.next_number
        )
        return position

    def _inspect(self, pieces: InputRewriter, position: int, end: int, channel: int) -> int:
        """Inspects the frame at `position`. Returns where to continue."""
        performative = read_performative(pieces.data, position, end)
        if performative is None:
            pieces.act(position, _UNREADABLE)
            return end
        is_control = performative.code not in (TRANSFER, DISPOSITION)
        if is_control and end - position > _CONTROL_FRAME_MAX_BYTES:
            pieces.act(position, _TOO_LARGE)
            return end
        session = self._sessions.by_channel.get(channel)
        frame = Frame(position, end, channel, performative)
        try:
            check_values(pieces.data, position, end, performative)
            if performative.code == TRANSFER and session is not None and not session.discards:
                return self._transfer(pieces, session, frame)
            self._layout = None
            if session is None:
                inspect_frame_without_session(self._sessions, pieces, frame)
            else:
                inspect_frame(self._sessions, pieces, session, frame)
        except UndecodableMessage:
            pieces.act(position, _UNREADABLE)
        return end

    # --- transfers -------------------------------------------------------------------------------

    def _transfer(self, pieces: InputRewriter, session: IncomingSession, frame: Frame) -> int:
        data = pieces.data
        start, end, channel, performative = frame
        if not performative.field_count:
            raise UndecodableMessage("a transfer without handle")
        handle = uint_at(data, field_starts(data, performative, 1), 0)
        link = link_of(self._sessions, pieces, session, handle, frame)
        if link is None:
            self._layout = None
            return end
        if link.layout is not None and link.layout is not self._layout:
            after = self._skip_expected(link.layout, data, start)
            if after > start:
                self._layout = link.layout
                return after
        starts = field_starts(data, performative, 10)
        client_id = uint_at(data, starts, 1)
        more = is_true_at(data, starts, 5)
        aborted = is_true_at(data, starts, 9)
        is_new = link.number is None
        number = self._number(session, link, client_id, settled=is_true_at(data, starts, 4))
        link.number = None
        if aborted:
            session.ids.forget(number)
        elif more:
            link.number = number
            link.layout = self._layout = None
        if len(starts) > 8 and data[starts[7]] != 0x40:
            self._sessions.transactional = True
            decode(data, starts[7])  # see `check_values`
            if starts[8] - starts[7] > _STATE_MAX_BYTES:
                pieces.act(start, _STATE_TOO_LARGE)
        changed = None
        if client_id != number and (is_new or client_id is not None):
            limit = self._max_frame_size_bytes
            place = start, end, channel
            changed = with_delivery_id(data, place, performative, starts, number, limit)
        if len(starts) > 4 and data[starts[3] : starts[4]] == BATCH_NEEDLE:
            pieces.add_batch(start, end, changed)
        elif changed is not None:
            pieces.replace(start, end, changed)
        elif is_new and not more and not aborted:
            self._remember_layout(data, session, link, frame, starts)
        return end

    def _number(
        self, session: IncomingSession, link: IncomingLink, client_id: int | None, *, settled: bool
    ) -> int:
        """Returns Proton's id of the delivery that a transfer belongs to. A transfer after one with `more` belongs to
        the same delivery, whatever its id: the Python SDK writes the id that is next at the time, and the service
        ignores it."""
        ids = session.ids
        number = link.number
        if number is not None:
            if settled:
                ids.forget(number)
            return number
        number = ids.assign(client_id, None if settled else link.open_numbers)
        if ids.renumbered and session not in self._sessions.renumbered:
            self._sessions.renumbered.add(session)
            self._layout = None
            for each in session.links.values():
                each.layout = None
        return number

    def _remember_layout(
        self,
        data: bytes,
        session: IncomingSession,
        link: IncomingLink,
        frame: Frame,
        starts: list[int],
    ) -> None:
        """Keeps the layout of this transfer, unless its id has one byte."""
        if len(starts) < 4 or session.ids.renumbered or data[starts[1]] != 0x70:
            return
        after = data[starts[3] : frame.performative.end]
        if data[starts[2]] != 0xA0 or len(after) > _LAYOUT_AFTER_TAG_MAX_BYTES:
            return
        before = data[frame.start + 4 : starts[1] + 1]
        link.layout = self._layout = Layout(before, data[starts[2] + 1], after, session)
