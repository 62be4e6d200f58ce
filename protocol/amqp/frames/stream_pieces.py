"""The client's bytes as Proton gets them: some frames are changed or dropped, and actions are performed between.

`InputRewriter` makes a list of pieces: bytes for Proton, and actions that Proton would not perform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from protocol.amqp.frames.incoming_sessions import (
        IncomingLink,
        IncomingSession,
        ProtocolViolation,
    )
    from protocol.amqp.frames.sent_deliveries import OutcomeGroup


class InputBytes(NamedTuple):
    """Complete frames for Proton. Proton's events are handled after each of these."""

    data: bytes
    batch: bool = False
    """It is one transfer whose message format is that of a batch."""


class EndSession(NamedTuple):
    """Ends a session with an error."""

    session: IncomingSession
    violation: ProtocolViolation


class WriteOutput(NamedTuple):
    """Writes what the frames so far have caused, after a begin, and before and after the end of a link or a session. At the
    end of the read, Proton would write a begin of an ended session without the client's channel, and messages that a flow
    has released on a link that is not known any more. Other sessions and links can use a channel or handle only when its
    end is written, and transfers are taken only when the begin is."""


class ReplacedLink(NamedTuple):
    """Detaches a link whose name the client has attached again (AMQP 1.0 §2.6.1, link stealing)."""

    link: IncomingLink


class FlowEcho(NamedTuple):
    """Answers a flow with a flow, of a link or of the session."""

    session: IncomingSession
    link: IncomingLink | None


class LostTransactionPart(NamedTuple):
    """Reports that a part of a transaction is not executed."""

    transaction_id: bytes


class Outcomes(NamedTuple):
    """Reports outcomes of messages that the broker sent."""

    groups: list[OutcomeGroup]
    state: bytes = b""
    """The delivery state of all deliveries, encoded, unless a group has the code of an outcome."""


class CloseConnection(NamedTuple):
    """Closes the connection with an error."""

    violation: ProtocolViolation


InputAction = (
    WriteOutput | EndSession | ReplacedLink | FlowEcho | LostTransactionPart | CloseConnection
)
InputPiece = InputBytes | Outcomes | InputAction


class InputRewriter:
    """Makes pieces of one read."""

    __slots__ = ("_parts", "_pieces", "_start", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._start = 0
        """Where the data begins that is not in a piece yet."""
        self._parts: list[bytes] = []
        """The bytes of the piece that is being made."""
        self._pieces: list[InputPiece] = []

    def cut(self, position: int) -> None:
        """Ends the present piece at `position`."""
        start, self._start = self._start, position
        if self._parts:
            if start < position:
                self._parts.append(self.data[start:position])
            self._pieces.append(InputBytes(b"".join(self._parts)))
            self._parts = []
        elif start < position:
            whole = start == 0 and position == len(self.data)
            self._pieces.append(InputBytes(self.data if whole else self.data[start:position]))

    def replace(self, position: int, end: int, frame: bytes = b"") -> None:
        """Replaces the frame from `position` to `end` by another, or drops it."""
        if self._start < position:
            self._parts.append(self.data[self._start : position])
        if frame:
            self._parts.append(frame)
        self._start = end

    def add_batch(self, position: int, end: int, frame: bytes | None) -> None:
        """Makes a piece of the frame from `position` to `end`, or of another in its place."""
        self.cut(position)
        self._pieces.append(InputBytes(frame or self.data[position:end], batch=True))
        self._start = end

    def act(self, position: int, action: InputAction | Outcomes) -> None:
        """Adds an action before the data at `position`."""
        self.cut(position)
        self._pieces.append(action)

    def add_outcomes(self, position: int, end: int, outcomes: Outcomes) -> None:
        """Adds outcomes in place of the frames from `position` to `end`. They are joined with equal ones of the frame
        before."""
        follows = self._pieces and self._start == position and not self._parts
        before = self._pieces[-1] if follows else None
        if isinstance(before, Outcomes) and before.state == outcomes.state:
            before.groups.extend(outcomes.groups)
        else:
            self.act(position, outcomes)
        self.replace(position, end)

    def made(self, end: int) -> list[InputPiece]:
        """Returns all pieces up to `end`."""
        self.cut(end)
        return self._pieces
