"""Pieces of a client's stream: bytes for Proton, and what is to be done between them.

Owns how an inbound stream is put together again where some frames are changed, left out or answered
in another way than Proton would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from protocol.amqp.frames.incoming_sessions import (
        IncomingLink,
        IncomingSession,
        ProtocolViolation,
    )


class InputBytes(NamedTuple):
    """Whole frames for Proton. Events must be looked at after each of these."""

    data: bytes
    batch: bool = False
    """It is one transfer of a batch."""


class EndSession(NamedTuple):
    """End a session, and say why."""

    session: IncomingSession
    violation: ProtocolViolation


class ReplacedLink(NamedTuple):
    """End a link whose name the client has attached again (AMQP 1.0, 2.6.1: link stealing)."""

    link: IncomingLink


class FlowEcho(NamedTuple):
    """Answer a flow with a flow, of a link or of the session alone."""

    session: IncomingSession
    link: IncomingLink | None


class LostTransactionPart(NamedTuple):
    """Report that a part of a transaction will not be executed."""

    transaction_id: bytes


class LateSettlement(NamedTuple):
    """Push a disposition in a transaction, and check whether Proton still knows the deliveries."""

    frame: bytes
    transaction_id: bytes
    delivery_count: int


class CloseConnection(NamedTuple):
    """Close the connection, and say why."""

    violation: ProtocolViolation


InputAction = (
    EndSession | ReplacedLink | FlowEcho | LostTransactionPart | LateSettlement | CloseConnection
)
InputPiece = InputBytes | InputAction


class InputRewriter:
    """Cuts some data into pieces."""

    __slots__ = ("_parts", "_pieces", "_start", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._start = 0
        """What has not been put into a piece yet starts here."""
        self._parts: list[bytes] = []
        """What has been put into the piece that is being made."""
        self._pieces: list[InputPiece] = []

    def cut(self, position: int) -> None:
        """End the piece that is being made at `position`."""
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
        """Give Proton another frame than the one that stands there, or none."""
        if self._start < position:
            self._parts.append(self.data[self._start : position])
        if frame:
            self._parts.append(frame)
        self._start = end

    def add_batch(self, position: int, end: int, frame: bytes | None) -> None:
        """Let the frame that stands there, or another in its place, be a piece of its own."""
        self.cut(position)
        self._pieces.append(InputBytes(frame or self.data[position:end], batch=True))
        self._start = end

    def act(self, position: int, action: InputAction) -> None:
        """Have something done before what stands at `position` is pushed."""
        self.cut(position)
        self._pieces.append(action)

    def made(self, end: int) -> list[InputPiece]:
        """All pieces up to `end`."""
        self.cut(end)
        return self._pieces
