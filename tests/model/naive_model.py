"""What each request must do, and what happens by itself, told by the naive world.

Owns the passing of time, requests about messages, sessions and entities, and a new beginning. The
commands that come with every message are in `model_operations.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract.commands import ReceiveMode
from config.model.definitions import SubscriptionDefinition, TopicDefinition
from tests.model.model_entities import (
    ACTIVE,
    DEAD,
    DEFERRED,
    MAIN,
    MESSAGE_LOCK_IN_SESSION_UNTIL_MS,
    NO_RECEIVING,
    SCHEDULED,
    TRANSFER_DEAD,
    Item,
    Listener,
    Lock,
    Place,
    Refusal,
    item_from,
    same,
)
from tests.model.model_operations import Route, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from broker.core.contract import commands as ask
    from config.model.definitions import EntityDefinition

REPLY_MAX_BYTES = 1024 * 1024
"""What a peek shows must fit into one answer, unless it is a single message."""

LOCK_GRACE_MS = 1_000
"""A session lock outlasts the end that was told by so much."""

# Kinds of events. At one moment they come in this order.
SESSION_LOCK, MESSAGE_LOCK, DUE, OLD, WAIT, TRANSACTION = range(6)


class Model(Traffic):
    """The naive broker: `apply` commands, then let `dispatch.py` hand out messages."""

    def declare(self, entities: Mapping[str, EntityDefinition]) -> None:
        """Begin with these entities."""
        self.places.update({path: Place(path, one) for path, one in entities.items()})

    def apply(self, command: Any, now_ms: int) -> None:
        """What falls due by then, then what the command asks."""
        self.pass_time(now_ms)
        handler: Callable[[Any], object] = getattr(self, f"on_{type(command).__name__}")
        if not hasattr(command, "request"):
            handler(command)
            return
        try:
            value = handler(command)
        except Refusal as refusal:
            self.answers.append(("reply", command.request, None, refusal.error))
            self._doom(getattr(command, "transaction_id", None))
        else:
            self.answers.append(("reply", command.request, value, None))

    # --- time -------------------------------------------------------------------------------

    def pass_time(self, now_ms: int) -> None:
        """Everything that is due happens, the earliest first and each at its own time."""
        while due := [event for event in self.events() if event[0] <= now_ms]:
            self.now_ms, kind = min(event[:2] for event in due)
            subjects = [subject for at, of, subject in due if (at, of) == (self.now_ms, kind)]
            self._happen(kind, subjects)
        self.now_ms = now_ms

    def events(self) -> Iterator[tuple[int, int, Any]]:
        """All that will fall due: when, of which kind, to whom."""
        for listener in self.listeners:
            if listener.attached and listener.session_id is not None:
                yield listener.session_until_ms + LOCK_GRACE_MS, SESSION_LOCK, listener
            if listener.attached and listener.waits_until_ms:
                yield listener.waits_until_ms, WAIT, listener
        for item in self.items:
            if item.lock is not None and not item.lock.in_session:
                yield item.lock.until_ms, MESSAGE_LOCK, item
            if item.state == SCHEDULED:
                yield item.scheduled_for_ms, DUE, item
            if item.state == ACTIVE and item.lock is None and item.expires_ms:
                yield item.expires_ms, OLD, item
        for bundle in self.bundles.values():
            yield bundle.until_ms, TRANSACTION, bundle

    def _happen(self, kind: int, subjects: list[Any]) -> None:
        if kind == SESSION_LOCK:
            for listener in sorted(subjects, key=lambda listener: listener.session_id):
                self.answers.append(("detached", listener.peer, "SessionLockLost"))
                self.end_session(listener, failed=True)
                listener.attached = False
        elif kind == MESSAGE_LOCK:
            self.lose_locks(subjects, failed=True)
        elif kind == DUE:
            for item in sorted(subjects, key=lambda item: item.number):
                self.items.remove(item)
                item.first_number = 0
                item.state = ACTIVE
                (self.publish if item.place.is_topic else self.enqueue)(item.place, item)
        elif kind == OLD:
            self.expire(sorted(subjects, key=lambda item: item.number))
        elif kind == WAIT:
            for listener in subjects:
                self.answers.append(("refused", listener.peer, "OperationTimeout"))
                self.stop_listening(listener)
        else:
            for bundle in subjects:
                self._roll_back(bundle)

    # --- looking and fetching ---------------------------------------------------------------

    def on_Peek(self, command: ask.Peek) -> list[tuple[object, ...]]:
        place, sub = self.find(command.path)
        self.check_receiving(place)
        found = [
            item
            for item in self.content(place, sub)
            if item.number >= command.from_sequence_number
            and (command.session_id is None or same(command.session_id, item.session_id))
        ][: command.count]
        while len(found) > 1 and sum(item.size for item in found) > REPLY_MAX_BYTES:
            found.pop()
        return [shown(item) for item in found]

    def on_ReceiveDeferred(self, command: ask.ReceiveDeferred) -> list[tuple[object, ...]]:
        place, sub = self.find_to_receive(command.path)
        self.check_receiving(place)
        if len(command.sequence_numbers) > self.limits.receive_deferred_max_messages:
            raise Refusal("ArgumentOutOfRange")
        items = []
        for number in dict.fromkeys(command.sequence_numbers):
            found = [i for i in self.content(place, sub) if i.number == number]
            if not found or found[0].state != DEFERRED or found[0].lock is not None:
                raise Refusal("MessageNotFound")
            wanted = command.session_id
            if wanted is not None and not same(wanted, found[0].session_id):
                raise Refusal("MessageNotFound")
            items += found
        holder = self._holder_of_all(place, sub, items)
        if expired := [item for item in items if self.is_expired(item)]:
            self.expire(expired)
            raise Refusal("MessageNotFound")
        assert not isinstance(place.definition, TopicDefinition)
        if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
            self.delete(items)
        elif holder is not None:
            for item in items:
                item.lock = Lock(None, MESSAGE_LOCK_IN_SESSION_UNTIL_MS, holder, in_session=True)
        else:
            for item in items:
                item.lock = Lock(None, self.now_ms + place.definition.lock_duration_ms, None)
        return [shown(item) for item in items]

    def _holder_of_all(self, place: Place, sub: int, items: Sequence[Item]) -> Listener | None:
        """The holder of the one session all these messages are of; None where there are none."""
        if not place.has_sessions(sub):
            return None
        session_id = items[0].session_id
        if any(item.session_id != session_id for item in items):
            raise Refusal("MessageNotFound")
        assert session_id is not None
        holder = self.holder(place, session_id)
        if holder is None:
            raise Refusal("SessionLockLost")
        return holder

    def on_DeleteMessages(self, command: ask.DeleteMessages) -> int:
        place, sub = self.find_to_receive(command.path)
        self.check_receiving(place)
        if not 0 < command.count <= self.limits.delete_max_messages:
            raise Refusal("ArgumentOutOfRange")
        chosen = [
            item
            for item in self.ready(place, sub)
            if item.enqueued_ms < command.before_ms
            and (command.session_id is None or same(command.session_id, item.session_id))
        ][: command.count]
        self.delete(chosen)
        return len(chosen)

    # --- scheduling -------------------------------------------------------------------------

    def on_Schedule(self, command: ask.Schedule) -> list[int]:
        place = self.find_to_send(command.path)
        route = Route(place)
        items = [item_from(message, place) for message in command.messages]
        self._check_all(route, items)
        if command.transaction_id is None:
            self._run_send(route, items)
            return [item.number or item.first_number or self._void(place) for item in items]
        numbers: list[int] = []

        def run() -> None:
            self._run_send(route, items)
            for item, number in zip(items, numbers, strict=True):
                if item.state == SCHEDULED and item in self.items:
                    item.number = item.first_number = number

        self._hold(command.transaction_id, len(items), lambda: self._check_all(route, items), run)
        for _ in items:
            place.last_number[MAIN] += 1
            numbers.append(place.last_number[MAIN])
        return numbers

    def on_CancelScheduled(self, command: ask.CancelScheduled) -> None:
        place = self.find_to_send(command.path)
        numbers = list(dict.fromkeys(command.sequence_numbers))

        def items() -> list[Item]:
            return [
                item
                for number in numbers
                for item in self.content(place, MAIN)
                if item.number == number and item.state == SCHEDULED
            ]

        def check() -> None:
            if len(items()) < len(numbers):
                raise Refusal("MessageNotFound")

        check()
        if command.transaction_id is None:
            self.delete(items())
        else:
            self._hold(command.transaction_id, len(numbers), check, lambda: self.delete(items()))

    # --- sessions ---------------------------------------------------------------------------

    def _held(self, path: str, session_id: str) -> tuple[Place, Listener]:
        place = self.find_sessions(path)
        holder = self.holder(place, session_id)
        if holder is None:
            raise Refusal("SessionLockLost")
        return place, holder

    def on_RenewSessionLock(self, command: ask.RenewSessionLock) -> int:
        place, holder = self._held(command.path, command.session_id)
        assert not isinstance(place.definition, TopicDefinition)
        holder.session_until_ms = self.now_ms + place.definition.lock_duration_ms
        return holder.session_until_ms

    def on_SetSessionState(self, command: ask.SetSessionState) -> None:
        place, holder = self._held(command.path, command.session_id)
        name = str(holder.session_id)
        if command.state is None:
            place.states.pop(name, None)
            return
        before, _ = place.states.get(name, (b"", 0))
        grows_by = len(command.state) - len(before)
        if grows_by > 0 and self.is_full(place, grows_by):
            raise Refusal("QuotaExceeded")
        place.states[name] = command.state, self.now_ms

    def on_GetSessionState(self, command: ask.GetSessionState) -> bytes | None:
        place, holder = self._held(command.path, command.session_id)
        return place.states.get(str(holder.session_id), (None, 0))[0]

    def on_ListSessions(self, command: ask.ListSessions) -> list[str]:
        place = self.find_sessions(command.path)
        since_ms = command.updated_since_ms
        if since_ms is None:
            ids = {item.session_id for item in self.content(place, MAIN)} | set(place.states)
        else:
            ids = {one for one, (_, set_ms) in place.states.items() if set_ms > since_ms}
        known = sorted(one for one in ids if one is not None)
        return known[command.skip : command.skip + command.top]

    # --- entities ---------------------------------------------------------------------------

    def on_CreateEntity(self, command: ask.CreateEntity) -> object:
        if command.path in self.places:
            raise Refusal("EntityAlreadyExists")
        topic = command.path.partition("/Subscriptions/")[0]
        if topic != command.path and topic not in self.places:
            raise Refusal("EntityNotFound")
        self._check_destinations(command.path, _destinations(command.definition))
        self.places[command.path] = Place(command.path, command.definition)
        return self.view(self.places[command.path])

    def _check_destinations(self, path: str, new: set[str]) -> None:
        """What is there may be forwarded to, itself too."""
        if not new <= {*self.places, path}:
            raise Refusal("ArgumentError")

    def on_UpdateEntity(self, command: ask.UpdateEntity) -> object:
        place, _ = self.find(command.path)
        before = place.definition
        changed = _destinations(command.definition) - _destinations(before)
        self._check_destinations(command.path, changed)
        place.definition = command.definition
        if isinstance(before, SubscriptionDefinition):
            assert isinstance(command.definition, SubscriptionDefinition)
            place.definition = replace(command.definition, rules=before.rules)
        if place.definition.status in NO_RECEIVING:
            self.detach_all(place, "EntityDisabled", (MAIN, DEAD, TRANSFER_DEAD))
        if getattr(place.definition, "forward_to", None) is not None:
            self.detach_all(place, "NotAllowed", (MAIN,))
        return self.view(place)

    def on_DeleteEntity(self, command: ask.DeleteEntity) -> None:
        place, _ = self.find(command.path)
        for gone in (*self.subscriptions(place), place) if place.is_topic else (place,):
            self.detach_all(gone, "EntityNotFound", (MAIN, DEAD, TRANSFER_DEAD))
            for peer, route in self.senders.items():
                if route.place is gone:
                    self.answers.append(("detached", peer, "EntityNotFound"))
            self.delete([item for item in self.items if item.place is gone])
            del self.places[gone.path]

    def on_AddRule(self, command: ask.AddRule) -> object:
        place = self._find_rules(command.path)
        definition = place.definition
        assert isinstance(definition, SubscriptionDefinition)
        if command.rule.name in [rule.name for rule in definition.rules]:
            raise Refusal("EntityAlreadyExists")
        place.definition = replace(definition, rules=(*definition.rules, command.rule))
        return command.rule

    def on_RemoveRule(self, command: ask.RemoveRule) -> None:
        place = self._find_rules(command.path)
        definition = place.definition
        assert isinstance(definition, SubscriptionDefinition)
        rules = tuple(rule for rule in definition.rules if rule.name != command.name)
        if len(rules) == len(definition.rules):
            raise Refusal("EntityNotFound")
        place.definition = replace(definition, rules=rules)

    def _find_rules(self, path: str) -> Place:
        place, _ = self.find(path)
        if not isinstance(place.definition, SubscriptionDefinition):
            raise Refusal("NotAllowed")
        return place

    def on_GetEntity(self, command: ask.GetEntity) -> object:
        return self.view(self.find(command.path)[0])

    def view(self, place: Place) -> tuple[object, ...]:
        """Path, definition and counts."""
        states = [item.state for item in self.content(place, MAIN)]
        return (
            place.path,
            undated(place.definition),
            states.count(ACTIVE),
            states.count(DEFERRED),
            states.count(SCHEDULED),
            len(self.content(place, DEAD)),
            len(self.content(place, TRANSFER_DEAD)),
            len([item for item in self.content(place, MAIN) if item.lock is not None]),
            self.used_bytes(place),
        )

    def on_Tick(self, command: ask.Tick) -> None:
        """Time has passed already."""

    # --- a new beginning --------------------------------------------------------------------

    def restart(self) -> None:
        """The broker starts again from its store: links, locks and transactions are gone."""
        self.senders.clear()
        self.listeners.clear()
        self.bundles.clear()
        self.declared.clear()
        self.answers.clear()
        for item in self.items:
            item.lock = None


def undated(definition: EntityDefinition) -> EntityDefinition:
    """A definition without the times when its rules were made."""
    if not isinstance(definition, SubscriptionDefinition):
        return definition
    rules = tuple(replace(rule, created_time_ms=0) for rule in definition.rules)
    return replace(definition, rules=rules)


def shown(item: Item) -> tuple[object, ...]:
    """A message as a peek shows it."""
    return (
        item.mark,
        item.number,
        item.first_number,
        item.state,
        item.count,
        item.reason,
        item.source,
        tuple(sorted(item.properties.items())),
        item.enqueued_ms,
        item.expires_ms,
    )


def _destinations(definition: EntityDefinition) -> set[str]:
    """Where an entity's messages and dead letters go."""
    both = (getattr(definition, f"forward{what}_to", None) for what in ("", "_dead_letters"))
    return {one for one in both if one is not None}
