"""Auto-forwarding: messages, or dead letters, that go on to another entity by themselves.

Owns the move and what happens when it cannot be made; how a message is taken in over there is the
destination's. Every move counts as a hop, so that a circle ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.errors import ArgumentError, BrokerError, UndecodableMessage
from broker.core.outlet import BURST_MAX_BYTES, BURST_MAX_MESSAGES
from broker.core.overlay import EMPTY
from broker.core.queue import MAIN
from broker.core.topic import NO_SESSION_DESCRIPTION, NO_SESSION_REASON, Topic
from config.entities import SubscriptionDefinition, TopicDefinition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.arrivals import Arrivals
    from broker.core.directory import Directory
    from broker.core.entities import Entity
    from broker.core.message import Message
    from broker.core.overlay import Overlay
    from broker.core.queue import Queue
    from broker.core.ready import ReadyMessages
    from broker.core.turn import Turn
    from config.entities import EntityDefinition


class Forwarder:
    """Takes whatever becomes ready in one queue, and sends it on."""

    __slots__ = ("_arrivals", "_destination", "_directory", "_queue")

    def __init__(
        self, queue: Queue, destination: str, directory: Directory, arrivals: Arrivals
    ) -> None:
        self._queue = queue
        self._destination = destination
        self._directory = directory
        self._arrivals = arrivals

    def forward(self, ready: ReadyMessages, now_ms: int, turn: Turn) -> None:
        """Send on all that waits."""
        while messages := ready.take(BURST_MAX_MESSAGES, BURST_MAX_BYTES):
            try:
                destination = self._directory.entity(self._destination)
                destination.check_sending()
            except BrokerError as error:
                kept = self._keep(messages, type(error).__name__, str(error), ready, turn)
            else:
                kept = self._move(messages, destination, ready, now_ms, turn)
            if kept:
                return  # they would only be taken and given back again

    def _move(
        self,
        messages: Sequence[Message],
        destination: Entity,
        ready: ReadyMessages,
        now_ms: int,
        turn: Turn,
    ) -> bool:
        if isinstance(destination, Topic):
            destination.begin_screening()
        moving: list[Message] = []
        stuck: dict[tuple[str, str], list[Message]] = {}
        size = 0
        for message in messages:
            reason = self._obstacle(message, destination, size)
            if reason is None:
                moving.append(message)
                size += message.size
            else:
                stuck.setdefault(reason, []).append(message)
        if moving:
            self._queue.withdraw(moving)
            self._arrivals.take_over(destination, self._moved(moving), now_ms, turn)
        kept = False
        for (name, description), group in stuck.items():
            kept |= self._keep(group, name, description, ready, turn)
        return kept

    def _obstacle(
        self, message: Message, destination: Entity, before_bytes: int
    ) -> tuple[str, str] | None:
        """Why a message cannot go on: reason and description, as a dead letter shows them."""
        hops_max = self._queue.environment.limits.forward_hops_max
        if message.overlay is not None and message.overlay.hops >= hops_max:
            description = (
                "The maximum number of allowed hops when forwarding between queues has been "
                f"exceeded. This value is set to {hops_max}."
            )
            return "MaxTransferHopCountExceeded", description
        error = destination.refuses_size(message.size, before_bytes)
        if error is not None:
            return type(error).__name__, str(error)
        try:
            if message.session_id is None:
                message.session_id = self._queue.environment.reader.session_id(message.body or b"")
            if isinstance(destination, Topic):
                destination.screen(message)
        except UndecodableMessage as undecodable:
            return type(undecodable).__name__, str(undecodable)
        if destination.main.sessions is not None and message.session_id is None:
            return NO_SESSION_REASON, NO_SESSION_DESCRIPTION
        return None

    def _moved(self, messages: Sequence[Message]) -> list[Message]:
        twins = []
        before, after = EMPTY, self._one_hop_on(EMPTY)
        for message in messages:
            overlay = message.overlay or EMPTY
            if overlay is not before:
                before, after = overlay, self._one_hop_on(overlay)
            twin = message.copy()
            twin.overlay = after
            twin.delivery_count = 0
            twin.expires_at_ms = 0
            twins.append(twin)
        return twins

    def _one_hop_on(self, overlay: Overlay) -> Overlay:
        if self._queue.sub_queue != MAIN and overlay.dead_letter_source is None:
            overlay = replace(overlay, dead_letter_source=self._queue.entity.path)
        return replace(overlay, hops=overlay.hops + 1)

    def _keep(
        self,
        messages: Sequence[Message],
        reason: str,
        description: str,
        ready: ReadyMessages,
        turn: Turn,
    ) -> bool:
        """Messages that cannot go on die here; dead letters stay, and True says so."""
        if self._queue.sub_queue == MAIN:
            self._queue.dead_letter(messages, reason, description, turn)
            return False
        ready.give_back(messages)
        return True


def check_forwarding(
    path: str, definition: EntityDefinition, before: EntityDefinition | None, directory: Directory
) -> None:
    """Raises if an entity cannot forward as a definition, in place of an earlier one, says."""
    if isinstance(definition, TopicDefinition):
        return
    if definition.forward_to is not None and definition.requires_session:
        raise ArgumentError(
            f"The entity '{path}' requires sessions, and so cannot forward its messages."
        )
    start = path
    if isinstance(definition, SubscriptionDefinition):
        start = directory.topic_of(path)[0].path
    known = () if before is None else _destinations(before)
    for destination in _destinations(definition):
        if destination in known:
            continue
        if destination == path.lower():
            raise ArgumentError(f"The entity '{path}' cannot forward to itself.")
        target = directory.get(destination)
        if target is None or isinstance(target.definition, SubscriptionDefinition):
            raise ArgumentError(
                f"The entity '{path}' cannot forward to '{destination}': "
                "there is no queue or topic of this name."
            )
        if _leads_to(start.lower(), destination, directory):
            raise ArgumentError(
                f"The entity '{path}' cannot forward to '{destination}': "
                "its messages would go in a circle."
            )


def _leads_to(path: str, destination: str, directory: Directory) -> bool:
    """Whether what is sent to a destination can come to this entity, alive or dead."""
    onward, seen = [destination], set[str]()
    while onward:
        step = onward.pop()
        if step == path:
            return True
        entity = directory.get(step)
        if entity is None or step in seen:
            continue
        seen.add(step)
        sources = entity.subscriptions.values() if isinstance(entity, Topic) else (entity,)
        for source in sources:
            onward += _destinations(source.definition)
    return False


def _destinations(definition: EntityDefinition) -> list[str]:
    """Where messages and dead letters of an entity go."""
    if isinstance(definition, TopicDefinition):
        return []
    both = (definition.forward_to, definition.forward_dead_letters_to)
    return [destination.lower() for destination in both if destination is not None]
