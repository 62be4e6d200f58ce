"""Makes the entities of a namespace as they are declared, for the control API.

Links to declared entities stay attached, so that clients which outlive a test can go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.records import MessageIdsForgotten
from broker.core.operations.entity_administration import FIXED_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract import control_operations as control
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.entities.entity import Entity
    from broker.core.operations.entity_administration import EntityAdministration
    from broker.core.queues.sessions import Sessions
    from config.model.definitions import EntityDefinition


class ControlReset:
    """Resets the entities of a namespace."""

    __slots__ = ("_administration", "_directory")

    def __init__(self, directory: Directory, administration: EntityAdministration) -> None:
        self._directory = directory
        self._administration = administration

    def queues_with_messages(
        self, operation: control.ListQueuesWithMessages, now_ms: int, turn: Turn
    ) -> list[str]:
        """Returns the paths of queues that have messages."""
        del operation, now_ms, turn
        return [queue.path for entity in self._directory for queue in entity.queues if queue.count]

    def reset(self, operation: control.ResetEntities, now_ms: int, turn: Turn) -> list[str]:
        """Make the entities as declared. Returns the paths of queues that have messages."""
        declared = {path.lower(): one for path, one in operation.definitions.items()}
        for entity in list(self._directory):
            if not entity.is_deleted and not _can_stay(entity, declared):
                self._administration.delete(entity, now_ms, turn)
        for entity in self._directory:
            self._forget(entity, now_ms, turn)
        self._administration.declare(operation.definitions, now_ms, turn)
        return [queue.path for entity in self._directory for queue in entity.queues if queue.count]

    def _forget(self, entity: Entity, now_ms: int, turn: Turn) -> None:
        """End the session locks of an entity, and delete its session states and the ids that it has seen."""
        sessions = entity.main.sessions
        if sessions is not None:
            self._end_sessions(sessions, now_ms, turn)
        if entity.duplicates is not None:
            until_ms = entity.duplicates.forget_all()
            turn.records.append(MessageIdsForgotten(entity.id, until_ms))

    @staticmethod
    def _end_sessions(sessions: Sessions, now_ms: int, turn: Turn) -> None:
        for session in list(sessions):
            if session.holder is not None:
                session.expire(now_ms, turn)
            if session.state is not None:
                turn.records += sessions.set_state(session, None, now_ms)


def _can_stay(entity: Entity, declared: Mapping[str, EntityDefinition]) -> bool:
    """Whether an entity can be changed so that it is as declared."""
    wanted = declared.get(entity.path.lower())
    if wanted is None or type(wanted) is not type(entity.definition):
        return False
    return all(
        getattr(wanted, name, None) == getattr(entity.definition, name, None)
        for name in FIXED_PROPERTIES
    )
