"""The interface of a queue to delivery: one implementation without sessions, one with sessions.

`dispatcher.py` delivers all ready messages to all receivers in turn. `sessions.py` delivers the messages of
each session to the receiver that holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.commands import RequestOrigin, SessionRequest
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.queues.dispatcher import MessageForwarder
    from broker.core.queues.packed_messages import PackedMessages
    from broker.core.queues.receiver import Receiver


class DeliverySource(Protocol):
    """Delivers the messages of a queue."""

    @property
    def requires_sessions(self) -> bool:
        """Whether each message belongs to a session. If so, the lock of the session replaces the
        deadlines of message locks."""

    @property
    def state_bytes(self) -> int:
        """The size of all session states."""

    def enter(self, messages: Iterable[Message]) -> None:
        """Messages have entered the queue, in any state, and have their sequence numbers."""

    def enter_late(self, messages: Sequence[Message]) -> None:
        """Messages have entered the queue with reserved numbers. Higher numbers may be in use."""

    def leave(self, messages: Sequence[Message]) -> None:
        """Messages have left the queue."""

    def add_ready(self, messages: Sequence[Message]) -> None:
        """Messages are ready for their first delivery. Their numbers are higher than all before."""

    def put_back(self, messages: Iterable[Message]) -> None:
        """Messages that were taken for delivery are ready again, each at its old place."""

    def discard_ready(self, messages: Sequence[Message]) -> None:
        """Ready messages have left the queue without being taken for delivery."""

    def restore(self, messages: Sequence[Message | PackedMessages]) -> None:
        """Add messages and packed blocks from the store, in the order of their numbers."""

    def pack(self, messages: Sequence[Message], packed: PackedMessages) -> bool:
        """Replace the messages of a block by its packed form. Returns False, and replaces nothing, if one of them does
        not wait for its first delivery, if a body is requested, or if a queue with sessions forwards them."""

    def unpack(self, packed: PackedMessages, messages: Sequence[Message]) -> None:
        """Replace a packed block by its messages."""

    def touch_for(self, messages: Iterable[Message]) -> None:
        """Dispatch at the end of this turn where these messages are: an obstacle may be gone."""

    def touch_all(self) -> None:
        """Dispatch everything at the end of this turn."""

    def check_attach(self, session: SessionRequest | None) -> None:
        """Raises `NotAllowed` if a receiver with this session, or without one, cannot attach."""

    def attach(
        self, receiver: Receiver, session: SessionRequest | None, now_ms: int, turn: Turn
    ) -> None:
        """Attach a receiver, or let it wait for a session. Raises if another receiver holds the
        session."""

    def set_forwarder(self, forwarder: MessageForwarder | None) -> None:
        """Begin or end forwarding. Ready messages move to where they are taken from afterwards."""

    def check_session_held(self, session_id: str, origin: RequestOrigin) -> None:
        """Raises `SessionLockLost` if the sender of a request does not hold this session."""

    def walk_session(self, session_id: str, from_number: int) -> Iterator[Message]:
        """Returns the messages of a session from a sequence number on, in order."""

    def close(self) -> None:
        """The queue does not use this source any more."""
