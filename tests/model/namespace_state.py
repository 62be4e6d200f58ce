"""The state of a namespace that must survive a restart, in a form that can be compared.

Locks, links, credit and transactions are left out, because they end with the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.core.entities.subscription import Subscription
from broker.core.messages.message_rows import rows_of

if TYPE_CHECKING:
    from broker.core.contract.records import EntityStored, MessageRow
    from broker.core.entities.entity import Entity
    from broker.core.namespace import Namespace
    from broker.core.queues.queue import Queue
    from config.model.definitions import RuleDefinition


class QueueState(NamedTuple):
    """One queue or sub-queue."""

    messages: list[MessageRow]
    last_sequence_number: int
    message_count: int
    deferred_count: int
    scheduled_count: int
    size_bytes: int


class EntityState(NamedTuple):
    """One entity."""

    definition: EntityStored
    rules: tuple[RuleDefinition, ...]
    queues: list[QueueState]
    session_states: dict[str, tuple[bytes | None, int]]
    seen_message_ids: dict[str, int]
    size_bytes: int


class NamespaceState(NamedTuple):
    """A namespace."""

    entities: dict[str, EntityState]
    payload_references: dict[int, int]
    """How many messages refer to each body."""


def namespace_state(namespace: Namespace, now_ms: int) -> NamespaceState:
    """As it is now."""
    references: dict[int, int] = {}
    for entity in namespace._directory:
        for queue in entity.queues:
            for message in queue.index.walk():
                references[message.payload_id] = references.get(message.payload_id, 0) + 1
    shared = namespace._context.payloads.references
    for payload_id, count in references.items():
        assert shared.get(payload_id, 1) == count, f"payload {payload_id} has {count} references"
    return NamespaceState(
        {entity.path: _entity(namespace, entity, now_ms) for entity in namespace._directory},
        references,
    )


def _entity(namespace: Namespace, entity: Entity, now_ms: int) -> EntityState:
    sessions = entity.main.sessions
    duplicates = entity.duplicates
    return EntityState(
        entity.record(namespace.name),
        entity.full_definition.rules if isinstance(entity, Subscription) else (),
        [_queue(queue) for queue in entity.queues],
        {}
        if sessions is None
        else {
            session.id: (session.state, session.state_updated_ms)
            for session in sessions._by_id.values()
            if session.state is not None
        },
        {}
        if duplicates is None
        else {one: until_ms for one, until_ms in duplicates._seen.items() if until_ms > now_ms},
        entity.usage.size_bytes,
    )


def _queue(queue: Queue) -> QueueState:
    return QueueState(
        rows_of(queue.index.walk()),
        queue.last_sequence_number,
        queue.count,
        queue.deferred_count,
        queue.scheduled_count,
        queue.size_bytes,
    )
