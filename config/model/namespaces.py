"""Namespaces that are created while the broker runs, and snapshots of namespaces.

Namespaces of the config file have no such definition: `config/files/topology.py` has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.model.definitions import AuthorizationRule, EntityDefinition

SNAPSHOT_MARK = "@"
"""Between the names of a namespace and a snapshot. No name of a namespace contains it."""


@dataclass(frozen=True, slots=True)
class NamespaceDefinition:
    """A namespace that was created while the broker ran."""

    authorization_rules: tuple[AuthorizationRule, ...] = ()
    """The first is the one with which it was created: its name is that of the namespace, so that it is unique, and
    clients that use the same host name are told apart by it."""
    created_time_ms: int = 0
    entities: Mapping[str, EntityDefinition] = field(default_factory=dict)
    """The entities with which it was created, by path."""
    is_ephemeral: bool = False
    """Whether the next start of the broker deletes it."""


@dataclass(frozen=True, slots=True)
class SnapshotDefinition:
    """A named state of a namespace."""

    namespace: str
    name: str
    taken_time_ms: int = 0
    """By the clock of the namespace."""
    clock_ahead_ms: int = 0
    """By how much the clock of the namespace was ahead of the system clock."""
    is_ephemeral: bool = False
    """Whether it is in memory only."""

    @property
    def stored_name(self) -> str:
        """The name of the namespace that holds its content, which no client can use."""
        return f"{self.namespace}{SNAPSHOT_MARK}{self.name}"
