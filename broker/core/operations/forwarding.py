"""Auto-forwarding: moves messages or dead letters of a queue to another entity.

Every move counts as a hop, so that a cycle of forwarding ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract.counting import DeadLetterCause, Outcome
from broker.core.contract.errors import (
    ArgumentError,
    BrokerError,
    QuotaExceeded,
    UndecodableMessage,
)
from broker.core.contract.message_changes import EMPTY
from broker.core.contract.transitions import TransitionKind
from broker.core.entities.subscription_copies import NO_SESSION_DESCRIPTION, NO_SESSION_REASON
from broker.core.queues.dead_lettering import dead_letter
from broker.core.queues.queue import MAIN
from broker.core.queues.receiver import BURST_MAX_BYTES, BURST_MAX_MESSAGES
from config.model.definitions import QueueDefinition, SubscriptionDefinition, TopicDefinition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.message_changes import MessageChanges
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.operations.admission import Admission
    from broker.core.queues.backlog import Backlog
    from broker.core.queues.dispatcher import Dispatcher
    from broker.core.queues.queue import Queue
    from broker.core.queues.ready_messages import ReadyMessages
    from config.model.definitions import EntityDefinition


TOO_MANY_HOPS_REASON = "MaxTransferHopCountExceeded"
_CAUSES = {
    TOO_MANY_HOPS_REASON: DeadLetterCause.FORWARD_HOPS,
    NO_SESSION_REASON: DeadLetterCause.NO_SESSION_ID,
}

KEPT_MAX_MESSAGES = 10_000
"""How many dead letters that cannot be forwarded are skipped in one dispatch to reach others."""


class RemainingForwarding:
    """Queues with more messages than one turn may forward. They continue in the next tick."""

    ends_with_namespace = True

    __slots__ = ("_backlog", "_dispatchers")

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._dispatchers: dict[Dispatcher, None] = {}

    def add(self, dispatcher: Dispatcher) -> None:
        """Dispatch this one again in the next tick."""
        if not self._dispatchers:
            self._backlog.add(self)
        self._dispatchers[dispatcher] = None

    def do_part(self, count: int, turn: Turn) -> bool:
        """See `Work`. The dispatch of this turn forwards, and calls `add` if more is left."""
        del count, turn
        dispatchers, self._dispatchers = self._dispatchers, {}
        for dispatcher in dispatchers:
            dispatcher.touch()
        return False


class Forwarder:
    """Forwards the ready messages of one queue."""

    __slots__ = (
        "_admission",
        "_destination",
        "_directory",
        "_is_held_up",
        "_later",
        "_path",
        "_queue",
    )

    def __init__(
        self,
        path: str,
        queue: Queue,
        destination: str,
        directory: Directory,
        admission: Admission,
        later: RemainingForwarding,
    ) -> None:
        self._path = path
        """The path of the entity that the queue belongs to."""
        self._queue = queue
        self._destination = destination
        self._directory = directory
        self._admission = admission
        self._later = later
        self._is_held_up = False
        """Whether the first dead letter had no room in the destination."""

    def forward(self, ready: ReadyMessages, now_ms: int, turn: Turn) -> bool:
        """Forward ready messages, as many as this turn may. Returns whether that was all. Dead
        letters that cannot be forwarded keep their places. All wait behind one that the destination
        has no room for. Everything waits while nothing can be stored: see `Forwarding.retry`."""
        if self._queue.context.room.is_full:
            return True
        backlog = self._queue.context.backlog
        target = self._directory.get(self._destination)
        copies = 1 if target is None else target.copies_per_message
        kept: list[Message] = []
        is_done = True
        while len(kept) < KEPT_MAX_MESSAGES:
            count = min(backlog.may_forward(copies), BURST_MAX_MESSAGES)
            if count <= 0:
                is_done = not len(ready)
                break
            if self._is_held_up:
                count = 1  # if there is still no room, the others need not be taken
            messages = ready.take(count, BURST_MAX_BYTES)
            if not messages:
                break
            staying: Sequence[Message]
            try:
                destination = self._directory.entity(self._destination)
                destination.check_sending()
            except BrokerError as error:
                staying = self._refuse(messages, type(error).__name__, str(error), turn)
                if staying:
                    kept += staying
                    break  # the others would be refused, too
            else:
                staying = self._move(messages, destination, now_ms, turn)
                kept += staying
            backlog.forwarded((len(messages) - len(staying)) * copies)
            if self._is_held_up:
                break
        ready.put_back(kept)
        if not is_done:
            self._later.add(self._queue.dispatcher)
        return is_done

    def _move(
        self,
        messages: Sequence[Message],
        destination: Entity,
        now_ms: int,
        turn: Turn,
    ) -> list[Message]:
        """Move messages to the destination. Returns the dead letters that have to stay."""
        destination.begin_screening()
        moving: list[Message] = []
        stuck: dict[tuple[str, str], list[Message]] = {}
        size = 0
        self._is_held_up = False
        for position, message in enumerate(messages):
            reason = self._obstacle(message, destination, size)
            if reason is None:
                moving.append(message)
                size += message.size
                continue
            stuck.setdefault(reason, []).append(message)
            if reason[0] == QuotaExceeded.__name__ and self._queue.sub_queue != MAIN:
                self._is_held_up = True
                destination.usage.dispatch_when_smaller(self._queue.dispatcher)
                stuck[reason] += messages[position + 1 :]
                break
        if moving:
            turn.count(self._queue.counts, Outcome.FORWARDED, len(moving))
            self._queue.remove(moving)
            recorded = len(turn.transitions)
            copies = self._moved(moving)
            self._admission.accept_forwarded(destination, copies, now_ms, turn)
            if self._queue.context.history is not None:
                self._queue.context.history.moved(
                    TransitionKind.FORWARDED,
                    self._queue,
                    [message.sequence_number for message in moving],
                    destination.main,
                    copies,
                    turn,
                    at=recorded,
                    to_topic=isinstance(destination.definition, TopicDefinition),
                    delivery_counts=[message.delivery_count for message in moving],
                )
        kept: list[Message] = []
        for (name, description), group in stuck.items():
            kept += self._refuse(group, name, description, turn)
        return kept

    def _obstacle(
        self, message: Message, destination: Entity, before_bytes: int
    ) -> tuple[str, str] | None:
        """Returns why a message cannot be forwarded: the reason and description of its dead letter.
        Returns None if it can."""
        hops_max = self._queue.context.limits.forward_hops_max
        if message.changes is not None and message.changes.hops >= hops_max:
            description = (
                "The maximum number of allowed hops when forwarding between queues has been "
                f"exceeded. This value is set to {hops_max}."
            )
            return TOO_MANY_HOPS_REASON, description
        if destination.usage is self._queue.usage:
            before_bytes = -message.size  # it leaves the entity whose quota it goes to
        error = destination.size_error(message.size, before_bytes)
        if error is not None:
            return type(error).__name__, str(error)
        try:
            if message.session_id is None:
                message.session_id = self._queue.context.reader.session_id(message.body or b"")
            if destination.duplicates is not None:
                self._admission.duplicate_key(destination, message)
            destination.screen(message)
        except UndecodableMessage as undecodable:
            return type(undecodable).__name__, str(undecodable)
        if destination.main.delivery.requires_sessions and message.session_id is None:
            return NO_SESSION_REASON, NO_SESSION_DESCRIPTION
        return None

    def _moved(self, messages: Sequence[Message]) -> list[Message]:
        copies = []
        before, after = EMPTY, self._with_next_hop(EMPTY)
        for message in messages:
            changes = message.changes or EMPTY
            if changes is not before:
                before, after = changes, self._with_next_hop(changes)
            copy = message.copy()
            copy.changes = after
            copy.delivery_count = 0
            copy.expires_at_ms = 0
            copies.append(copy)
        return copies

    def _with_next_hop(self, changes: MessageChanges) -> MessageChanges:
        if self._queue.sub_queue != MAIN and changes.dead_letter_source is None:
            changes = replace(changes, dead_letter_source=self._path)
        return replace(changes, hops=changes.hops + 1)

    def _refuse(
        self, messages: Sequence[Message], reason: str, description: str, turn: Turn
    ) -> Sequence[Message]:
        """Dead-letter messages that cannot be forwarded, in their own entity. Returns those that
        are dead letters already. The service does the same: they do not go to the transfer
        dead-letter queue (github.com/Azure/azure-service-bus/issues/33)."""
        if self._queue.sub_queue == MAIN:
            cause = _CAUSES.get(reason, DeadLetterCause.FORWARDING)
            dead_letter(self._queue, messages, reason, description, turn, cause)
            return ()
        return messages


class Forwarding:
    """Sets up and retries forwarding of queues."""

    __slots__ = ("_admission", "_directory", "_dispatchers", "_later")

    def __init__(self, directory: Directory, admission: Admission, backlog: Backlog) -> None:
        self._directory = directory
        self._admission = admission
        self._later = RemainingForwarding(backlog)
        self._dispatchers: dict[Dispatcher, None] = {}
        """Dispatchers of queues that forward. They are retried when an entity is created or
        changed."""

    def check(
        self, path: str, definition: EntityDefinition, before: EntityDefinition | None
    ) -> None:
        """Raises `ArgumentError` if an entity would forward to something that is not a queue or
        topic.

        The service accepts everything else: an entity that forwards to itself, a subscription that
        forwards to its own topic, longer cycles, and entities with sessions (recorded answers to
        `update_queue` and `create_queue` in the Python SDK's tests). The hop limit ends each cycle.
        """
        known = () if before is None else _destinations(before)
        for destination in _destinations(definition):
            if destination in known:
                continue
            if destination == path.lower() and isinstance(definition, QueueDefinition):
                continue
            target = self._directory.get(destination)
            if target is None or isinstance(target.definition, SubscriptionDefinition):
                raise ArgumentError(
                    f"The entity '{path}' cannot forward to '{destination}': "
                    "there is no queue or topic of this name."
                )

    def set_up(self, entity: Entity) -> None:
        """Begin or end forwarding as the definition says."""
        definition = entity.definition
        if isinstance(definition, TopicDefinition):
            return
        for queue, destination in (
            (entity.main, definition.forward_to),
            (entity.dead_letters, definition.forward_dead_letters_to),
        ):
            if destination is None:
                queue.delivery.set_forwarder(None)
                self._dispatchers.pop(queue.dispatcher, None)
            else:
                forwarder = Forwarder(
                    entity.path, queue, destination, self._directory, self._admission, self._later
                )
                queue.delivery.set_forwarder(forwarder)
                self._dispatchers[queue.dispatcher] = None

    def end(self, queue: Queue) -> None:
        """End forwarding: the queue is being deleted."""
        self._dispatchers.pop(queue.dispatcher, None)
        queue.dispatcher.forwarder = None

    def retry(self) -> None:
        """Retry forwarding, because an entity was created or changed, or there is room again."""
        for dispatcher in self._dispatchers:
            if len(dispatcher.ready):
                dispatcher.touch()


def _destinations(definition: EntityDefinition) -> list[str]:
    """Returns the destinations of the messages and dead letters of an entity."""
    if isinstance(definition, TopicDefinition):
        return []
    both = (definition.forward_to, definition.forward_dead_letters_to)
    return [destination.lower() for destination in both if destination is not None]
