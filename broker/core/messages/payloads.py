"""Which bodies are in memory, which are only in the store, and how many messages share one.

Owns the budget, the reference counts and the reading back; the order of delivery is the dispatcher's.
A body leaves memory only once its record is on its way to the store. A delivery that is on its way to
a receiver has its own reference to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.effects import PayloadsNeeded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn


MESSAGES_MAX = 100_000
"""How many messages are in memory before those that only wait are kept in the small form. Each takes
about three hundred bytes besides its body."""


class Payloads:
    """The bodies of all messages of a namespace."""

    __slots__ = (
        "_awaited",
        "_budget_bytes",
        "any_paged",
        "message_count",
        "messages_max",
        "references",
        "resident_bytes",
        "wanted",
    )

    def __init__(self, budget_bytes: int | None) -> None:
        self._budget_bytes = budget_bytes
        self.messages_max = MESSAGES_MAX
        self.resident_bytes = 0
        self.message_count = 0
        """How many messages there are that are not packed."""
        self.any_paged = False
        """Whether any body has ever been left to the store: until then nobody need look."""
        self.references: dict[int, int] = {}
        """How many messages refer to a payload; only those that were ever shared are listed."""
        self.wanted: dict[Message, None] = {}
        """Messages whose bodies a request waits for, or has and waits for others."""
        self._awaited: dict[int, list[Message]] = {}
        """Messages that get their body when this payload id is loaded."""

    @property
    def over_budget(self) -> bool:
        """Whether what need not be in memory should leave it."""
        return self._budget_bytes is not None and (
            self.resident_bytes > self._budget_bytes or self.message_count > self.messages_max
        )

    @property
    def packs(self) -> bool:
        """Whether there are so many messages that those that only wait are packed."""
        return self._budget_bytes is not None and self.message_count > self.messages_max

    def are_awaited(self, messages: Iterable[Message]) -> bool:
        """Whether the body of one of these is being read."""
        awaited = self._awaited
        return bool(awaited) and any(message.payload_id in awaited for message in messages)

    def release(self, messages: Sequence[Message]) -> list[int]:
        """These messages are gone: the payload ids that nothing refers to any more."""
        references = self.references
        resident = 0
        unreferenced = []
        for message in messages:
            if message.body is not None:
                resident += message.size
            payload_id = message.payload_id
            if payload_id in references:
                references[payload_id] -= 1
                if references[payload_id]:
                    continue
                del references[payload_id]
            unreferenced.append(payload_id)
        self.resident_bytes -= resident
        if self._awaited:
            for payload_id in unreferenced:
                self._awaited.pop(payload_id, None)
        return unreferenced

    def share(self, payload_id: int, copies: int) -> None:
        """So many more messages refer to this payload."""
        self.references[payload_id] = self.references.get(payload_id, 0) + copies

    def evict(self, message: Message) -> None:
        """Leave the body to the store."""
        self.any_paged = True
        self.resident_bytes -= message.size
        message.body = None
        message.annotations = b""

    def evict_delivered(self, messages: Iterable[Message]) -> None:
        """Leave bodies to the store that are on their way to a receiver. Those that a request waits for
        stay: else reads for the one and deliveries could take turns for ever."""
        wanted = self.wanted
        for message in messages:
            if message not in wanted:
                self.evict(message)

    def request(self, messages: Iterable[Message], turn: Turn) -> None:
        """Read bodies back; each is asked for once, however many wait for it."""
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
        """Give bodies to the messages that wait for them; those messages."""
        filled = []
        for payload_id, payload in payloads.items():
            for message in self._awaited.pop(payload_id, ()):
                if message.queue is None or message.body is not None:
                    continue
                message.body, message.annotations = payload
                self.resident_bytes += message.size
                filled.append(message)
        return filled
