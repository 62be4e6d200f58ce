"""A topic: copies each message to the matching subscriptions.

`rule_index.py` finds the matching subscriptions. A body is stored once for all copies, and deleted
with the last copy.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from broker.core.contract.counting import DeadLetterCause, Outcome
from broker.core.contract.errors import NotAllowed, UndecodableMessage
from broker.core.contract.message import MessageState
from broker.core.contract.message_changes import EMPTY
from broker.core.contract.records import (
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    PayloadRow,
)
from broker.core.contract.transitions import TransitionKind
from broker.core.entities.entity import Entity
from broker.core.messages.message_rows import rows_of
from broker.core.queues.arrival import enqueue, enqueue_dead_letters, store, store_copies
from broker.core.queues.dead_lettering import count_dead_letters
from broker.core.queues.quota_usage import QuotaUsage
from broker.core.routing.rule_index import TopicRules
from broker.core.routing.sql.system_properties import SESSION_ID, TIME_TO_LIVE
from config.model.definitions import UNLIMITED_MS, SubscriptionDefinition
from config.model.ticks import TICKS_PER_SECOND, TimeSpanTicks, ticks_of_span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.core.contract.effects import EntityView
    from broker.core.contract.message import Message
    from broker.core.contract.message_changes import MessageChanges
    from broker.core.contract.records import MessageRow
    from broker.core.contract.turn import Turn
    from broker.core.entities.subscription import Subscription
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.queue import Queue
    from broker.core.routing.compiled_rule import CompiledRule
    from broker.core.routing.rule_index import RoutedCopies
    from config.model.definitions import EntityDefinition

_TICKS_PER_MS = TICKS_PER_SECOND // 1_000
NO_SESSION_REASON = "Session id is null."
NO_SESSION_DESCRIPTION = (
    "Session enabled entity doesn't allow a message whose session identifier is null."
)


class Topic(Entity):
    """A topic. Its own queue has only scheduled messages."""

    __slots__ = ("_routed", "_rules", "_with_sessions", "subscriptions")

    def __init__(
        self,
        context: NamespaceContext,
        entity_id: int,
        path: str,
        definition: EntityDefinition,
        now_ms: int,
    ) -> None:
        new_lock_tokens = context.new_lock_tokens
        self._routed: dict[Message, Sequence[RoutedCopies[Entity]]] = {}
        """The subscriptions of messages of the current command, found by `screen`."""
        self.subscriptions: dict[str, Subscription] = {}
        """By name in lower case."""
        self._with_sessions: set[Subscription] = set()
        """The subscriptions that require sessions."""
        self._rules: TopicRules[Entity] = TopicRules(
            context.reader.encode_property,
            lambda: UUID(bytes=new_lock_tokens(1)[0], version=4),
        )
        super().__init__(context, entity_id, path, definition, now_ms, QuotaUsage())

    @property
    def needs_session_ids(self) -> bool:
        """See `Entity.needs_session_ids`."""
        return bool(self._with_sessions)

    @property
    def needs_only_session_ids(self) -> bool:
        """See `Entity.needs_only_session_ids`. Rules look into every message."""
        return False

    @property
    def copies_per_message(self) -> int:
        """See `Entity.copies_per_message`."""
        return len(self.subscriptions) or 1

    @property
    def dependents(self) -> Sequence[Entity]:
        """See `Entity.dependents`."""
        return list(self.subscriptions.values())

    def check_is_receivable(self) -> None:
        """See `Entity.check_is_receivable`."""
        raise NotAllowed(
            f"Messages cannot be received from the topic '{self.path}', "
            "only from its subscriptions."
        )

    def redefine(self, definition: EntityDefinition, now_ms: int) -> None:
        """See `Entity.redefine`."""
        super().redefine(definition, now_ms)
        self._rules_changed()

    def _rules_changed(self) -> None:
        """Subscriptions or their rules have changed."""
        self._routed.clear()
        self.is_plain = not (
            self._rules.evaluates_messages or self._with_sessions or self.duplicates is not None
        )

    # --- subscriptions ----------------------------------------------------------------------

    def subscribe(self, name: str, subscription: Subscription) -> None:
        """Add a subscription without rules, or update it after a change of its definition."""
        self.subscriptions[name.lower()] = subscription
        if subscription.main.delivery.requires_sessions:
            self._with_sessions.add(subscription)
        else:
            self._with_sessions.discard(subscription)
        self._rules_changed()

    def unsubscribe(self, name: str) -> None:
        """Remove a deleted subscription."""
        subscription = self.subscriptions.pop(name.lower())
        self._rules.remove(subscription)
        self._with_sessions.discard(subscription)
        self._rules_changed()

    def put_rule(self, subscription: Subscription, rule: CompiledRule) -> None:
        """Add a rule to the index, or replace the rule of the same name."""
        self._rules.put(subscription, rule)
        self._rules_changed()

    def remove_rule(self, subscription: Subscription, name: str) -> None:
        """Remove a rule from the index."""
        self._rules.remove_rule(subscription, name)
        self._rules_changed()

    # --- messages ---------------------------------------------------------------------------

    def begin_screening(self) -> None:
        """See `Entity.begin_screening`."""
        self._routed.clear()

    def screen(self, message: Message) -> None:
        """See `Entity.screen`."""
        self._routed[message] = self._rules.route(message, self.context.reader)

    def accept(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """See `Entity.accept`. Stores a copy for each matching subscription. A scheduled message is
        kept until its time."""
        scheduled = [m for m in messages if m.scheduled_enqueue_time_ms > now_ms]
        history = self.context.history
        if scheduled:
            store(self.main, scheduled, now_ms, turn)
            if history is not None:
                history.accepted(self.main, scheduled, turn)
            messages = [m for m in messages if m.scheduled_enqueue_time_ms <= now_ms]
        only = self._only_subscription(messages)
        if only is not None:
            self._number_all(messages)
            store(only.main, messages, now_ms, turn)
            if history is not None:
                history.accepted_by_topic(self.main, messages, turn)
                rules = self._rules.plain[0].rules * len(messages)
                history.fanned_out(self.main, messages, rules, turn)
            return
        if messages and self._rules.plain and self._may_copy_at_once:
            self._copy_at_once(messages, now_ms, turn)
            return
        copies = _Copies(self)
        payloads: list[PayloadRow] = []
        context = self.context
        routed: Sequence[RoutedCopies[Entity]] = ()
        unmatched: list[Message] = []
        count = 0
        for message in messages:
            self._number(message)
            before = routed
            routed = self._route(message)
            if routed is not before:  # without selective rules it is always the same list
                count = sum(_copies_of(one) for one in routed)
            if not count:
                unmatched.append(message)
                continue
            first_id = context.ids.take_messages(count + (count > 1))
            message.id = message.payload_id = first_id
            if count > 1:
                context.payloads.share(first_id, count)
            context.payloads.add_bodies(message.size * count)
            payloads.append(PayloadRow(first_id, message.body or b"", message.annotations))
            copies.make(message, routed, first_id + (count > 1), is_new=True)
        if history is not None and messages:
            history.accepted_by_topic(self.main, messages, turn)
        self._place(copies, unmatched, now_ms, turn)
        if payloads:
            turn.records.append(MessagesStored(rows_of(copies.all), payloads))

    @property
    def _may_copy_at_once(self) -> bool:
        """Whether every subscription gets the same copies, and nobody asks which rules made them."""
        return not (
            self._rules.evaluates_messages
            or self._with_sessions
            or self.context.history is not None
        )

    def _copy_at_once(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """Store a copy of each message for each subscription that takes every message."""
        queues = [routed.subscription.main for routed in self._rules.plain]
        count = len(queues)
        context = self.context
        rows: list[MessageRow] = []
        payloads: list[PayloadRow] = []
        for message in messages:
            self._number(message)
            first_id = context.ids.take_messages(count + (count > 1))
            message.payload_id = first_id
            if count > 1:
                context.payloads.share(first_id, count)
            context.payloads.add_bodies(message.size * count)
            payloads.append(PayloadRow(first_id, message.body or b"", message.annotations))
            rows += store_copies(message, queues, first_id + (count > 1), now_ms)
        turn.records.append(MessagesStored(rows, payloads))

    def _only_subscription(self, messages: Sequence[Message]) -> Entity | None:
        """Returns the subscription that gets all of these messages unchanged, if it is the only one."""
        plain = self._rules.plain
        if len(plain) != 1 or self._rules.evaluates_messages or not messages:
            return None
        subscription = plain[0].subscription
        if subscription.main.delivery.requires_sessions and not all(
            message.session_id is not None for message in messages
        ):
            return None
        return subscription

    def republish(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """See `Entity.republish`. Stores a copy for each matching subscription."""
        self.restart_idle_time(now_ms)
        payloads = self.context.payloads
        copies = _Copies(self)
        moved: list[Message] = []
        copied: list[Message] = []
        gone: list[Message] = []
        unmatched: list[Message] = []
        for message in messages:
            if not message.enqueue_sequence_number:
                self._number(message)
            else:
                self.limit_time_to_live(message)
            routed = self._route(message)
            count = sum(_copies_of(one) for one in routed)
            made = len(copies.all)
            if count == 1:
                copies.make(message, routed, message.id)
                moved += copies.all[made:]
                continue
            gone.append(message)
            if count:
                payloads.share(
                    message.payload_id, count + (message.payload_id not in payloads.references)
                )
                payloads.add_bodies(message.size * count)
                first_id = self.context.ids.take_messages(count)
                copies.make(message, routed, first_id)
                copied += copies.all[made:]
            else:
                unmatched.append(message)
        self._place(copies, unmatched, now_ms, turn)
        if moved:
            turn.records.append(MessagesUpdated(rows_of(moved)))
        if copied:
            turn.records.append(MessagesStored(rows_of(copied), ()))
        if gone:
            unreferenced = payloads.release(gone)
            turn.records.append(MessagesDeleted([m.id for m in gone], unreferenced))

    def _place(
        self, copies: _Copies, unmatched: Sequence[Message], now_ms: int, turn: Turn
    ) -> None:
        """Add copies to their queues, and count the messages of which there is none."""
        copies.place(now_ms, turn)
        history = self.context.history
        if history is not None and copies.all:
            history.fanned_out(self.main, copies.all, copies.rules, turn)
        if unmatched:
            turn.count(self.main.counts, Outcome.UNMATCHED, len(unmatched))
            self.context.observations.note_unmatched(self.path, unmatched, len(unmatched))
            if history is not None:
                history.unmatched(self.main, unmatched, turn)

    def activate(self, messages: Sequence[Message], now_ms: int, turn: Turn) -> None:
        """See `Entity.activate`. Rules look into messages, so messages whose bodies are in the store
        wait until these are loaded."""
        context = self.context
        context.payloads.request([m for m in messages if m.body is None], turn)
        due = [message for message in messages if message.body is not None]
        self.main.remove(due)
        for message in due:
            message.state = MessageState.ACTIVE
            message.enqueue_sequence_number = 0
            if message.session_id is None and message.body is not None:
                # Perhaps no subscription had sessions when it was sent.
                message.session_id = self._readable_session_id(message.body)
        numbers = [message.sequence_number for message in due]
        recorded = len(turn.transitions)
        self.republish(due, now_ms, turn)
        if context.history is not None:
            context.history.moved(
                TransitionKind.ACTIVATED,
                self.main,
                numbers,
                self.main,
                due,
                turn,
                at=recorded,
                to_topic=True,
            )

    def _readable_session_id(self, body: bytes) -> str | None:
        try:
            return self.context.reader.session_id(body)
        except UndecodableMessage:
            return None  # nobody looked at it when it was sent

    def _number(self, message: Message) -> None:
        message.enqueue_sequence_number = self.main.reserve_number()
        if self.main.default_time_to_live_ms < UNLIMITED_MS:
            self.limit_time_to_live(message)

    def _number_all(self, messages: Sequence[Message]) -> None:
        number = self.main.last_sequence_number
        for message in messages:
            number += 1
            message.enqueue_sequence_number = number
        self.main.skip_numbers(number)
        if self.main.default_time_to_live_ms < UNLIMITED_MS:
            for message in messages:
                self.limit_time_to_live(message)

    def limit_time_to_live(self, message: Message) -> None:
        """Let a message live no longer than the topic allows."""
        live_ms = self.main.default_time_to_live_ms
        if live_ms < UNLIMITED_MS and (
            message.time_to_live_ms is None or message.time_to_live_ms > live_ms
        ):
            message.time_to_live_ms = live_ms

    def _route(self, message: Message) -> Sequence[RoutedCopies[Entity]]:
        routed = self._routed.pop(message, None)
        if routed is not None:
            return routed
        try:
            return self._rules.route(message, self.context.reader)
        except UndecodableMessage as error:
            # It was accepted when no rule had to look into it, so it is too late to refuse it.
            return self._rules.route_unreadable(error)

    # --- how it is shown --------------------------------------------------------------------

    def view(self) -> EntityView:
        """See `Entity.view`."""
        return replace(
            super().view(),
            size_bytes=self.usage.size_bytes,
            subscription_count=len(self.subscriptions),
            sql_filter_count=self._rules.rule_count - self._rules.correlation_filter_count,
            correlation_filter_count=self._rules.correlation_filter_count,
        )


class _Copies:
    """New copies, collected for each queue."""

    __slots__ = ("_causes", "_dead", "_live", "_topic", "all", "rules")

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.all: list[Message] = []
        self.rules: list[str | None] = []
        """The rule that made each copy. None if a rule failed."""
        self._live: dict[Queue, list[Message]] = {}
        self._dead: dict[Queue, list[Message]] = {}
        self._causes: dict[tuple[Queue, str, DeadLetterCause], list[Message]] = {}

    def make(
        self,
        message: Message,
        routed: Sequence[RoutedCopies[Entity]],
        first_id: int,
        *,
        is_new: bool = False,
    ) -> None:
        """Create a copy for each subscription, with ids from `first_id` on. If the message is new,
        it is used as the first copy."""
        next_id = first_id
        own_changes = message.changes
        own_session_id, own_live_ms = message.session_id, message.time_to_live_ms
        for subscription, message_changes, error, rules in routed:
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
            if error is not None and _keeps_failures(subscription):
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
        """Let a session id or time to live that an action has set decide on the session and the expiry."""
        properties = self._topic.context.reader.system_properties(copy)
        if _has_new(SESSION_ID, system, before):
            session_id = properties[SESSION_ID]
            copy.session_id = None if session_id is None else str(session_id)
        if _has_new(TIME_TO_LIVE, system, before):
            span = properties[TIME_TO_LIVE]
            copy.time_to_live_ms = None
            if isinstance(span, timedelta | TimeSpanTicks):
                # Less than a millisecond is one: 0 would mean that it never expires.
                copy.time_to_live_ms = max(1, ticks_of_span(span) // _TICKS_PER_MS)
            self._topic.limit_time_to_live(copy)

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


def _has_new(name: str, system: Mapping[str, bytes | None], before: MessageChanges) -> bool:
    """Whether a rule has set a system property. `system` also has what earlier rules have set."""
    return name in system and system[name] != before.system.get(name, b"")


def _copies_of(routed: RoutedCopies[Entity]) -> int:
    failed = routed.error is not None and _keeps_failures(routed.subscription)
    return len(routed.copies) + failed


def _keeps_failures(subscription: Entity) -> bool:
    definition = subscription.definition
    return (
        isinstance(definition, SubscriptionDefinition)
        and definition.dead_lettering_on_filter_errors
    )
