"""A naive queue of Service Bus: lists, full scans, one message at a time.

Written from the documented behaviour, not from the broker. Decides what must happen to a message.
Where the broker has a choice (which of several receivers, which free session), `dispatch.py` checks
it. Commands are in `model_operations.py` and `naive_model.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract.settlement_values import SettlementKind
from config.model.definitions import (
    UNLIMITED_MS,
    CorrelationFilter,
    SubscriptionDefinition,
    TopicDefinition,
    TrueFilter,
)
from tests.model.model_entities import (
    ACTIVE,
    DEAD,
    DEFERRED,
    MAIN,
    NO_SENDING,
    SCHEDULED,
    TRANSFER_DEAD,
    ModelEntity,
    ModelMessage,
    ModelReceiver,
    same,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.settlement_values import Settlement
    from config.model.limits import Limits


class ModelQueues:
    """All that exists, and what can happen to a message in it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.now_ms = 0
        self.entities: dict[str, ModelEntity] = {}
        self.items: list[ModelMessage] = []
        self.receivers: list[ModelReceiver] = []
        self.answers: list[tuple[object, ...]] = []
        """What clients must be told, in no particular order."""
        self.vanished: set[str] = set()
        """Messages that were accepted and are kept nowhere: repeats, or nobody wanted them."""

    # --- looking ----------------------------------------------------------------------------

    def content(self, entity: ModelEntity, sub: int) -> list[ModelMessage]:
        """All messages of a queue, in order."""
        found = [item for item in self.items if item.entity is entity and item.sub == sub]
        return sorted(found, key=lambda item: item.number)

    def ready(self, entity: ModelEntity, sub: int) -> list[ModelMessage]:
        """Those that can be delivered, in order."""
        return [i for i in self.content(entity, sub) if i.state == ACTIVE and i.lock is None]

    def ready_sessions(self, entity: ModelEntity) -> set[str]:
        """Returns the sessions without a holder that have messages to deliver."""
        return {
            item.session_id
            for item in self.ready(entity, MAIN)
            if item.session_id is not None and self.holder(entity, item.session_id) is None
        }

    def holder(self, entity: ModelEntity, session_id: str) -> ModelReceiver | None:
        """Who has the session locked."""
        for one in self.receivers:
            if one.entity is entity and one.attached and same(one.session_id, session_id):
                return one
        return None

    def name(self, entity: ModelEntity, session_id: str) -> str:
        """A session by the id that named it first; that may be this one."""
        entity.names = [one for one in entity.names if self.exists(entity, one)]
        for one in entity.names:
            if same(one, session_id):
                return one
        entity.names.append(session_id)
        return session_id

    def exists(self, entity: ModelEntity, session_id: str) -> bool:
        """A session does while it has messages, a state or a holder."""
        known = [item.session_id for item in self.content(entity, MAIN)] + list(entity.states)
        is_held = self.holder(entity, session_id) is not None
        return is_held or any(same(one, session_id) for one in known)

    def locked(self, entity: ModelEntity, sub: int, token: bytes) -> ModelMessage | None:
        """The message a token locks."""
        for item in self.content(entity, sub):
            if item.lock is not None and item.lock.token == token:
                return item
        return None

    def subscriptions(self, topic: ModelEntity) -> list[ModelEntity]:
        """Of a topic."""
        prefix = f"{topic.path}/Subscriptions/"
        return [entity for path, entity in self.entities.items() if path.startswith(prefix)]

    def used_bytes(self, entity: ModelEntity) -> int:
        """What counts toward an entity's size: messages of all its queues, and session states."""
        entities = [entity, *self.subscriptions(entity)] if entity.is_topic else [entity]
        messages = sum(item.size for item in self.items if item.entity in entities)
        return messages + sum(len(state) for p in entities for state, _ in p.states.values())

    # --- arriving ---------------------------------------------------------------------------

    def refusal(self, entity: ModelEntity, item: ModelMessage, before_bytes: int) -> str | None:
        """Why a message cannot be taken, after so many bytes before it."""
        definition = entity.definition
        assert not isinstance(definition, SubscriptionDefinition)
        assert definition.max_message_size_kilobytes is not None
        if item.size > definition.max_message_size_kilobytes * 1024:
            return "MessageSizeExceeded"
        if self.is_full(entity, before_bytes + item.size):
            return "QuotaExceeded"
        if entity.has_sessions(MAIN) and item.session_id is None:
            return "NotAllowed"
        return None

    def is_full(self, entity: ModelEntity, more_bytes: int) -> bool:
        """Whether so much does not fit any more."""
        most = getattr(entity.definition, "max_size_megabytes", None)
        return most is not None and self.used_bytes(entity) + more_bytes > most * 1024 * 1024

    def is_repeated(self, entity: ModelEntity, item: ModelMessage) -> bool:
        """Duplicate detection. What is new is remembered."""
        definition = entity.definition
        if not getattr(definition, "requires_duplicate_detection", False):
            return False
        if item.message_id is None:
            return False
        if entity.seen.get(item.message_id, 0) > self.now_ms:
            return True
        assert not isinstance(definition, SubscriptionDefinition)
        entity.seen[item.message_id] = self.now_ms + definition.duplicate_window_ms
        return False

    def arrive(self, entity: ModelEntity, item: ModelMessage) -> None:
        """Adds a message that was not refused. Duplicates are dropped."""
        if self.is_repeated(entity, item):
            self.vanished.add(item.mark)
            return
        if entity.is_topic and item.scheduled_for_ms <= self.now_ms:
            self.publish(entity, item)
        else:
            self.enqueue(entity, item)

    def enqueue(self, entity: ModelEntity, item: ModelMessage) -> None:
        """Number a message and put it in its queue."""
        entity.last_number[MAIN] += 1
        item.entity, item.sub = entity, MAIN
        item.number = entity.last_number[MAIN]
        entity.highest_number[MAIN] = item.number
        item.first_number = item.first_number or item.number
        item.enqueued_ms = self.now_ms
        item.expires_ms = 0
        if entity.has_sessions(MAIN):
            assert item.session_id is not None
            item.session_id = self.name(entity, item.session_id)
        if item.scheduled_for_ms > self.now_ms:
            item.state = SCHEDULED
        else:
            item.state = ACTIVE
            lives = [entity.definition.default_time_to_live_ms]
            lives += [item.live_ms] if item.live_ms is not None else []
            if min(lives) < UNLIMITED_MS:
                item.live_ms = min(lives)
                item.expires_ms = self.now_ms + item.live_ms
        self.items.append(item)

    def publish(self, topic: ModelEntity, item: ModelMessage) -> None:
        """One copy for each subscription one of whose rules takes the message."""
        if not item.first_number:
            topic.last_number[MAIN] += 1
            item.first_number = topic.last_number[MAIN]
        live_ms = topic.definition.default_time_to_live_ms
        if live_ms < UNLIMITED_MS:
            item.live_ms = min(live_ms, item.live_ms or live_ms)
        wanted = False
        for subscription in self.subscriptions(topic):
            definition = subscription.definition
            assert isinstance(definition, SubscriptionDefinition)
            if not any(_takes(rule.filter, item) for rule in definition.rules):
                continue
            wanted = True
            copy = replace(item, number=0, lock=None, count=0)
            copy.properties = dict(item.properties)
            if definition.requires_session and item.session_id is None:
                copy.entity = subscription
                copy.enqueued_ms = self.now_ms
                self.items.append(copy)
                self.dead_letter([copy], "Session id is null.")
            else:
                self.enqueue(subscription, copy)
        if not wanted:
            self.vanished.add(item.mark)

    # --- leaving ----------------------------------------------------------------------------

    def delete(self, items: Iterable[ModelMessage]) -> None:
        for item in items:
            self.items.remove(item)

    def dead_letter(self, items: Iterable[ModelMessage], reason: str | None) -> None:
        """To the dead-letter queue: a new number there, nothing else changes but the reason."""
        for item in items:
            item.entity.last_number[DEAD] += 1
            item.sub = DEAD
            item.number = item.entity.highest_number[DEAD] = item.entity.last_number[DEAD]
            item.first_number = item.first_number or item.number
            item.state = ACTIVE
            item.expires_ms = 0
            item.lock = None
            item.reason = reason

    def dead_letter_transfer(self, entity: ModelEntity, item: ModelMessage, reason: str) -> None:
        """To the transfer dead-letter queue of the entity it could not get past."""
        entity.last_number[TRANSFER_DEAD] += 1
        item.entity, item.sub = entity, TRANSFER_DEAD
        item.number = entity.highest_number[TRANSFER_DEAD] = entity.last_number[TRANSFER_DEAD]
        item.enqueued_ms = self.now_ms
        item.reason = reason
        self.items.append(item)

    def expire(self, items: Sequence[ModelMessage]) -> None:
        """Time to live is over."""
        for item in items:
            if getattr(item.entity.definition, "dead_lettering_on_expiration", False):
                self.dead_letter([item], "TTLExpiredException")
            else:
                self.delete([item])

    def is_expired(self, item: ModelMessage) -> bool:
        return 0 < item.expires_ms <= self.now_ms

    # --- after a lock -----------------------------------------------------------------------

    def settle(self, items: Sequence[ModelMessage], settlement: Settlement) -> None:
        """Applies the settlement of the holder."""
        for item in items:
            item.lock = None
            if settlement.properties:
                item.properties.update(settlement.properties)
        kind = settlement.kind
        if kind is SettlementKind.COMPLETE:
            self.delete(items)
        elif kind is SettlementKind.DEAD_LETTER:
            self.dead_letter(items, settlement.reason)
        elif kind is SettlementKind.RELEASE:
            self.release(items)
        else:
            left = self.count_failure(items)
            if kind is SettlementKind.DEFER:
                for item in left:
                    item.state = DEFERRED
            self.release(left)

    def lose_locks(self, items: Sequence[ModelMessage], *, failed: bool) -> None:
        """Locks end without settlement."""
        items = sorted(items, key=lambda item: item.number)
        for item in items:
            item.lock = None
        self.release(self.count_failure(items) if failed else items)

    def count_failure(self, items: Sequence[ModelMessage]) -> list[ModelMessage]:
        """One more failed delivery each, but not of dead letters; those not worn out by it."""
        left = []
        for item in items:
            if item.sub != MAIN:
                left.append(item)
                continue
            item.count += 1
            if item.count >= getattr(item.entity.definition, "max_delivery_count", 0):
                self.dead_letter([item], "MaxDeliveryCountExceeded")
            else:
                left.append(item)
        return left

    def release(self, items: Sequence[ModelMessage]) -> None:
        """Unlocked messages are where they were, unless their time has run out meanwhile."""
        self.expire([i for i in items if i.state == ACTIVE and self.is_expired(i)])

    # --- receivers --------------------------------------------------------------------------

    def end_session(self, receiver: ModelReceiver, *, failed: bool) -> None:
        """A session is given up, or lost; its locked messages go back."""
        session_id = receiver.session_id
        receiver.session_id = None
        locked = [
            item
            for item in self.content(receiver.entity, MAIN)
            if item.session_id == session_id and item.lock is not None
        ]
        self.lose_locks(locked, failed=failed)

    def stop_receiving(self, receiver: ModelReceiver) -> None:
        """A receiver is gone: a session is closed, message locks stay."""
        if not receiver.attached:
            return
        if receiver.session_id is not None:
            self.end_session(receiver, failed=False)
        receiver.attached = False
        receiver.waits_until_ms = 0

    def detach_all(self, entity: ModelEntity, error: str, subs: Sequence[int]) -> None:
        """The broker ends the receivers of an entity."""
        for receiver in self.receivers:
            if receiver.entity is entity and receiver.attached and receiver.sub in subs:
                answer = "refused" if receiver.waits_until_ms else "detached"
                self.answers.append((answer, receiver.peer, error))
                self.stop_receiving(receiver)

    # --- forwarding -------------------------------------------------------------------------

    def forward_everything(self) -> None:
        """Until nothing moves any more."""
        while any(self._forward(*way) for way in list(self._ways())):
            pass

    def _ways(self) -> Iterator[tuple[ModelEntity, int, str]]:
        for entity in self.entities.values():
            if entity.is_topic:
                continue
            assert not isinstance(entity.definition, TopicDefinition)
            if entity.definition.forward_to is not None:
                yield entity, MAIN, entity.definition.forward_to
            if entity.definition.forward_dead_letters_to is not None:
                yield entity, DEAD, entity.definition.forward_dead_letters_to

    def _forward(self, entity: ModelEntity, sub: int, path: str) -> bool:
        moved = False
        for item in self.ready(entity, sub):
            obstacle = self._obstacle(item, path)
            if obstacle is None:
                self.items.remove(item)
                item.hops += 1
                item.count = 0
                item.expires_ms = 0
                if sub == DEAD:
                    item.source = item.source or entity.path
                self.arrive(self.entities[path], item)
                moved = True
            elif sub == MAIN:
                self.dead_letter([item], obstacle)
                moved = True
        return moved

    def _obstacle(self, item: ModelMessage, path: str) -> str | None:
        destination = self.entities.get(path)
        if destination is None:
            return "EntityNotFound"
        if destination.definition.status in NO_SENDING:
            return "EntityDisabled"
        if item.hops >= self.limits.forward_hops_max:
            return "MaxTransferHopCountExceeded"
        error = self.refusal(destination, item, 0)
        return "Session id is null." if error == "NotAllowed" else error


def _takes(rule_filter: object, item: ModelMessage) -> bool:
    if isinstance(rule_filter, CorrelationFilter):
        return rule_filter.label == item.label
    return isinstance(rule_filter, TrueFilter)
