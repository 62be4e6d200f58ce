"""A topic: stores a copy of each message for each matching subscription.

`rule_index.py` finds the matching subscriptions, and `subscription_copies.py` makes the copies. A body
is stored once for all copies, and deleted with the last copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from broker.core.contract.counting import Outcome
from broker.core.contract.errors import NotAllowed, UndecodableMessage
from broker.core.contract.message import MessageState
from broker.core.contract.records import (
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    PayloadRow,
)
from broker.core.contract.transitions import TransitionKind
from broker.core.entities.entity import Entity
from broker.core.entities.subscription_copies import (
    SubscriptionCopies,
    count_copies,
    limit_time_to_live,
)
from broker.core.messages.message_rows import rows_of
from broker.core.queues.arrival import store, store_copies
from broker.core.queues.quota_usage import QuotaUsage
from broker.core.routing.rule_index import TopicRules
from config.model.definitions import UNLIMITED_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.effects import EntityView
    from broker.core.contract.message import Message
    from broker.core.contract.records import MessageRow
    from broker.core.contract.turn import Turn
    from broker.core.entities.subscription import Subscription
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.routing.compiled_rule import CompiledRule
    from broker.core.routing.rule_index import RoutedCopies
    from config.model.definitions import EntityDefinition


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
            self.main.record_numbers(turn)
            if history is not None:
                history.accepted_by_topic(self.main, messages, turn)
                rules = self._rules.plain[0].rules * len(messages)
                history.fanned_out(self.main, messages, rules, turn)
            return
        if messages and self._rules.plain and self._may_copy_at_once:
            self._copy_at_once(messages, now_ms, turn)
            return
        copies = self._new_copies()
        payloads: list[PayloadRow] = []
        routed: Sequence[RoutedCopies[Entity]] = ()
        unmatched: list[Message] = []
        count = 0
        for message in messages:
            self._number(message)
            before = routed
            routed = self._route(message)
            if routed is not before:  # without selective rules it is always the same list
                count = count_copies(routed)
            if not count:
                unmatched.append(message)
                continue
            first_id = self._store_body(message, count, payloads)
            copies.make(message, routed, first_id, is_new=True)
        if history is not None and messages:
            history.accepted_by_topic(self.main, messages, turn)
        self._place(copies, unmatched, now_ms, turn)
        if payloads:
            turn.records.append(MessagesStored(rows_of(copies.all), payloads))
            self.main.record_numbers(turn)

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
        rows: list[MessageRow] = []
        payloads: list[PayloadRow] = []
        for message in messages:
            self._number(message)
            first_id = self._store_body(message, count, payloads)
            rows += store_copies(message, queues, first_id, now_ms)
        turn.records.append(MessagesStored(rows, payloads))
        self.main.record_numbers(turn)

    def _store_body(self, message: Message, count: int, payloads: list[PayloadRow]) -> int:
        """Add the body of a new message, which all its copies share. Returns the id of the first copy."""
        context = self.context
        is_shared = count > 1
        body_id = context.ids.take_messages(count + is_shared)
        message.id = message.payload_id = body_id
        if is_shared:
            context.payloads.share(body_id, count)
        context.payloads.add_bodies(message.size * count)
        payloads.append(PayloadRow(body_id, message.body or b"", message.annotations))
        return body_id + is_shared

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
        copies = self._new_copies()
        moved: list[Message] = []
        copied: list[Message] = []
        gone: list[Message] = []
        unmatched: list[Message] = []
        for message in messages:
            if not message.enqueue_sequence_number:
                self._number(message)
            else:
                limit_time_to_live(message, self.main.default_time_to_live_ms)
            routed = self._route(message)
            count = count_copies(routed)
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
        if copies.all:
            self.main.record_numbers(turn)
        if gone:
            unreferenced = payloads.release(gone)
            turn.records.append(MessagesDeleted([m.id for m in gone], unreferenced))

    def _new_copies(self) -> SubscriptionCopies:
        return SubscriptionCopies(self.context.reader, self.main.default_time_to_live_ms)

    def _place(
        self, copies: SubscriptionCopies, unmatched: Sequence[Message], now_ms: int, turn: Turn
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
            limit_time_to_live(message, self.main.default_time_to_live_ms)

    def _number_all(self, messages: Sequence[Message]) -> None:
        number = self.main.last_sequence_number
        for message in messages:
            number += 1
            message.enqueue_sequence_number = number
        self.main.skip_numbers(number)
        if self.main.default_time_to_live_ms < UNLIMITED_MS:
            for message in messages:
                limit_time_to_live(message, self.main.default_time_to_live_ms)

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
