"""Parts a snapshot of the store by namespace.

The store knows one broker; each namespace restores only what is its own. The rows are read once,
and where there is one namespace, as nearly always, never copied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.core.records import MessageRow
    from storage.contract import Snapshot


def by_namespace(snapshot: Snapshot) -> dict[str, Snapshot]:
    """What each namespace in the store begins with."""
    owners = {entity.entity_id: entity.namespace for entity in snapshot.entities}
    names = set(owners.values())
    if len(names) <= 1:
        return dict.fromkeys(names, snapshot)
    messages: dict[str, list[MessageRow]] = {name: [] for name in names}
    for row in snapshot.messages:
        messages[owners[row.entity_id]].append(row)
    message_ids: dict[str, list[tuple[int, str, int]]] = {name: [] for name in names}
    for entry in snapshot.message_ids:
        message_ids[owners[entry[0]]].append(entry)
    return {
        name: replace(
            snapshot,
            entities=[entity for entity in snapshot.entities if entity.namespace == name],
            messages=messages[name],
            message_ids=message_ids[name],
            session_states=[
                state for state in snapshot.session_states if owners[state.entity_id] == name
            ],
        )
        for name in names
    }
