"""Service Bus in the most obvious way: lists, full scans, one message at a time.

Written from the promises to users, not from the broker. Owns what must happen to a message; where
the promises leave a choice (which of several receivers, which free session), `dispatch.py` checks
the broker's. What each command does is in `model_operations.py` and `naive_model.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract.commands import SettlementKind
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
    Item,
    Listener,
    Place,
    same,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.commands import Settlement
    from config.model.limits import Limits


class World:
    """All that exists, and what can happen to a message in it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.now_ms = 0
        self.places: dict[str, Place] = {}
        self.items: list[Item] = []
        self.listeners: list[Listener] = []
        self.answers: list[tuple[object, ...]] = []
        """What clients must be told, in no particular order."""
        self.vanished: set[str] = set()
        """Messages that were accepted and are kept nowhere: repeats, or nobody wanted them."""

    # --- looking ----------------------------------------------------------------------------

    def content(self, place: Place, sub: int) -> list[Item]:
        """All messages of a queue, in order."""
        found = [item for item in self.items if item.place is place and item.sub == sub]
        return sorted(found, key=lambda item: item.number)

    def ready(self, place: Place, sub: int) -> list[Item]:
        """Those that can be delivered, in order."""
        return [i for i in self.content(place, sub) if i.state == ACTIVE and i.lock is None]

    def ready_sessions(self, place: Place) -> set[str]:
        """Sessions nobody holds that have something to deliver."""
        return {
            item.session_id
            for item in self.ready(place, MAIN)
            if item.session_id is not None and self.holder(place, item.session_id) is None
        }

    def holder(self, place: Place, session_id: str) -> Listener | None:
        """Who has the session locked."""
        for one in self.listeners:
            if one.place is place and one.attached and same(one.session_id, session_id):
                return one
        return None

    def name(self, place: Place, session_id: str) -> str:
        """A session by the id that named it first; that may be this one."""
        place.names = [one for one in place.names if self.exists(place, one)]
        for one in place.names:
            if same(one, session_id):
                return one
        place.names.append(session_id)
        return session_id

    def exists(self, place: Place, session_id: str) -> bool:
        """A session does while it has messages, a state or a holder."""
        known = [item.session_id for item in self.content(place, MAIN)] + list(place.states)
        is_held = self.holder(place, session_id) is not None
        return is_held or any(same(one, session_id) for one in known)

    def locked(self, place: Place, sub: int, token: bytes) -> Item | None:
        """The message a token locks."""
        for item in self.content(place, sub):
            if item.lock is not None and item.lock.token == token:
                return item
        return None

    def subscriptions(self, topic: Place) -> list[Place]:
        """Of a topic."""
        prefix = f"{topic.path}/Subscriptions/"
        return [place for path, place in self.places.items() if path.startswith(prefix)]

    def used_bytes(self, place: Place) -> int:
        """What counts toward an entity's size: messages of all its queues, and session states."""
        places = [place, *self.subscriptions(place)] if place.is_topic else [place]
        messages = sum(item.size for item in self.items if item.place in places)
        return messages + sum(len(state) for p in places for state, _ in p.states.values())

    # --- arriving ---------------------------------------------------------------------------

    def refusal(self, place: Place, item: Item, before_bytes: int) -> str | None:
        """Why a message cannot be taken, after so many bytes before it."""
        definition = place.definition
        assert not isinstance(definition, SubscriptionDefinition)
        assert definition.max_message_size_kilobytes is not None
        if item.size > definition.max_message_size_kilobytes * 1024:
            return "MessageSizeExceeded"
        if self.is_full(place, before_bytes + item.size):
            return "QuotaExceeded"
        if place.has_sessions(MAIN) and item.session_id is None:
            return "NotAllowed"
        return None

    def is_full(self, place: Place, more_bytes: int) -> bool:
        """Whether so much does not fit any more."""
        most = getattr(place.definition, "max_size_megabytes", None)
        return most is not None and self.used_bytes(place) + more_bytes > most * 1024 * 1024

    def is_repeated(self, place: Place, item: Item) -> bool:
        """Duplicate detection. What is new is remembered."""
        definition = place.definition
        if not getattr(definition, "requires_duplicate_detection", False):
            return False
        if item.message_id is None:
            return False
        if place.seen.get(item.message_id, 0) > self.now_ms:
            return True
        assert not isinstance(definition, SubscriptionDefinition)
        place.seen[item.message_id] = self.now_ms + definition.duplicate_window_ms
        return False

    def arrive(self, place: Place, item: Item) -> None:
        """A message that was not refused comes in; repeats vanish."""
        if self.is_repeated(place, item):
            self.vanished.add(item.mark)
            return
        if place.is_topic and item.scheduled_for_ms <= self.now_ms:
            self.publish(place, item)
        else:
            self.enqueue(place, item)

    def enqueue(self, place: Place, item: Item) -> None:
        """Number a message and put it in its queue."""
        place.last_number[MAIN] += 1
        item.place, item.sub = place, MAIN
        item.number = place.last_number[MAIN]
        place.highest_number[MAIN] = item.number
        item.first_number = item.first_number or item.number
        item.enqueued_ms = self.now_ms
        item.expires_ms = 0
        if place.has_sessions(MAIN):
            assert item.session_id is not None
            item.session_id = self.name(place, item.session_id)
        if item.scheduled_for_ms > self.now_ms:
            item.state = SCHEDULED
        else:
            item.state = ACTIVE
            lives = [place.definition.default_time_to_live_ms]
            lives += [item.live_ms] if item.live_ms is not None else []
            if min(lives) < UNLIMITED_MS:
                item.live_ms = min(lives)
                item.expires_ms = self.now_ms + item.live_ms
        self.items.append(item)

    def publish(self, topic: Place, item: Item) -> None:
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
                copy.place = subscription
                copy.enqueued_ms = self.now_ms
                self.items.append(copy)
                self.bury([copy], "Session id is null.")
            else:
                self.enqueue(subscription, copy)
        if not wanted:
            self.vanished.add(item.mark)

    # --- leaving ----------------------------------------------------------------------------

    def delete(self, items: Iterable[Item]) -> None:
        for item in items:
            self.items.remove(item)

    def bury(self, items: Iterable[Item], reason: str | None) -> None:
        """To the dead-letter queue: a new number there, nothing else changes but the reason."""
        for item in items:
            item.place.last_number[DEAD] += 1
            item.sub = DEAD
            item.number = item.place.highest_number[DEAD] = item.place.last_number[DEAD]
            item.first_number = item.first_number or item.number
            item.state = ACTIVE
            item.expires_ms = 0
            item.lock = None
            item.reason = reason

    def bury_transfer(self, place: Place, item: Item, reason: str) -> None:
        """To the transfer dead-letter queue of the entity it could not get past."""
        place.last_number[TRANSFER_DEAD] += 1
        item.place, item.sub = place, TRANSFER_DEAD
        item.number = place.highest_number[TRANSFER_DEAD] = place.last_number[TRANSFER_DEAD]
        item.enqueued_ms = self.now_ms
        item.reason = reason
        self.items.append(item)

    def expire(self, items: Sequence[Item]) -> None:
        """Time to live is over."""
        for item in items:
            if getattr(item.place.definition, "dead_lettering_on_expiration", False):
                self.bury([item], "TTLExpiredException")
            else:
                self.delete([item])

    def is_expired(self, item: Item) -> bool:
        return 0 < item.expires_ms <= self.now_ms

    # --- after a lock -----------------------------------------------------------------------

    def settle(self, items: Sequence[Item], settlement: Settlement) -> None:
        """Do what the holder of the locks asks."""
        for item in items:
            item.lock = None
            if settlement.properties:
                item.properties.update(settlement.properties)
        kind = settlement.kind
        if kind is SettlementKind.COMPLETE:
            self.delete(items)
        elif kind is SettlementKind.DEAD_LETTER:
            self.bury(items, settlement.reason)
        elif kind is SettlementKind.RELEASE:
            self.give_back(items)
        else:
            left = self.count_failure(items)
            if kind is SettlementKind.DEFER:
                for item in left:
                    item.state = DEFERRED
            self.give_back(left)

    def lose_locks(self, items: Sequence[Item], *, failed: bool) -> None:
        """Locks end without settlement."""
        items = sorted(items, key=lambda item: item.number)
        for item in items:
            item.lock = None
        self.give_back(self.count_failure(items) if failed else items)

    def count_failure(self, items: Sequence[Item]) -> list[Item]:
        """One more failed delivery each, but not of dead letters; those not worn out by it."""
        left = []
        for item in items:
            if item.sub != MAIN:
                left.append(item)
                continue
            item.count += 1
            if item.count >= getattr(item.place.definition, "max_delivery_count", 0):
                self.bury([item], "MaxDeliveryCountExceeded")
            else:
                left.append(item)
        return left

    def give_back(self, items: Sequence[Item]) -> None:
        """Unlocked messages are where they were, unless their time has run out meanwhile."""
        self.expire([i for i in items if i.state == ACTIVE and self.is_expired(i)])

    # --- receivers --------------------------------------------------------------------------

    def end_session(self, listener: Listener, *, failed: bool) -> None:
        """A session is given up, or lost; its locked messages go back."""
        session_id = listener.session_id
        listener.session_id = None
        locked = [
            item
            for item in self.content(listener.place, MAIN)
            if item.session_id == session_id and item.lock is not None
        ]
        self.lose_locks(locked, failed=failed)

    def stop_listening(self, listener: Listener) -> None:
        """A receiver is gone: a session is closed, message locks stay."""
        if not listener.attached:
            return
        if listener.session_id is not None:
            self.end_session(listener, failed=False)
        listener.attached = False
        listener.waits_until_ms = 0

    def detach_all(self, place: Place, error: str, subs: Sequence[int]) -> None:
        """The broker ends the receivers of an entity."""
        for listener in self.listeners:
            if listener.place is place and listener.attached and listener.sub in subs:
                answer = "refused" if listener.waits_until_ms else "detached"
                self.answers.append((answer, listener.peer, error))
                self.stop_listening(listener)

    # --- forwarding -------------------------------------------------------------------------

    def forward_everything(self) -> None:
        """Until nothing moves any more."""
        while any(self._forward(*way) for way in list(self._ways())):
            pass

    def _ways(self) -> Iterator[tuple[Place, int, str]]:
        for place in self.places.values():
            if place.is_topic:
                continue
            assert not isinstance(place.definition, TopicDefinition)
            if place.definition.forward_to is not None:
                yield place, MAIN, place.definition.forward_to
            if place.definition.forward_dead_letters_to is not None:
                yield place, DEAD, place.definition.forward_dead_letters_to

    def _forward(self, place: Place, sub: int, path: str) -> bool:
        moved = False
        for item in self.ready(place, sub):
            obstacle = self._obstacle(item, path)
            if obstacle is None:
                self.items.remove(item)
                item.hops += 1
                item.count = 0
                item.expires_ms = 0
                if sub == DEAD:
                    item.source = item.source or place.path
                self.arrive(self.places[path], item)
                moved = True
            elif sub == MAIN:
                self.bury([item], obstacle)
                moved = True
        return moved

    def _obstacle(self, item: Item, path: str) -> str | None:
        destination = self.places.get(path)
        if destination is None:
            return "EntityNotFound"
        if destination.definition.status in NO_SENDING:
            return "EntityDisabled"
        if item.hops >= self.limits.forward_hops_max:
            return "MaxTransferHopCountExceeded"
        error = self.refusal(destination, item, 0)
        return "Session id is null." if error == "NotAllowed" else error


def _takes(rule_filter: object, item: Item) -> bool:
    if isinstance(rule_filter, CorrelationFilter):
        return rule_filter.label == item.label
    return isinstance(rule_filter, TrueFilter)
