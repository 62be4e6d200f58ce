"""The namespaces of a broker that starts, or that starts again from its store.

Tells apart the namespaces that clients use and the snapshots, which are stored as namespaces of their own. Ephemeral
namespaces are deleted at start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.records import EntityDeleted, NamespaceDeleted
from broker.core.entities.stored_definitions import namespace_from_json
from broker.core.messages.identifiers import MessageIds
from broker.core.namespace import Namespace
from config.model.namespaces import SNAPSHOT_MARK, NamespaceDefinition, SnapshotDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.core.contract.records import NamespaceStored, Record
    from storage.contract import StoreContent

    NewNamespace = Callable[[str, MessageIds], Namespace]


class TakenSnapshot(NamedTuple):
    """A snapshot and its content."""

    definition: SnapshotDefinition
    content: Namespace
    """Gets no commands, so nothing in it changes, whatever the clock shows."""

    @property
    def message_count(self) -> int:
        """Returns the number of messages in it."""
        return message_count(self.content)

    @property
    def size_bytes(self) -> int:
        """Returns its size as the limits count it."""
        return size_bytes(self.content)


MESSAGE_BYTES = 512
"""What each message counts besides its size: its row in the store, and what it takes in memory."""


def message_count(namespace: Namespace) -> int:
    """Returns the number of messages in a namespace."""
    return sum(queue.count for entity in namespace.entities() for queue in entity.queues)


def size_bytes(namespace: Namespace) -> int:
    """Returns the size of a namespace as the limits of snapshots count it."""
    return sum(
        queue.size_bytes + MESSAGE_BYTES * queue.count
        for entity in namespace.entities()
        for queue in entity.queues
    ) + sum(entity.main.delivery.state_bytes for entity in namespace.entities())


@dataclass(slots=True)
class RestoredNamespaces:
    """What a store holds."""

    ids: MessageIds
    namespaces: dict[str, Namespace]
    """Namespaces that clients use. The default namespace is the first."""
    definitions: dict[str, NamespaceDefinition] = field(default_factory=dict)
    """The definitions of those that no config file declares."""
    snapshots: dict[str, TakenSnapshot] = field(default_factory=dict)
    """By the names of their content."""
    deletions: list[Record] = field(default_factory=list)
    """The records that delete ephemeral namespaces."""


def restored_namespaces(
    stored: StoreContent,
    declared: Iterable[str],
    default: str,
    new_namespace: NewNamespace,
    now_ms: int,
    *,
    keeps_ephemeral: bool,
) -> RestoredNamespaces:
    """Returns the namespaces in a store, and those that the config file declares."""
    definitions, snapshots = _definitions(stored.namespaces)
    restored = RestoredNamespaces(MessageIds(), {})
    if not keeps_ephemeral:
        ephemeral = {name for name, one in definitions.items() if one.is_ephemeral}
        restored.deletions = _without(stored, ephemeral)
        definitions = {name: one for name, one in definitions.items() if name not in ephemeral}
        snapshots = {name: one for name, one in snapshots.items() if one.namespace not in ephemeral}
    names = {
        *declared,
        *definitions,
        *(one.namespace for one in snapshots.values()),
        *(entity.namespace for entity in stored.entities if SNAPSHOT_MARK not in entity.namespace),
    }
    for name in (default, *sorted(names - {default})):
        restored.namespaces[name] = new_namespace(name, restored.ids)
    contents = {name: new_namespace(name, restored.ids) for name in sorted(snapshots)}
    Namespace.restore_all({**restored.namespaces, **contents}, stored, now_ms)
    restored.definitions = definitions
    restored.snapshots = {name: TakenSnapshot(snapshots[name], contents[name]) for name in contents}
    return restored


def _definitions(
    rows: Iterable[NamespaceStored],
) -> tuple[dict[str, NamespaceDefinition], dict[str, SnapshotDefinition]]:
    definitions: dict[str, NamespaceDefinition] = {}
    snapshots: dict[str, SnapshotDefinition] = {}
    for row in rows:
        definition = namespace_from_json(row.definition)
        if isinstance(definition, SnapshotDefinition):
            snapshots[row.name] = definition
        else:
            definitions[row.name] = definition
    return definitions, snapshots


def _without(stored: StoreContent, names: set[str]) -> list[Record]:
    """Removes namespaces and their snapshots from the stored state. Returns the records that delete them. Their
    messages belong to no entity then, and are deleted in parts."""

    def is_gone(name: str) -> bool:
        return name.partition(SNAPSHOT_MARK)[0] in names

    gone = [entity for entity in stored.entities if is_gone(entity.namespace)]
    stored.entities = [entity for entity in stored.entities if not is_gone(entity.namespace)]
    return [
        *(EntityDeleted(entity.entity_id) for entity in gone),
        *(NamespaceDeleted(row.name) for row in stored.namespaces if is_gone(row.name)),
    ]
