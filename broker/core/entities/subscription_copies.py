"""The copies of a topic's messages: one for each matching rule or subscription, collected for each queue.

A copy that its subscription cannot accept goes to the dead-letter queue of the subscription. `topic.py`
decides which subscriptions get a copy, and adds the records.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from broker.core.contract.counting import DeadLetterCause
from broker.core.contract.message_changes import EMPTY
from broker.core.queues.arrival import enqueue, enqueue_dead_letters
from broker.core.queues.dead_lettering import count_dead_letters
from broker.core.routing.sql.system_properties import SESSION_ID, TIME_TO_LIVE
from config.model.definitions import UNLIMITED_MS, SubscriptionDefinition
from config.model.ticks import TICKS_PER_SECOND, TimeSpanTicks, ticks_of_span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.message import Message, MessageReader
    from broker.core.contract.message_changes import MessageChanges
    from broker.core.contract.turn import Turn
    from broker.core.entities.entity import Entity
    from broker.core.queues.queue import Queue
    from broker.core.routing.rule_index import RoutedCopies

_TICKS_PER_MS = TICKS_PER_SECOND // 1_000
NO_SESSION_REASON = "Session id is null."
NO_SESSION_DESCRIPTION = (
    "Session enabled entity doesn't allow a message whose session identifier is null."
)


class SubscriptionCopies:
    """New copies of messages, collected for each queue."""

    __slots__ = ("_causes", "_dead", "_live", "_reader", "_topic_time_to_live_ms", "all", "rules")

    def __init__(self, reader: MessageReader, topic_time_to_live_ms: int) -> None:
        self._reader = reader
        self._topic_time_to_live_ms = topic_time_to_live_ms
        self.all: list[Message] = []
        self.rules: list[str | None] = []
        """The rule that made each copy. None if a rule failed."""
        self._live: dict[Queue, list[Message]] = {}
        self._dead: dict[Queue, list[Message]] = {}
        """By the dead-letter queue that gets them."""
        self._causes: dict[tuple[Queue, str, DeadLetterCause], list[Message]] = {}
        """The same dead letters, by main queue, reason and cause."""

    def make(
        self,
        message: Message,
        routed: Sequence[RoutedCopies[Entity]],
        first_id: int,
        *,
        is_new: bool = False,
    ) -> None:
        """Create the copies for each subscription, with ids from `first_id` on. If the message is new,
        it is used as the first copy."""
        next_id = first_id
        own_changes = message.changes
        own_session_id, own_live_ms = message.session_id, message.time_to_live_ms
        for one in routed:
            subscription, message_changes, error, rules = one
            main = subscription.main
            self.rules += rules
            for changes in message_changes:
                copy = message if is_new and next_id == first_id else message.copy()
                copy.id = next_id
                next_id += 1
                copy.delivery_count = 0
                copy.expires_at_ms = 0
                copy.session_id, copy.time_to_live_ms = own_session_id, own_live_ms
                copy.changes = own_changes if changes is None else changes
                if changes is not None and changes.system:
                    self._use_system_properties(copy, changes.system, own_changes or EMPTY)
                if main.delivery.requires_sessions and copy.session_id is None:
                    cause = DeadLetterCause.NO_SESSION_ID
                    self._dead_letter(
                        copy, subscription, NO_SESSION_REASON, NO_SESSION_DESCRIPTION, cause
                    )
                else:
                    self._live.setdefault(main, []).append(copy)
                self.all.append(copy)
            if error is not None and _has_failure_copy(one):
                copy = message.copy()
                copy.id = next_id
                next_id += 1
                copy.session_id, copy.time_to_live_ms = own_session_id, own_live_ms
                copy.changes = own_changes
                cause = DeadLetterCause.FILTER
                self.rules.append(None)
                self._dead_letter(copy, subscription, error.reason, str(error), cause)
                self.all.append(copy)

    def _use_system_properties(
        self, copy: Message, system: Mapping[str, bytes | None], before: MessageChanges
    ) -> None:
        """Give a copy the session id and the time to live that a rule action has set in its properties."""
        properties = self._reader.system_properties(copy)
        if _has_new(SESSION_ID, system, before):
            session_id = properties[SESSION_ID]
            copy.session_id = None if session_id is None else str(session_id)
        if _has_new(TIME_TO_LIVE, system, before):
            span = properties[TIME_TO_LIVE]
            copy.time_to_live_ms = None
            if isinstance(span, timedelta | TimeSpanTicks):
                # Less than a millisecond is one: 0 would mean that it never expires.
                copy.time_to_live_ms = max(1, ticks_of_span(span) // _TICKS_PER_MS)
            limit_time_to_live(copy, self._topic_time_to_live_ms)

    def place(self, now_ms: int, turn: Turn) -> None:
        """Add the copies to their queues."""
        for queue, copies in self._live.items():
            enqueue(queue, copies, now_ms)
        for queue, copies in self._dead.items():
            for copy in copies:
                copy.enqueued_time_ms = now_ms
            enqueue_dead_letters(queue, copies)
        for (main, reason, cause), copies in self._causes.items():
            count_dead_letters(main, copies, reason, turn, cause)

    def _dead_letter(
        self,
        copy: Message,
        subscription: Entity,
        reason: str,
        description: str,
        cause: DeadLetterCause,
    ) -> None:
        changes: MessageChanges = copy.changes or EMPTY
        copy.changes = replace(
            changes, dead_letter_reason=reason, dead_letter_description=description
        )
        self._dead.setdefault(subscription.dead_letters, []).append(copy)
        self._causes.setdefault((subscription.main, reason, cause), []).append(copy)


def count_copies(routed: Sequence[RoutedCopies[Entity]]) -> int:
    """Returns how many copies `SubscriptionCopies.make` makes."""
    return sum([len(one.copies) + _has_failure_copy(one) for one in routed])


def limit_time_to_live(message: Message, limit_ms: int) -> None:
    """Let a message live no longer than its topic allows."""
    if limit_ms < UNLIMITED_MS and (
        message.time_to_live_ms is None or message.time_to_live_ms > limit_ms
    ):
        message.time_to_live_ms = limit_ms


def _has_new(name: str, system: Mapping[str, bytes | None], before: MessageChanges) -> bool:
    """Whether a rule has set a system property. `system` also has what earlier rules have set."""
    return name in system and system[name] != before.system.get(name, b"")


def _has_failure_copy(routed: RoutedCopies[Entity]) -> bool:
    """Whether a copy goes to the dead-letter queue because a filter or an action failed."""
    definition = routed.subscription.definition
    return (
        routed.error is not None
        and isinstance(definition, SubscriptionDefinition)
        and definition.dead_lettering_on_filter_errors
    )
