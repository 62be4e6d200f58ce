"""The bodies of messages: which are in memory, which are only in the store, and how many messages
share one.

A body leaves memory only after its record was passed to the store. A delivery has its own reference
to the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.effects import PayloadsNeeded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn


MESSAGES_MAX = 100_000
"""How many messages are in memory before waiting messages are packed (`packed_messages.py`). Each
takes about three hundred bytes besides its body."""


class Payloads:
    """The bodies of all messages of a namespace."""

    __slots__ = (
        "_awaited",
        "_budget_bytes",
        "_wanted",
        "any_paged",
        "message_count",
        "messages_max",
        "references",
        "resident_bytes",
    )

    def __init__(self, budget_bytes: int | None) -> None:
        self._budget_bytes = budget_bytes
        self.messages_max = MESSAGES_MAX
        self.resident_bytes = 0
        self.message_count = 0
        """The number of messages that are not packed."""
        self.any_paged = False
        """Whether a body has ever left memory. Until then no body has to be read."""
        self.references: dict[int, int] = {}
        """How many messages refer to a payload. Only payloads that were shared are listed."""
        self._wanted: dict[Message, int] = {}
        """Messages whose bodies waiting requests need, and how many requests need each."""
        self._awaited: dict[int, list[Message]] = {}
        """Messages that get their body when this payload id is loaded."""

    @property
    def over_budget(self) -> bool:
        """Whether bodies and messages that are not needed should leave memory."""
        return self._budget_bytes is not None and (
            self.resident_bytes > self._budget_bytes or self.message_count > self.messages_max
        )

    @property
    def keeps_all_bodies(self) -> bool:
        """Whether every body stays in memory, because there is no budget."""
        return self._budget_bytes is None

    @property
    def awaits_any(self) -> bool:
        """Whether a body is being read."""
        return bool(self._awaited)

    @property
    def may_pack(self) -> bool:
        """Whether messages that only wait may be packed: their bodies can be read from the store."""
        return self._budget_bytes is not None

    def are_awaited(self, messages: Iterable[Message]) -> bool:
        """Returns whether the body of one of these messages is being read."""
        awaited = self._awaited
        return bool(awaited) and any(message.payload_id in awaited for message in messages)

    def add_bodies(self, size_bytes: int) -> None:
        """Count bodies that came into memory with new messages."""
        self.resident_bytes += size_bytes

    def add_messages(self, count: int) -> None:
        """Count messages that came into memory, or with a negative count messages that left."""
        self.message_count += count

    def keep_for_request(self, messages: Iterable[Message]) -> None:
        """Keep the bodies of these messages in memory until a request has been answered."""
        wanted = self._wanted
        for message in messages:
            wanted[message] = wanted.get(message, 0) + 1

    def end_request(self, messages: Iterable[Message]) -> None:
        """The request has been answered. `messages` are those of all its calls of `keep_for_request`."""
        wanted = self._wanted
        for message in messages:
            wanted[message] -= 1
            if not wanted[message]:
                del wanted[message]

    def are_wanted(self, messages: Iterable[Message]) -> bool:
        """Returns whether a waiting request needs the body of one of these messages."""
        wanted = self._wanted
        return bool(wanted) and any(message in wanted for message in messages)

    def release(self, messages: Sequence[Message]) -> list[int]:
        """Messages are deleted. Returns the payload ids that no message refers to any more."""
        unreferenced = []
        resident_bytes = 0
        for message in messages:
            unreferenced.append(message.payload_id)
            if message.body is not None:
                resident_bytes += message.size
        self.resident_bytes -= resident_bytes
        if self.references:
            unreferenced = [one for one in unreferenced if self._is_last_reference(one)]
        if self._awaited:
            for payload_id in unreferenced:
                self._awaited.pop(payload_id, None)
        return unreferenced

    def _is_last_reference(self, payload_id: int) -> bool:
        """Subtract a reference. Returns whether no message refers to the payload any more."""
        left = self.references.get(payload_id, 1) - 1
        if left:
            self.references[payload_id] = left
            return False
        self.references.pop(payload_id, None)
        return True

    def share(self, payload_id: int, copies: int) -> None:
        """Count more messages that refer to this payload."""
        self.references[payload_id] = self.references.get(payload_id, 0) + copies

    def evict(self, message: Message) -> None:
        """Remove a body from memory. The store has it."""
        self.any_paged = True
        self.resident_bytes -= message.size
        message.body = None
        message.annotations = b""

    def evict_delivered(self, messages: Iterable[Message]) -> None:
        """Remove bodies of delivered messages from memory. Bodies that a request waits for stay:
        otherwise reads for the request and deliveries could alternate forever."""
        wanted = self._wanted
        for message in messages:
            if message not in wanted:
                self.evict(message)

    def request(self, messages: Iterable[Message], turn: Turn) -> None:
        """Request bodies from the store. Each is requested once, even if several messages share it."""
        needed = []
        for message in messages:
            waiting = self._awaited.get(message.payload_id)
            if waiting is None:
                self._awaited[message.payload_id] = [message]
                needed.append(message.payload_id)
            elif message not in waiting:
                waiting.append(message)
        if needed:
            turn.effects.append(PayloadsNeeded(needed))

    def loaded(self, payloads: Mapping[int, tuple[bytes, bytes]]) -> list[Message]:
        """Give loaded bodies to their messages. Returns these messages."""
        filled = []
        for payload_id, payload in payloads.items():
            for message in self._awaited.pop(payload_id, ()):
                if message.queue is None or message.body is not None:
                    continue
                message.body, message.annotations = payload
                self.resident_bytes += message.size
                filled.append(message)
        return filled
