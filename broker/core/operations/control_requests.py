"""Carries out what the control API asks of a namespace.

Created with the first such request. Reading changes nothing and locks nothing. Each operation returns the
value of its reply, or raises the refusal before anything has changed.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

from broker.core.contract import control_operations as control
from broker.core.operations.control_activity import ControlActivity
from broker.core.operations.control_changes import ControlChanges
from broker.core.operations.control_counts import queue_counts
from broker.core.operations.control_reading import ControlReading
from broker.core.operations.control_reset import ControlReset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.operations.admission import Admission
    from broker.core.operations.entity_administration import EntityAdministration
    from broker.core.queues.namespace_context import NamespaceContext

    Carry = Callable[[Any, int, Turn], object]


class ControlRequests:
    """The operations of the control API in one namespace."""

    __slots__ = ("_directory", "_operations")

    def __init__(
        self,
        context: NamespaceContext,
        directory: Directory,
        admission: Admission,
        administration: EntityAdministration,
    ) -> None:
        self._directory = directory
        activity = ControlActivity(directory)
        reading = ControlReading(directory)
        changes = ControlChanges(context, directory, admission)
        resetting = ControlReset(directory, administration)
        self._operations: dict[type, Carry] = {
            control.ListEntityStates: self._list_entities,
            control.GetEntityState: self._get_entity,
            control.ReadTotals: self._read_totals,
            control.ListPaths: activity.list_paths,
            control.ReadActivity: activity.read,
            control.ReadMessages: reading.read_messages,
            control.FindMessages: reading.find_messages,
            control.ReadSessions: reading.read_sessions,
            control.SendMessages: changes.send,
            control.PurgePart: changes.purge_part,
            control.DeleteByNumber: changes.delete,
            control.DeadLetterByNumber: changes.dead_letter,
            control.ReleaseByNumber: changes.release,
            control.ExpireLocks: changes.expire_locks,
            control.Resubmit: changes.resubmit,
            control.ListQueuesWithMessages: resetting.queues_with_messages,
            control.ResetEntities: resetting.reset,
        }

    def carry_out(self, operation: object, now_ms: int, turn: Turn) -> object:
        """Carry out one operation. Returns the value of its reply."""
        return self._operations[type(operation)](operation, now_ms, turn)

    # --- entities ---------------------------------------------------------------------------

    def _list_entities(
        self, operation: control.ListEntityStates, now_ms: int, turn: Turn
    ) -> list[control.EntityState]:
        del now_ms, turn
        chosen = [
            (entity.path.lower(), entity)
            for entity in self._directory
            if operation.kind is None or entity.kind == operation.kind
        ]
        later = sorted((one for one in chosen if one[0] > operation.after), key=_path)
        return [entity_state(entity) for _, entity in later[: operation.limit]]

    def _get_entity(
        self, operation: control.GetEntityState, now_ms: int, turn: Turn
    ) -> control.EntityState:
        del now_ms, turn
        return entity_state(self._directory.entity(operation.path))

    def _read_totals(
        self, operation: control.ReadTotals, now_ms: int, turn: Turn
    ) -> control.TotalsRead:
        del now_ms, turn
        directory = self._directory
        queues = [queue_counts(directory.queue(path)) for path in operation.queues]
        entities = []
        for path in operation.entities:
            if path is None:
                entities.append(_totals(directory))
            else:
                entity = directory.entity(path)
                entities.append(_totals([entity, *entity.dependents]))
        return control.TotalsRead(queues, entities)


def _totals(entities: Iterable[Entity]) -> control.Totals:
    main = control.QueueCounts()
    locked = session_locks = 0
    for entity in entities:  # there may be thousands, and most have no messages
        if entity.main.count:
            main = control.QueueCounts(*map(add, main, queue_counts(entity.main)))
        for queue in entity.queues:
            if queue.locks:
                locked += queue.live_lock_count
        sessions = entity.main.sessions
        if sessions is not None:
            session_locks += sessions.held_count
    return control.Totals(main, locked, session_locks)


def _path(one: tuple[str, Entity]) -> str:
    return one[0]


def entity_state(entity: Entity) -> control.EntityState:
    """Returns an entity with the counts of its queues."""
    sessions = entity.main.sessions
    return control.EntityState(
        entity.view(),
        queue_counts(entity.main),
        queue_counts(entity.dead_letters),
        queue_counts(entity.transfer_dead_letters),
        receiver_count=entity.receiver_count,
        sender_count=len(entity.senders),
        session_lock_count=0 if sessions is None else sessions.held_count,
    )
