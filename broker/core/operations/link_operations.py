"""Attaches and detaches senders and receivers, and grants credit.

Locks belong to the queue. They stay after a detach and after a normal close of the connection. They
end with a lost connection, unless a setting keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from broker.core.contract.counting import Outcome
from broker.core.contract.effects import AttachRefused, SenderAttached
from broker.core.contract.errors import BrokerError, EntityNotFound, NotAllowed, QuotaExceeded
from broker.core.contract.settlement_values import ReceiveMode
from broker.core.entities.entity import cannot_send_to
from broker.core.queues.queue import DEAD_LETTERS, MAIN, Queue
from broker.core.queues.receiver import Receiver
from broker.core.queues.settlement import release_locks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.commands import AttachReceiver, AttachSender, Credit, SessionRequest
    from broker.core.contract.counting import Counts
    from broker.core.contract.effects import Peer
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.queues.namespace_context import NamespaceContext


class Sender(NamedTuple):
    """An attached sender."""

    entity: Entity
    destination: str | None
    """The transfer destination of its messages, if they are sent via the entity."""
    connection: object = None


class LinkOperations:
    """All attached links of a namespace."""

    __slots__ = (
        "_context",
        "_detached",
        "_directory",
        "_holds_locks",
        "_receivers",
        "_senders",
    )

    def __init__(
        self, context: NamespaceContext, directory: Directory, *, hold_locks: bool
    ) -> None:
        self._context = context
        self._directory = directory
        self._holds_locks = hold_locks
        self._senders: dict[Peer, Sender] = {}
        self._receivers: dict[Peer, Receiver] = {}
        self._detached: WeakValueDictionary[Peer, Receiver] = WeakValueDictionary()
        """Receivers that are detached, or never were attached, and have locks. The locks keep them
        alive."""

    def sender(self, peer: Peer) -> Sender:
        """Returns the attached sender of a peer. Raises `NotAllowed` if there is none."""
        sender = self._senders.get(peer)
        if sender is None:
            raise NotAllowed("The link is not attached.")
        return sender

    def receiver(self, peer: Peer) -> Receiver | None:
        """Returns the receiver of a peer, attached or detached with locks, or None."""
        return self._receivers.get(peer) or self._detached.get(peer)

    def counts(self, peer: Peer) -> Counts:
        """Returns the counts of the entity of a link."""
        if (sender := self._senders.get(peer)) is not None:
            return sender.entity.main.counts
        receiver = self.receiver(peer)
        return self._context.counts if receiver is None else receiver.queue.counts

    def copies_per_message(self, peer: Peer) -> int:
        """Returns how many copies a message of this peer may become."""
        sender = self._senders.get(peer)
        return 1 if sender is None else self.copies_per_message_of(sender)

    def copies_per_message_of(self, sender: Sender) -> int:
        """Returns how many copies a message of this sender may become."""
        if sender.destination is None:
            return sender.entity.copies_per_message
        destination = self._directory.get(sender.destination)
        return 1 if destination is None else destination.copies_per_message

    def connection(self, peer: Peer) -> object:
        """Returns the connection of a link, or None."""
        link = self._senders.get(peer) or self.receiver(peer)
        return None if link is None else link.connection

    def deferred_receiver(self, peer: Peer, queue: Queue) -> Receiver:
        """Returns the receiver that holds the deferred messages a peer receives by number. Its
        locks end, too, if the connection is lost."""
        receiver = self._detached.get(peer)
        if receiver is None or receiver.queue is not queue:
            receiver = self._detached[peer] = Receiver(peer, queue, ReceiveMode.PEEK_LOCK)
        return receiver

    # --- attaching --------------------------------------------------------------------------

    def attach_sender(self, command: AttachSender, now_ms: int, turn: Turn) -> None:
        """Attach a sender to a queue or topic."""
        try:
            entity, _ = sendable(self._directory, command.path)
            entity.check_sending()
            if command.via is not None:
                if not self._context.limits.offers_more_than_plain_queues:
                    raise NotAllowed("Sending via an entity is not offered in the 'Basic' tier.")
                sendable(self._directory, command.via)
        except BrokerError as error:
            self._refuse(command, error, turn)
            return
        self._senders[command.peer] = Sender(entity, command.via, command.connection)
        entity.attach_sender(command.peer)
        entity.record_access(now_ms)
        turn.effects.append(SenderAttached(command.peer, entity.max_message_bytes))

    def attach_receiver(self, command: AttachReceiver, now_ms: int, turn: Turn) -> None:
        """Attach a receiver to a queue, subscription or sub-queue."""
        try:
            entity, queue = receivable(self._directory, command.path)
            self._check_receivers(entity, queue, command.session)
            receiver = Receiver(
                command.peer, queue, command.mode, command.connection, command.link_name
            )
            queue.attach(receiver, command.session, now_ms, turn)
        except BrokerError as error:
            self._refuse(command, error, turn)
            return
        self._receivers[command.peer] = receiver
        entity.record_access(now_ms)

    def _refuse(
        self, command: AttachSender | AttachReceiver, error: BrokerError, turn: Turn
    ) -> None:
        try:
            counts = self._directory.queue(command.path).counts
        except EntityNotFound:
            counts = self._context.counts  # a missing entity has no counts
        turn.count(counts, Outcome.ATTACH_REFUSED, 1)
        turn.effects.append(AttachRefused(command.peer, error.as_value()))

    def _check_receivers(
        self, entity: Entity, queue: Queue, session: SessionRequest | None
    ) -> None:
        entity.check_receiving()
        queue.delivery.check_attach(session)
        if queue.is_forwarding and queue.sub_queue != DEAD_LETTERS:
            raise NotAllowed(
                "Cannot create a message receiver on an entity with auto-forwarding enabled."
            )
        limit = self._context.limits.receivers_per_entity_max
        if entity.receiver_count >= limit:
            raise QuotaExceeded(
                f"The entity '{entity.path}' has {limit} receivers, which is the maximum."
            )
        observations = self._context.observations
        if entity.receiver_count >= observations.azure.receivers_per_entity_max:
            observations.note_over_quota(
                "receivers_per_entity_max", entity.path, entity.receiver_count + 1
            )

    # --- credit -----------------------------------------------------------------------------

    def grant(self, command: Credit) -> None:
        """Set the credit of a receiver."""
        receiver = self._receivers.get(command.peer)
        if receiver is not None:
            receiver.grant(command.limit, drain=command.drain)
            if receiver.source is not None:
                receiver.source.grant(receiver)

    # --- detaching --------------------------------------------------------------------------

    def detach(
        self, peers: Iterable[Peer], now_ms: int, turn: Turn, *, connection_lost: bool
    ) -> None:
        """Remove links that have ended."""
        for peer in peers:
            sender = self._senders.pop(peer, None)
            if sender is not None:
                sender.entity.detach_sender(peer)
                sender.entity.record_access(now_ms)
            receiver = self.receiver(peer)
            if receiver is None:
                continue
            self._receivers.pop(peer, None)
            self.detach_receiver(receiver, now_ms, turn)
            if connection_lost and receiver.lock_groups and not self._holds_locks:
                release_locks(receiver, now_ms, turn, failed=True, connection_lost=True)
            elif receiver.lock_groups:
                self._detached[peer] = receiver

    def forget(self, receiver: Receiver) -> None:
        """Remove a receiver whose wait for a session timed out."""
        self._receivers.pop(receiver.peer, None)
        receiver.queue.forget_receiver(receiver)

    def detach_receiver(self, receiver: Receiver, now_ms: int, turn: Turn) -> None:
        """Detach a receiver and close its session."""
        if receiver.queue.detach(receiver, now_ms, turn):
            self._directory.entity_of(receiver.queue).record_access(now_ms)


def sendable(directory: Directory, path: str) -> tuple[Entity, Queue]:
    """Returns the entity and queue of a path to which clients may send. Raises otherwise."""
    queue = directory.queue(path)
    entity = directory.entity_of(queue)
    if queue.sub_queue != MAIN:
        raise cannot_send_to(queue.path)
    entity.check_is_sendable()
    return entity, queue


def receivable(directory: Directory, path: str) -> tuple[Entity, Queue]:
    """Returns the entity and queue of a path from which clients may receive. Raises otherwise."""
    queue = directory.queue(path)
    entity = directory.entity_of(queue)
    if queue.sub_queue == MAIN:
        entity.check_is_receivable()
    return entity, queue
