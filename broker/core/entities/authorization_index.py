"""An index of the authorization rules in the definitions of entities, by rule name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from config.model.definitions import AuthorizationRule, EntityDefinition


class AuthorizationIndex:
    """Rules by name, compared without case, and by the path of their entity."""

    __slots__ = ("_by_name", "revision")

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, AuthorizationRule]] = {}
        self.revision = 0
        """Increases with every change of a rule."""

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def named(self, name: str) -> Iterator[tuple[str, AuthorizationRule]]:
        """Returns every rule of this name with the path of its entity."""
        return iter(tuple(self._by_name.get(name.lower(), {}).items()))

    def replace(
        self, path: str, before: EntityDefinition | None, after: EntityDefinition | None
    ) -> None:
        """The definition of an entity has changed. None before: it was created. None after: it was
        deleted."""
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
    """Returns the rules of a definition. Subscriptions have none: the rules of their topic apply."""
    return getattr(definition, "authorization_rules", ())
