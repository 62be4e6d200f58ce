"""What each request does in the naive model, and what happens when time passes.

Has deadlines, requests about messages, sessions and entities, and restarts. Links, sends,
settlements and transactions are in `model_operations.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract.settlement_values import ReceiveMode
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
    ModelEntity,
    ModelLock,
    ModelMessage,
    ModelReceiver,
    Refusal,
    model_message_from,
    same,
)
from tests.model.model_operations import ModelOperations, Route

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


class Model(ModelOperations):
    """The naive broker: `apply` commands, then let `dispatch.py` hand out messages."""

    def declare(self, entities: Mapping[str, EntityDefinition]) -> None:
        """Begin with these entities."""
        self.entities.update({path: ModelEntity(path, one) for path, one in entities.items()})

    def apply(self, command: Any, now_ms: int) -> None:
        """Carries out what is due, and then the command."""
        self.pass_time(now_ms)
        handler: Callable[[Any], object] = getattr(self, f"on_{type(command).__name__}")
        if not hasattr(command, "request"):
            handler(command)
            return
        try:
            value = handler(command)
        except Refusal as refusal:
            self.answers.append(("reply", command.request, None, refusal.error))
            self._mark_failed(getattr(command, "transaction_id", None))
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
        for receiver in self.receivers:
            if receiver.attached and receiver.session_id is not None:
                yield receiver.session_until_ms + LOCK_GRACE_MS, SESSION_LOCK, receiver
            if receiver.attached and receiver.waits_until_ms:
                yield receiver.waits_until_ms, WAIT, receiver
        for item in self.items:
            if item.lock is not None and not item.lock.in_session:
                yield item.lock.until_ms, MESSAGE_LOCK, item
            if item.state == SCHEDULED:
                yield item.scheduled_for_ms, DUE, item
            if item.state == ACTIVE and item.lock is None and item.expires_ms:
                yield item.expires_ms, OLD, item
        for transaction in self.transactions.values():
            yield transaction.until_ms, TRANSACTION, transaction

    def _happen(self, kind: int, subjects: list[Any]) -> None:
        if kind == SESSION_LOCK:
            for receiver in sorted(subjects, key=lambda receiver: receiver.session_id):
                self.answers.append(("detached", receiver.peer, "SessionLockLost"))
                self.end_session(receiver, failed=True)
                receiver.attached = False
        elif kind == MESSAGE_LOCK:
            self.lose_locks(subjects, failed=True)
        elif kind == DUE:
            for item in sorted(subjects, key=lambda item: item.number):
                self.items.remove(item)
                item.first_number = 0
                item.state = ACTIVE
                (self.publish if item.entity.is_topic else self.enqueue)(item.entity, item)
        elif kind == OLD:
            self.expire(sorted(subjects, key=lambda item: item.number))
        elif kind == WAIT:
            for receiver in subjects:
                self.answers.append(("refused", receiver.peer, "OperationTimeout"))
                self.stop_receiving(receiver)
        else:
            for transaction in subjects:
                self._roll_back(transaction)

    # --- looking and fetching ---------------------------------------------------------------

    def on_Peek(self, command: ask.Peek) -> list[tuple[object, ...]]:
        entity, sub = self.find(command.path)
        self.check_receiving(entity)
        found = [
            item
            for item in self.content(entity, sub)
            if item.number >= command.from_sequence_number
            and (command.session_id is None or same(command.session_id, item.session_id))
        ][: command.count]
        while len(found) > 1 and sum(item.size for item in found) > REPLY_MAX_BYTES:
            found.pop()
        return [shown(item) for item in found]

    def on_ReceiveDeferred(self, command: ask.ReceiveDeferred) -> list[tuple[object, ...]]:
        entity, sub = self.find_to_receive(command.path)
        self.check_receiving(entity)
        if len(command.sequence_numbers) > self.limits.receive_deferred_max_messages:
            raise Refusal("ArgumentOutOfRange")
        items = []
        for number in dict.fromkeys(command.sequence_numbers):
            found = [i for i in self.content(entity, sub) if i.number == number]
            if not found or found[0].state != DEFERRED or found[0].lock is not None:
                raise Refusal("MessageNotFound")
            wanted = command.session_id
            if wanted is not None and not same(wanted, found[0].session_id):
                raise Refusal("MessageNotFound")
            items += found
        holder = self._holder_of_all(entity, sub, items)
        if expired := [item for item in items if self.is_expired(item)]:
            self.expire(expired)
            raise Refusal("MessageNotFound")
        assert not isinstance(entity.definition, TopicDefinition)
        if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
            self.delete(items)
        elif holder is not None:
            for item in items:
                item.lock = ModelLock(
                    None, MESSAGE_LOCK_IN_SESSION_UNTIL_MS, holder, in_session=True
                )
        else:
            for item in items:
                item.lock = ModelLock(None, self.now_ms + entity.definition.lock_duration_ms, None)
        return [shown(item) for item in items]

    def _holder_of_all(
        self, entity: ModelEntity, sub: int, items: Sequence[ModelMessage]
    ) -> ModelReceiver | None:
        """The holder of the one session all these messages are of; None where there are none."""
        if not entity.has_sessions(sub):
            return None
        session_id = items[0].session_id
        if any(item.session_id != session_id for item in items):
            raise Refusal("MessageNotFound")
        assert session_id is not None
        holder = self.holder(entity, session_id)
        if holder is None:
            raise Refusal("SessionLockLost")
        return holder

    def on_DeleteMessages(self, command: ask.DeleteMessages) -> int:
        entity, sub = self.find_to_receive(command.path)
        self.check_receiving(entity)
        if not 0 < command.count <= self.limits.delete_max_messages:
            raise Refusal("ArgumentOutOfRange")
        chosen = [
            item
            for item in self.ready(entity, sub)
            if item.enqueued_ms < command.before_ms
            and (command.session_id is None or same(command.session_id, item.session_id))
        ][: command.count]
        self.delete(chosen)
        return len(chosen)

    # --- scheduling -------------------------------------------------------------------------

    def on_Schedule(self, command: ask.Schedule) -> list[int]:
        entity = self.find_to_send(command.path)
        route = Route(entity)
        items = [model_message_from(message, entity) for message in command.messages]
        self._check_all(route, items)
        if command.transaction_id is None:
            self._run_send(route, items)
            return [item.number or item.first_number or self._void(entity) for item in items]
        numbers: list[int] = []

        def run() -> None:
            self._run_send(route, items)
            for item, number in zip(items, numbers, strict=True):
                if item.state == SCHEDULED and item in self.items:
                    item.number = item.first_number = number

        self._hold(command.transaction_id, len(items), lambda: self._check_all(route, items), run)
        for _ in items:
            entity.last_number[MAIN] += 1
            numbers.append(entity.last_number[MAIN])
        return numbers

    def on_CancelScheduled(self, command: ask.CancelScheduled) -> None:
        entity = self.find_to_send(command.path)
        numbers = list(dict.fromkeys(command.sequence_numbers))

        def items() -> list[ModelMessage]:
            return [
                item
                for number in numbers
                for item in self.content(entity, MAIN)
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

    def _held(self, path: str, session_id: str) -> tuple[ModelEntity, ModelReceiver]:
        entity = self.find_sessions(path)
        holder = self.holder(entity, session_id)
        if holder is None:
            raise Refusal("SessionLockLost")
        return entity, holder

    def on_RenewSessionLock(self, command: ask.RenewSessionLock) -> int:
        entity, holder = self._held(command.path, command.session_id)
        assert not isinstance(entity.definition, TopicDefinition)
        holder.session_until_ms = self.now_ms + entity.definition.lock_duration_ms
        return holder.session_until_ms

    def on_SetSessionState(self, command: ask.SetSessionState) -> None:
        entity, holder = self._held(command.path, command.session_id)
        name = str(holder.session_id)
        if command.state is None:
            entity.states.pop(name, None)
            return
        before, _ = entity.states.get(name, (b"", 0))
        grows_by = len(command.state) - len(before)
        if grows_by > 0 and self.is_full(entity, grows_by):
            raise Refusal("QuotaExceeded")
        entity.states[name] = command.state, self.now_ms

    def on_GetSessionState(self, command: ask.GetSessionState) -> bytes | None:
        entity, holder = self._held(command.path, command.session_id)
        return entity.states.get(str(holder.session_id), (None, 0))[0]

    def on_ListSessions(self, command: ask.ListSessions) -> list[str]:
        entity = self.find_sessions(command.path)
        since_ms = command.updated_since_ms
        if since_ms is None:
            ids = {item.session_id for item in self.content(entity, MAIN)} | set(entity.states)
        else:
            ids = {one for one, (_, set_ms) in entity.states.items() if set_ms > since_ms}
        known = sorted(one for one in ids if one is not None)
        return known[command.skip : command.skip + command.top]

    # --- entities ---------------------------------------------------------------------------

    def on_CreateEntity(self, command: ask.CreateEntity) -> object:
        if command.path in self.entities:
            raise Refusal("EntityAlreadyExists")
        topic = command.path.partition("/Subscriptions/")[0]
        if topic != command.path and topic not in self.entities:
            raise Refusal("EntityNotFound")
        self._check_destinations(command.path, _destinations(command.definition))
        self.entities[command.path] = ModelEntity(command.path, command.definition)
        return self.view(self.entities[command.path])

    def _check_destinations(self, path: str, new: set[str]) -> None:
        """What is there may be forwarded to, itself too."""
        if not new <= {*self.entities, path}:
            raise Refusal("ArgumentError")

    def on_UpdateEntity(self, command: ask.UpdateEntity) -> object:
        entity, _ = self.find(command.path)
        before = entity.definition
        changed = _destinations(command.definition) - _destinations(before)
        self._check_destinations(command.path, changed)
        entity.definition = command.definition
        if isinstance(before, SubscriptionDefinition):
            assert isinstance(command.definition, SubscriptionDefinition)
            entity.definition = replace(command.definition, rules=before.rules)
        if entity.definition.status in NO_RECEIVING:
            self.detach_all(entity, "EntityDisabled", (MAIN, DEAD, TRANSFER_DEAD))
        if getattr(entity.definition, "forward_to", None) is not None:
            self.detach_all(entity, "NotAllowed", (MAIN,))
        return self.view(entity)

    def on_DeleteEntity(self, command: ask.DeleteEntity) -> None:
        entity, _ = self.find(command.path)
        for gone in (*self.subscriptions(entity), entity) if entity.is_topic else (entity,):
            self.detach_all(gone, "EntityNotFound", (MAIN, DEAD, TRANSFER_DEAD))
            for peer, route in self.senders.items():
                if route.entity is gone:
                    self.answers.append(("detached", peer, "EntityNotFound"))
            self.delete([item for item in self.items if item.entity is gone])
            del self.entities[gone.path]

    def on_AddRule(self, command: ask.AddRule) -> object:
        entity = self._find_rules(command.path)
        definition = entity.definition
        assert isinstance(definition, SubscriptionDefinition)
        if command.rule.name in [rule.name for rule in definition.rules]:
            raise Refusal("EntityAlreadyExists")
        entity.definition = replace(definition, rules=(*definition.rules, command.rule))
        return command.rule

    def on_RemoveRule(self, command: ask.RemoveRule) -> None:
        entity = self._find_rules(command.path)
        definition = entity.definition
        assert isinstance(definition, SubscriptionDefinition)
        rules = tuple(rule for rule in definition.rules if rule.name != command.name)
        if len(rules) == len(definition.rules):
            raise Refusal("EntityNotFound")
        entity.definition = replace(definition, rules=rules)

    def _find_rules(self, path: str) -> ModelEntity:
        entity, _ = self.find(path)
        if not isinstance(entity.definition, SubscriptionDefinition):
            raise Refusal("NotAllowed")
        return entity

    def on_GetEntity(self, command: ask.GetEntity) -> object:
        return self.view(self.find(command.path)[0])

    def view(self, entity: ModelEntity) -> tuple[object, ...]:
        """Path, definition and counts."""
        states = [item.state for item in self.content(entity, MAIN)]
        return (
            entity.path,
            undated(entity.definition),
            states.count(ACTIVE),
            states.count(DEFERRED),
            states.count(SCHEDULED),
            len(self.content(entity, DEAD)),
            len(self.content(entity, TRANSFER_DEAD)),
            len([item for item in self.content(entity, MAIN) if item.lock is not None]),
            self.used_bytes(entity),
        )

    def on_Tick(self, command: ask.Tick) -> None:
        """Time has passed already."""

    # --- a new beginning --------------------------------------------------------------------

    def restart(self) -> None:
        """The broker starts again from its store: links, locks and transactions are gone."""
        self.senders.clear()
        self.receivers.clear()
        self.transactions.clear()
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


def shown(item: ModelMessage) -> tuple[object, ...]:
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
