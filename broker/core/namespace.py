"""A namespace: the entities, who is linked to them, and the one place where commands are acted on.

Owns addresses and links, and hands each command to whatever it concerns. Every command meets a
world in which all that is due has happened. What is refused has changed nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from broker.core import commands as ask
from broker.core.deadlines import Due
from broker.core.definitions import definition_from_json
from broker.core.effects import (
    Accepted,
    Detached,
    ReceiverAttached,
    Refused,
    Reply,
    SenderAttached,
    SendRefused,
    SettleRefused,
)
from broker.core.entities import Entity
from broker.core.environment import Environment
from broker.core.errors import (
    BrokerError,
    EntityAlreadyExists,
    EntityNotFound,
    MessageLockLost,
    NotAllowed,
    NotImplementedHere,
)
from broker.core.message import MessageState
from broker.core.outlet import Receiver
from broker.core.payloads import Payloads
from broker.core.queue import MAIN, Queue
from broker.core.records import EntityDeleted
from broker.core.rows import message_from
from config.entities import SubscriptionDefinition, TopicDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from broker.core.commands import Command, Peer
    from broker.core.identifiers import MessageIds
    from broker.core.message import Message, MessageReader
    from broker.core.turn import Turn
    from config.entities import EntityDefinition
    from config.limits import Limits

_DEAD_LETTER_SUFFIX = "/$deadletterqueue"
_TRANSFER_SUFFIX = "/$transfer"


class Namespace:
    """One namespace: `apply` commands, then `dispatch` once a turn."""

    def __init__(
        self,
        name: str,
        *,
        reader: MessageReader,
        new_lock_token: Callable[[], bytes],
        limits: Limits,
        ids: MessageIds,
        payload_budget_bytes: int | None,
        hold_locks_after_connection_loss: bool = False,
    ) -> None:
        self.name = name
        self._environment = Environment(
            reader, new_lock_token, limits, ids, Payloads(payload_budget_bytes)
        )
        self._holds_locks = hold_locks_after_connection_loss
        self._entities: dict[str, Entity] = {}
        """By path in lower case, subscriptions too."""
        self._senders: dict[Peer, Entity] = {}
        self._receivers: dict[Peer, Receiver] = {}
        self._parked: list[Command] = []
        """Requests that wait for bodies to be read back."""
        self._handlers: dict[type, Callable[[Any, int, Turn], None]] = {
            ask.AttachSender: self._attach_sender,
            ask.AttachReceiver: self._attach_receiver,
            ask.Detach: self._detach,
            ask.Credit: self._credit,
            ask.Send: self._send,
            ask.SendBatch: self._send_batch,
            ask.Settle: self._settle,
            ask.RenewLocks: self._renew_locks,
            ask.SettleByToken: self._settle_by_token,
            ask.Peek: self._peek,
            ask.CreateEntity: self._create_entity,
            ask.DeleteEntity: self._delete_entity,
            ask.GetEntity: self._get_entity,
            ask.ListEntities: self._list_entities,
            ask.Tick: self._tick,
            ask.PayloadsLoaded: self._payloads_loaded,
        }
        self._due: dict[Due, Callable[[Iterable[Any], int, Turn], None]] = {
            Due.MESSAGE_LOCK: self._locks_expire,
            Due.TIME_TO_LIVE: self._messages_expire,
        }

    # --- the turn ---------------------------------------------------------------------------

    def apply(self, command: Command, now_ms: int, turn: Turn) -> None:
        """Do what a command asks, after everything that was due before it."""
        earliest_ms = self._environment.deadlines.earliest_ms()
        if earliest_ms is not None and earliest_ms <= now_ms:
            for kind, items in self._environment.deadlines.take_due(now_ms):
                self._due[kind](items, now_ms, turn)
        handler = self._handlers.get(type(command))
        if handler is not None:
            handler(command, now_ms, turn)
        else:
            error = NotImplementedHere(f"{type(command).__name__} is not supported yet.")
            turn.effects.append(Reply(command.peer, command.request, error=error))  # type: ignore[union-attr]

    def dispatch(self, now_ms: int, turn: Turn) -> None:
        """Match credit with messages, wherever this turn changed either."""
        environment = self._environment
        touched = environment.touched
        while touched:
            environment.touched = {}
            for outlet in touched:
                outlet.dispatch(now_ms, turn)
            touched = environment.touched
        if environment.arrived:
            arrived, environment.arrived = environment.arrived, []
            for message in arrived:
                if message.waits and message.body is not None:
                    environment.payloads.evict(message)
                    message.queue.outlet.paged_out(message)  # type: ignore[union-attr]

    def next_deadline_ms(self) -> int | None:
        """When the next `Tick` has something to do."""
        return self._environment.deadlines.earliest_ms()

    def _tick(self, command: ask.Tick, now_ms: int, turn: Turn) -> None:
        """What was due has been done before any command."""

    def _payloads_loaded(self, command: ask.PayloadsLoaded, now_ms: int, turn: Turn) -> None:
        for message in self._environment.payloads.loaded(command.payloads):
            if message.waits:
                message.queue.outlet.touch()  # type: ignore[union-attr]
        parked, self._parked = self._parked, []
        for request in parked:
            self._handlers[type(request)](request, now_ms, turn)

    def _locks_expire(self, messages: Iterable[Message], now_ms: int, turn: Turn) -> None:
        for queue, expired in _by_queue(messages).items():
            queue.fail_deliveries(expired, now_ms, turn)

    def _messages_expire(self, messages: Iterable[Message], now_ms: int, turn: Turn) -> None:
        for queue, expired in _by_queue(messages).items():
            # What is locked lives on until its lock ends; what is deferred, until it is fetched.
            if waiting := [message for message in expired if message.waits]:
                queue.expire(waiting, turn)
                queue.outlet.touch()

    # --- start ------------------------------------------------------------------------------

    def declare(self, entities: Mapping[str, EntityDefinition], now_ms: int, turn: Turn) -> None:
        """Have these entities exist as defined, whatever was there before."""
        for path, definition in entities.items():
            entity = self._entities.get(path.lower())
            if entity is None:
                self._create(path, definition, now_ms, turn)
            elif entity.definition != definition:
                entity.redefine(definition, now_ms)
                turn.records.append(entity.record(self.name))

    def restore(self, snapshot: Any, now_ms: int) -> None:
        """Begin with what the store remembers of this namespace."""
        ids = self._environment.ids
        ids.skip(message_id=snapshot.highest_message_id)
        by_id: dict[int, Entity] = {}
        for stored in snapshot.entities:
            ids.skip(entity_id=stored.entity_id)
            if stored.namespace != self.name:
                continue
            entity = Entity(
                self._environment,
                stored.entity_id,
                stored.path,
                definition_from_json(stored.definition),
                now_ms,
            )
            entity.created_time_ms = stored.created_time_ms
            entity.updated_time_ms = stored.updated_time_ms
            by_id[entity.id] = entity
            self._entities[entity.path.lower()] = entity
        for (entity_id, sub_queue), number in snapshot.sequence_numbers.items():
            if entity_id in by_id:
                by_id[entity_id].queues[sub_queue].last_sequence_number = number
        for row in snapshot.messages:
            if row.entity_id in by_id:
                by_id[row.entity_id].queues[row.sub_queue].restore(message_from(row))

    # --- addresses --------------------------------------------------------------------------

    def _find(self, path: str) -> tuple[Entity, Queue] | EntityNotFound:
        """The entity and the queue of it that a path names."""
        key = path.lower()
        sub_queue = MAIN
        if key.endswith(_DEAD_LETTER_SUFFIX):
            key = key[: -len(_DEAD_LETTER_SUFFIX)]
            sub_queue = 1
            if key.endswith(_TRANSFER_SUFFIX):
                key = key[: -len(_TRANSFER_SUFFIX)]
                sub_queue = 2
        entity = self._entities.get(key)
        if entity is None:
            return EntityNotFound(path)
        return entity, entity.queues[sub_queue]

    # --- links ------------------------------------------------------------------------------

    def _attach_sender(self, command: ask.AttachSender, now_ms: int, turn: Turn) -> None:
        found = self._find(command.path)
        if isinstance(found, EntityNotFound):
            turn.effects.append(Refused(command.peer, found))
            return
        entity, queue = found
        error = entity.refuses_sending()
        if queue.sub_queue != MAIN or isinstance(entity.definition, SubscriptionDefinition):
            error = NotAllowed(f"Messages cannot be sent to '{queue.path}', only received there.")
        if error is not None:
            turn.effects.append(Refused(command.peer, error))
            return
        self._senders[command.peer] = entity
        entity.senders[command.peer] = None
        entity.accessed_time_ms = now_ms
        turn.effects.append(SenderAttached(command.peer, entity.max_message_bytes))

    def _attach_receiver(self, command: ask.AttachReceiver, now_ms: int, turn: Turn) -> None:
        found = self._find(command.path)
        if isinstance(found, EntityNotFound):
            turn.effects.append(Refused(command.peer, found))
            return
        entity, queue = found
        error = entity.refuses_receiving()
        if isinstance(entity.definition, TopicDefinition):
            error = NotAllowed(
                f"Messages cannot be received from the topic '{entity.path}' itself."
            )
        elif command.session is not None:
            error = NotAllowed(
                "A sessionful message receiver cannot be created on an entity that does not "
                "require sessions."
            )
        if error is not None:
            turn.effects.append(Refused(command.peer, error))
            return
        receiver = Receiver(command.peer, queue, command.mode)
        receiver.outlet = queue.outlet
        self._receivers[command.peer] = receiver
        entity.receivers[receiver] = None
        entity.accessed_time_ms = now_ms
        turn.effects.append(ReceiverAttached(command.peer))

    def _detach(self, command: ask.Detach, now_ms: int, turn: Turn) -> None:
        for peer in command.peers:
            entity = self._senders.pop(peer, None)
            if entity is not None:
                entity.senders.pop(peer, None)
            receiver = self._receivers.get(peer)
            if receiver is None:
                continue
            if receiver.attached:
                self._release_receiver(receiver)
            if command.connection_lost and receiver.held and not self._holds_locks:
                receiver.queue.fail_deliveries(sorted(receiver.held, key=_age), now_ms, turn)
            if not receiver.held:
                del self._receivers[peer]

    def _release_receiver(self, receiver: Receiver) -> None:
        receiver.attached = False
        if receiver.outlet is not None:
            receiver.outlet.forget(receiver)
        found = self._find(receiver.queue.path)
        if not isinstance(found, EntityNotFound):
            found[0].receivers.pop(receiver, None)

    def _credit(self, command: ask.Credit, now_ms: int, turn: Turn) -> None:
        receiver = self._receivers.get(command.peer)
        if receiver is not None and receiver.attached and receiver.outlet is not None:
            receiver.outlet.grant(receiver, command.limit, drain=command.drain)

    # --- traffic ----------------------------------------------------------------------------

    def _send(self, command: ask.Send, now_ms: int, turn: Turn) -> None:
        entity = self._senders.get(command.peer)
        error = self._refuses_all(entity)
        if error is not None or entity is None:
            turn.effects.extend(
                SendRefused(command.peer, handle, error or NotAllowed("The link is not attached."))
                for handle in command.handles
                if handle is not None
            )
            return
        messages: Sequence[Message] = command.messages
        handles: Sequence[object] = command.handles
        if not self._all_fit(entity, messages):
            fitting: list[Message] = []
            answered: list[object] = []
            size = 0
            for message, handle in zip(messages, handles, strict=True):
                error = entity.refuses_size(message, size)
                if error is None:
                    fitting.append(message)
                    answered.append(handle)
                    size += message.size
                elif handle is not None:
                    turn.effects.append(SendRefused(command.peer, handle, error))
            messages, handles = fitting, answered
        if messages:
            entity.main.store(messages, now_ms, turn)
        entity.accessed_time_ms = now_ms
        if handles := [handle for handle in handles if handle is not None]:
            turn.effects.append(Accepted(command.peer, handles))

    def _send_batch(self, command: ask.SendBatch, now_ms: int, turn: Turn) -> None:
        entity = self._senders.get(command.peer)
        error = self._refuses_all(entity)
        if error is None and entity is not None and not self._all_fit(entity, command.messages):
            size = 0
            for message in command.messages:
                error = entity.refuses_size(message, size)
                if error is not None:
                    break
                size += message.size
        if error is not None or entity is None:
            if command.handle is not None:
                turn.effects.append(
                    SendRefused(
                        command.peer,
                        command.handle,
                        error or NotAllowed("The link is not attached."),
                    )
                )
            return
        if command.messages:
            entity.main.store(command.messages, now_ms, turn)
        entity.accessed_time_ms = now_ms
        if command.handle is not None:
            turn.effects.append(Accepted(command.peer, [command.handle]))

    def _refuses_all(self, entity: Entity | None) -> BrokerError | None:
        if entity is None:
            return NotAllowed("The link is not attached.")
        if self._entities.get(entity.path.lower()) is not entity:
            return EntityNotFound(entity.path)
        return entity.refuses_sending()

    @staticmethod
    def _all_fit(entity: Entity, messages: Sequence[Message]) -> bool:
        sizes = [message.size for message in messages]
        if not sizes or max(sizes) > entity.max_message_bytes:
            return not sizes
        return not 0 < entity.max_size_bytes < entity.size_bytes + sum(sizes)

    def _settle(self, command: ask.Settle, now_ms: int, turn: Turn) -> None:
        receiver = self._receivers.get(command.peer)
        if receiver is None:
            handles = [handle for handle in command.handles if handle is not None]
            if handles:
                turn.effects.append(SettleRefused(command.peer, handles, MessageLockLost()))
            return
        receiver.queue.settle(
            command.peer, command.tokens, command.handles, command.settlement, now_ms, turn
        )

    # --- requests ---------------------------------------------------------------------------

    def _renew_locks(self, command: ask.RenewLocks, now_ms: int, turn: Turn) -> None:
        found = self._find(command.path)
        if isinstance(found, EntityNotFound):
            turn.effects.append(Reply(command.peer, command.request, error=found))
            return
        renewed = found[1].renew(command.tokens, now_ms)
        if isinstance(renewed, BrokerError):
            turn.effects.append(Reply(command.peer, command.request, error=renewed))
        else:
            turn.effects.append(Reply(command.peer, command.request, renewed))

    def _settle_by_token(self, command: ask.SettleByToken, now_ms: int, turn: Turn) -> None:
        found = self._find(command.path)
        if isinstance(found, EntityNotFound):
            turn.effects.append(Reply(command.peer, command.request, error=found))
            return
        queue = found[1]
        error = queue.refuses(command.settlement)
        if error is None and any(token not in queue.locks for token in command.tokens):
            error = MessageLockLost()
        if error is not None:
            turn.effects.append(Reply(command.peer, command.request, error=error))
            return
        messages = [queue.locks.pop(token) for token in dict.fromkeys(command.tokens)]
        if messages:
            queue.end_locks(messages, command.settlement, now_ms, turn)
        turn.effects.append(Reply(command.peer, command.request))

    def _peek(self, command: ask.Peek, now_ms: int, turn: Turn) -> None:
        found = self._find(command.path)
        if isinstance(found, EntityNotFound):
            turn.effects.append(Reply(command.peer, command.request, error=found))
            return
        walk = found[1].index.walk(command.from_sequence_number)
        count = min(command.count, self._environment.limits.peek_max_messages)
        messages = list(islice(walk, count))
        missing = [message for message in messages if message.body is None]
        if missing:
            self._environment.payloads.request(missing, turn)
            self._parked.append(command)
            return
        turn.effects.append(Reply(command.peer, command.request, messages))

    # --- entities ---------------------------------------------------------------------------

    def _create(self, path: str, definition: EntityDefinition, now_ms: int, turn: Turn) -> Entity:
        entity = Entity(
            self._environment, self._environment.ids.take_entity(), path, definition, now_ms
        )
        self._entities[path.lower()] = entity
        turn.records.append(entity.record(self.name))
        return entity

    def _create_entity(self, command: ask.CreateEntity, now_ms: int, turn: Turn) -> None:
        if command.path.lower() in self._entities:
            error = EntityAlreadyExists(
                f"The specified name is not available: an entity '{command.path}' already exists."
            )
            turn.effects.append(Reply(command.peer, command.request, error=error))
            return
        entity = self._create(command.path, command.definition, now_ms, turn)
        turn.effects.append(Reply(command.peer, command.request, entity.view()))

    def _delete_entity(self, command: ask.DeleteEntity, now_ms: int, turn: Turn) -> None:
        found = self._find(command.path)
        if isinstance(found, EntityNotFound):
            turn.effects.append(Reply(command.peer, command.request, error=found))
            return
        entity = found[0]
        del self._entities[entity.path.lower()]
        error = EntityNotFound(entity.path)
        for receiver in list(entity.receivers):
            self._release_receiver(receiver)
            turn.effects.append(Detached(receiver.peer, error))
        turn.effects.extend(Detached(peer, error) for peer in entity.senders)
        turn.records.append(EntityDeleted(entity.id))
        turn.effects.append(Reply(command.peer, command.request))

    def _get_entity(self, command: ask.GetEntity, now_ms: int, turn: Turn) -> None:
        found = self._find(command.path)
        if isinstance(found, EntityNotFound):
            turn.effects.append(Reply(command.peer, command.request, error=found))
            return
        turn.effects.append(Reply(command.peer, command.request, found[0].view()))

    def _list_entities(self, command: ask.ListEntities, now_ms: int, turn: Turn) -> None:
        prefix = "" if command.topic is None else f"{command.topic.lower()}/subscriptions/"
        views = [
            entity.view()
            for key, entity in sorted(self._entities.items())
            if entity.kind == command.kind and key.startswith(prefix)
        ]
        chosen = views[command.skip : command.skip + command.top]
        turn.effects.append(Reply(command.peer, command.request, chosen))


def _age(message: Message) -> int:
    return message.id


def _by_queue(messages: Iterable[Message]) -> dict[Queue, list[Message]]:
    """Oldest first: what comes out of the calendar has no order of its own."""
    queues: dict[Queue, list[Message]] = {}
    for message in sorted(messages, key=_age):
        if message.queue is not None:
            queues.setdefault(message.queue, []).append(message)
    return queues


_ = MessageState
