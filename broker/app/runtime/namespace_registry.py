"""All namespaces and snapshots of the broker at present.

`namespace_lifecycle.py` changes them while the broker runs; a start, also one after a failed commit, replaces them by
what the store holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.messages.identifiers import MessageIds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.app.runtime.restored_namespaces import RestoredNamespaces, TakenSnapshot
    from broker.core.namespace import Namespace
    from config.model.definitions import AuthorizationRule, EntityDefinition
    from config.model.namespaces import NamespaceDefinition


class NamespaceRegistry:
    """The namespaces by name. Other parts of the broker keep references to its dictionaries."""

    def __init__(self, declared_rules: Mapping[str, Sequence[AuthorizationRule]]) -> None:
        self._declared_rules = declared_rules
        self.live: dict[str, Namespace] = {}
        """The namespaces that clients use. The default namespace is the first."""
        self.definitions: dict[str, NamespaceDefinition] = {}
        """The definitions of those that no config file declares."""
        self.authorization_rules: dict[str, Sequence[AuthorizationRule]] = dict(declared_rules)
        """The rules of whole namespaces."""
        self.snapshots: dict[str, TakenSnapshot] = {}
        """By the names of their content."""
        self.ids = MessageIds()
        self.restorations = 0
        """How often the namespaces were replaced by what the store holds. Work that takes several turns ends if
        this has changed."""

    def replace(self, restored: RestoredNamespaces) -> None:
        """Replaces everything by what the store holds. Clocks and snapshots in memory stay."""
        for name, namespace in restored.namespaces.items():
            if name in self.live:
                namespace.clock = self.live[name].clock
        self.restorations += 1
        self.ids = restored.ids
        self.live.clear()
        self.live.update(restored.namespaces)
        self.definitions.clear()
        self.authorization_rules.clear()
        self.authorization_rules.update(self._declared_rules)
        for name, definition in restored.definitions.items():
            self.define(name, definition)
        in_memory = {
            name: one for name, one in self.snapshots.items() if one.definition.is_ephemeral
        }
        self.snapshots.clear()
        self.snapshots.update(in_memory | restored.snapshots)

    def define(self, name: str, definition: NamespaceDefinition) -> None:
        """Sets the definition of a namespace that no config file declares."""
        declared = self._declared_rules.get(name, ())
        self.definitions[name] = definition
        self.authorization_rules[name] = (*declared, *definition.authorization_rules)

    def declared(
        self, name: str, in_file: Mapping[str, Mapping[str, EntityDefinition]]
    ) -> Mapping[str, EntityDefinition]:
        """Returns the entities with which a namespace began: those of the config file, or those with which it was
        created."""
        definition = self.definitions.get(name)
        return in_file.get(name, {}) if definition is None else definition.entities

    def remove(self, name: str) -> None:
        """Removes a namespace that no config file declares."""
        del self.live[name]
        del self.definitions[name]
        del self.authorization_rules[name]
