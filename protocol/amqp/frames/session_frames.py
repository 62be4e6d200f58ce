"""Frames of sessions and links, except transfers, before Proton gets them.

Changes what Proton would handle differently than the service: Proton closes the connection for an unknown handle or a
link name that is in use, does not answer flows with `echo` or a drain that a later flow ends, and cannot count credit
of 2³¹ or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.errors import UndecodableMessage
from protocol.amqp.frames.delivery_ids import SERIAL_MASK, is_range
from protocol.amqp.frames.incoming_sessions import IncomingLink, ProtocolViolation
from protocol.amqp.frames.performatives import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    TRANSFER,
    Performative,
    disposition_of,
    field_starts,
    frame_of,
    is_true_at,
    transaction_at,
    uint_at,
    with_uint,
)
from protocol.amqp.frames.stream_pieces import (
    CloseConnection,
    EndSession,
    FlowEcho,
    InputRewriter,
    LostTransactionPart,
    Outcomes,
    ReplacedLink,
    WriteOutput,
)
from protocol.codec import UInt, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.amqp.frames.incoming_sessions import IncomingSession, IncomingSessions

CREDIT_MAX = (1 << 31) - 1
"""Proton treats more as negative credit."""

DISPOSITION_MAX_BYTES = 4 * 1024 * 1024
"""Size of a disposition, times the number of its deliveries: Proton keeps a copy for each."""
DISPOSITION_PLAIN_BYTES = 1024
"""Up to this size a disposition may have any number of deliveries."""

_SESSION_FLOW_FIELDS = 4
_STATE_FIELDS = {TRANSFER: 7, DISPOSITION: 4}
_CHANNEL_IN_USE = ProtocolViolation(
    "amqp:not-allowed", "A session was begun on a channel that is in use."
)
_NOT_AN_ANSWER = ProtocolViolation(
    "amqp:not-allowed", "A begin answers a session that the broker did not begin."
)

_BACKWARDS = ProtocolViolation(
    "amqp:invalid-field", "The last delivery of a disposition comes before the first."
)


class Frame(NamedTuple):
    """A complete frame in the client's bytes."""

    start: int
    end: int
    channel: int
    performative: Performative


def inspect_frame_without_session(
    sessions: IncomingSessions, pieces: InputRewriter, frame: Frame
) -> None:
    """Inspects a frame on a channel that has no session."""
    code = frame.performative.code
    if code == BEGIN:
        starts = field_starts(pieces.data, frame.performative, 5)
        if uint_at(pieces.data, starts, 0) is None:
            sessions.begin(frame.channel, uint_at(pieces.data, starts, 4))
            pieces.act(frame.end, WriteOutput())
        else:
            pieces.act(frame.start, CloseConnection(_NOT_AN_ANSWER))
    elif code in (DETACH, END):
        # The Python SDK detaches links of a session that it has just ended. The service ignores this.
        pieces.replace(frame.start, frame.end)


def inspect_frame(
    sessions: IncomingSessions, pieces: InputRewriter, session: IncomingSession, frame: Frame
) -> None:
    """Inspects a frame of a session that is not a transfer."""
    reader = _READERS.get(frame.performative.code)
    if session.discards and frame.performative.code != END:
        _skip_frame(pieces, frame)
    elif reader is not None:
        reader(sessions, pieces, session, frame)


def link_of(
    sessions: IncomingSessions,
    pieces: InputRewriter,
    session: IncomingSession,
    handle: int | None,
    frame: Frame,
) -> IncomingLink | None:
    """Returns the link of a frame, or None if the frame is dropped. Ends the session if the handle is unknown. Drops
    the frame if the link has ended and the client does not know it yet."""
    link = session.links.get(handle or 0)
    if link is None:
        sentence = f"No link is attached to handle {handle or 0}."
        violation = ProtocolViolation("amqp:session:unattached-handle", sentence)
        _end_session(sessions, pieces, session, violation, frame)
    elif link.ended:
        _skip_frame(pieces, frame)
        return None
    return link


def _skip_frame(pieces: InputRewriter, frame: Frame) -> None:
    """Drops a frame of a link or session that has ended. If it belongs to a transaction, that is reported, because the
    transaction must not be committed without it."""
    state_field = _STATE_FIELDS.get(frame.performative.code)
    if state_field is not None:
        starts = field_starts(pieces.data, frame.performative, state_field + 1)
        transaction_id = transaction_at(pieces.data, starts, state_field)
        if transaction_id is not None:
            pieces.act(frame.start, LostTransactionPart(transaction_id))
    pieces.replace(frame.start, frame.end)


def _end_session(
    sessions: IncomingSessions,
    pieces: InputRewriter,
    session: IncomingSession,
    violation: ProtocolViolation,
    frame: Frame,
) -> None:
    """Ends a session and drops the frame."""
    session.discards = True
    sessions.discarding.add(session)
    pieces.act(frame.start, EndSession(session, violation))
    _skip_frame(pieces, frame)


def _begin(_: IncomingSessions, pieces: InputRewriter, __: IncomingSession, frame: Frame) -> None:
    pieces.act(frame.start, CloseConnection(_CHANNEL_IN_USE))


def _end(
    sessions: IncomingSessions, pieces: InputRewriter, session: IncomingSession, frame: Frame
) -> None:
    pieces.act(frame.start, WriteOutput())
    pieces.act(frame.end, WriteOutput())
    sessions.end(session)


def _attach(
    sessions: IncomingSessions, pieces: InputRewriter, session: IncomingSession, frame: Frame
) -> None:
    data, performative = pieces.data, frame.performative
    starts = field_starts(data, performative, 10)
    name = decode(data, starts[0])[0] if performative.field_count else None
    handle = uint_at(data, starts, 1)
    if not isinstance(name, str) or handle is None:
        raise UndecodableMessage("an attach without name or handle")
    if handle in session.links:
        violation = ProtocolViolation("amqp:session:handle-in-use", f"Handle {handle} is in use.")
        _end_session(sessions, pieces, session, violation, frame)
        return
    if len(session.links) > session.handle_max:
        sentence = f"The client takes {session.handle_max + 1} links in this session, and all are attached."
        violation = ProtocolViolation("amqp:resource-limit-exceeded", sentence)
        _end_session(sessions, pieces, session, violation, frame)
        return
    link = IncomingLink(
        handle,
        str(name),
        client_sends=not is_true_at(data, starts, 2),
        initial_delivery_count=uint_at(data, starts, 9) or 0,
        attach_bytes=frame.end - frame.start,
    )
    older = session.names.get((link.name, link.client_sends))
    if older is not None:
        _replace_link(sessions, pieces, session, older, frame)
    sessions.attach(session, link)


def _replace_link(
    sessions: IncomingSessions,
    pieces: InputRewriter,
    session: IncomingSession,
    older: IncomingLink,
    frame: Frame,
) -> None:
    """Detaches an older link, because the frame attaches another with its name. Proton allows one link of a name, so
    it gets a detach of the older one before."""
    pieces.act(frame.start, ReplacedLink(older))
    older.ended = True
    sessions.forget_name(session, older)
    detach = encode(UInt(older.handle)) + encode(True)
    pieces.replace(frame.start, frame.start, frame_of(DETACH, frame.channel, 2, detach))
    pieces.cut(frame.start)


def _detach(
    sessions: IncomingSessions, pieces: InputRewriter, session: IncomingSession, frame: Frame
) -> None:
    starts = field_starts(pieces.data, frame.performative, 1)
    link = session.links.get(uint_at(pieces.data, starts, 0) or 0)
    if link is not None:
        sessions.detach(session, link)
    if link is None or link.ended:
        # It is detached already: both sides may have detached at once. The service ignores this.
        pieces.replace(frame.start, frame.end)
    else:
        pieces.act(frame.start, WriteOutput())
        pieces.act(frame.end, WriteOutput())


def _flow(
    sessions: IncomingSessions, pieces: InputRewriter, session: IncomingSession, frame: Frame
) -> None:
    data, performative = pieces.data, frame.performative
    if performative.field_count <= _SESSION_FLOW_FIELDS:
        return
    starts = field_starts(data, performative, 10)
    handle = uint_at(data, starts, 4)
    link = None
    if handle is not None:
        link = link_of(sessions, pieces, session, handle, frame)
        if link is None:
            return
        if not link.client_sends:
            _credit(pieces, link, starts, frame)
    if is_true_at(data, starts, 9):
        pieces.act(frame.end, FlowEcho(session, link))


def _credit(pieces: InputRewriter, link: IncomingLink, starts: list[int], frame: Frame) -> None:
    """Changes a flow on a link on which the broker sends, if necessary."""
    data, performative = pieces.data, frame.performative
    changed = None
    if (uint_at(data, starts, 6) or 0) > CREDIT_MAX:
        changed = with_uint(data, frame.channel, performative, starts, 6, CREDIT_MAX)
    drain = is_true_at(data, starts, 8)
    if link.drain_waits:
        # The drain must be answered first, so Proton gets only the fields of the session now.
        link.defer_flow(changed or data[frame.start : frame.end], drain=drain)
        session_fields = data[performative.first : starts[_SESSION_FLOW_FIELDS]]
        changed = frame_of(FLOW, frame.channel, _SESSION_FLOW_FIELDS, session_fields)
    elif drain:
        link.drain_waits = True
    if changed is not None:
        pieces.replace(frame.start, frame.end, changed)
    if drain:
        pieces.cut(frame.end)


def _disposition(
    sessions: IncomingSessions, pieces: InputRewriter, session: IncomingSession, frame: Frame
) -> None:
    """Takes the outcomes of messages that the broker sent. Replaces the ids in a disposition of the client's own
    deliveries by Proton's ids."""
    data, performative = pieces.data, frame.performative
    starts = field_starts(data, performative, 5)
    if _is_too_large(starts, pieces, frame):
        sentence = "A disposition of this size has too many deliveries."
        violation = ProtocolViolation("amqp:resource-limit-exceeded", sentence)
        _end_session(sessions, pieces, session, violation, frame)
        return
    first = uint_at(data, starts, 1) or 0
    last = uint_at(data, starts, 2)
    last = first if last is None else last
    if not is_range(first, last):
        pieces.act(frame.start, CloseConnection(_BACKWARDS))  # Proton's condition has a space
        return
    if is_true_at(data, starts, 0):
        _outcomes(sessions, pieces, session, starts, frame, (first, last))
        return
    if not session.ids.renumbered:
        return
    ranges = session.ids.from_client(first, last, settled=is_true_at(data, starts, 3))
    changed = [disposition_of(data, frame.channel, performative, starts, each) for each in ranges]
    pieces.replace(frame.start, frame.end, b"".join(changed))


def _outcomes(
    sessions: IncomingSessions,
    pieces: InputRewriter,
    session: IncomingSession,
    starts: list[int],
    frame: Frame,
    ids: tuple[int, int],
) -> None:
    """Takes the outcomes of messages that the broker sent. Proton does not know their deliveries."""
    data = pieces.data
    first, last = ids
    settled = is_true_at(data, starts, 3)
    has_state = len(starts) > 5 and data[starts[4]] != 0x40
    groups = session.sent_deliveries.take(first, last, 0, settled=settled)
    state = data[starts[4] : starts[5]] if has_state else b""
    pieces.add_outcomes(frame.start, frame.end, Outcomes(groups, state))
    if sessions.ended_with_deliveries and has_state:
        transaction_id = transaction_at(data, starts, 4)
        known = sum(len(numbers) for _, numbers, _, _ in groups)
        if transaction_id is not None and known <= (last - first) & SERIAL_MASK:
            pieces.act(frame.end, LostTransactionPart(transaction_id))


def _is_too_large(starts: list[int], pieces: InputRewriter, frame: Frame) -> bool:
    """Whether the copies of a disposition that Proton keeps would take too much memory."""
    size_bytes = frame.end - frame.start
    if size_bytes <= DISPOSITION_PLAIN_BYTES:
        return False
    first, last = uint_at(pieces.data, starts, 1) or 0, uint_at(pieces.data, starts, 2)
    count = 1 if last is None else ((last - first) & SERIAL_MASK) + 1
    return size_bytes * count > DISPOSITION_MAX_BYTES


_READERS: dict[int, Callable[[IncomingSessions, InputRewriter, IncomingSession, Frame], None]] = {
    BEGIN: _begin,
    ATTACH: _attach,
    FLOW: _flow,
    DISPOSITION: _disposition,
    DETACH: _detach,
    END: _end,
}
