"""The authorization rules of entities, found by their name.

Owns the index; the rules belong to the definitions of entities. It holds what those say at present:
a rule that was taken away is not found any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from config.model.definitions import AuthorizationRule, EntityDefinition


class AuthorizationIndex:
    """Rules by name, whatever its case, and by the path of their entity."""

    __slots__ = ("_by_name", "revision")

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, AuthorizationRule]] = {}
        self.revision = 0
        """Rises whenever a rule comes, changes or goes."""

    def named(self, name: str) -> Iterator[tuple[str, AuthorizationRule]]:
        """Every rule of this name with the path of its entity."""
        return iter(tuple(self._by_name.get(name.lower(), {}).items()))

    def replace(
        self, path: str, before: EntityDefinition | None, after: EntityDefinition | None
    ) -> None:
        """The entity of this path came (there was none before), changed or went."""
        old, new = _rules(before), _rules(after)
        if old == new:
            return
        self.revision += 1
        for name in {rule.name.lower() for rule in old}:
            by_path = self._by_name[name]
            del by_path[path]
            if not by_path:
                del self._by_name[name]
        for rule in new:
            self._by_name.setdefault(rule.name.lower(), {})[path] = rule


def _rules(definition: EntityDefinition | None) -> tuple[AuthorizationRule, ...]:
    """Subscriptions have none: theirs are their topic's."""
    return getattr(definition, "authorization_rules", ())
