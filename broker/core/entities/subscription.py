"""A subscription: an entity with rules.

It has the definitions of its rules. `rule_index.py` finds the rules that match a message. Each rule
has a row of its own in the store, so that adding or removing a rule writes one row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.records import RuleRow
from broker.core.entities.entity import Entity, cannot_send_to
from broker.core.entities.stored_definitions import rule_to_json
from config.model.definitions import SubscriptionDefinition

if TYPE_CHECKING:
    from broker.core.contract.effects import EntityView
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.quota_usage import QuotaUsage
    from config.model.definitions import EntityDefinition, RuleDefinition


class NumberedRule(NamedTuple):
    """A rule and its number in the store. Rules are ordered by number."""

    number: int
    definition: RuleDefinition


class Subscription(Entity):
    """Receives messages from its topic. `definition.rules` is always empty: see `full_definition`."""

    __slots__ = ("_full_definition", "_last_rule_number", "_rule_names", "_rules")

    def __init__(
        self,
        context: NamespaceContext,
        entity_id: int,
        path: str,
        definition: EntityDefinition,
        now_ms: int,
        usage: QuotaUsage,
    ) -> None:
        self._rules: dict[str, NumberedRule] = {}
        """By name in lower case, in the order of their numbers."""
        self._rule_names: list[str] = []
        """The same names, sorted, for listing rules in pages."""
        self._last_rule_number = 0
        self._full_definition: SubscriptionDefinition | None = None
        super().__init__(context, entity_id, path, definition, now_ms, usage)

    def redefine(self, definition: EntityDefinition, now_ms: int) -> None:
        """See `Entity.redefine`. Does not change rules."""
        assert isinstance(definition, SubscriptionDefinition)
        self._full_definition = None
        super().redefine(replace(definition, rules=()), now_ms)

    @property
    def full_definition(self) -> SubscriptionDefinition:
        """Returns the definition with its rules. It is kept until a rule changes."""
        if self._full_definition is None:
            assert isinstance(self.definition, SubscriptionDefinition)
            rules = tuple(rule.definition for rule in self._rules.values())
            self._full_definition = replace(self.definition, rules=rules)
        return self._full_definition

    def check_is_sendable(self) -> None:
        """See `Entity.check_is_sendable`."""
        raise cannot_send_to(self.path)

    def view(self) -> EntityView:
        """See `Entity.view`."""
        return replace(super().view(), definition=self.full_definition)

    # --- rules ------------------------------------------------------------------------------

    @property
    def rule_count(self) -> int:
        """Returns the number of rules."""
        return len(self._rules)

    def rule(self, name: str) -> RuleDefinition | None:
        """Returns the rule of this name, compared without case, or None."""
        found = self._rules.get(name.lower())
        return None if found is None else found.definition

    def rule_page(self, skip: int, top: int) -> list[RuleDefinition]:
        """Returns a page of the rules, ordered by name."""
        return [self._rules[name].definition for name in self._rule_names[skip : skip + top]]

    def put_rule(self, rule: RuleDefinition, number: int | None = None) -> RuleRow:
        """Add a rule, or replace the rule of the same name. `number` is its number in the store, or
        None for a new one. Returns the row for the store."""
        name = rule.name.lower()
        earlier = self._rules.get(name)
        if earlier is not None:
            number = earlier.number
        else:
            insort(self._rule_names, name)
            number = self._last_rule_number + 1 if number is None else number
            self._last_rule_number = max(self._last_rule_number, number)
        self._rules[name] = NumberedRule(number, rule)
        self._full_definition = None
        return RuleRow(self.id, number, rule_to_json(rule))

    def rule_rows(self, entity_id: int) -> list[RuleRow]:
        """Returns the rows of its rules for a copy of this subscription with another id."""
        return [
            RuleRow(entity_id, rule.number, rule_to_json(rule.definition))
            for rule in self._rules.values()
        ]

    def remove_rule(self, name: str) -> int:
        """Remove an existing rule. Returns its number."""
        name = name.lower()
        number = self._rules.pop(name).number
        del self._rule_names[bisect_left(self._rule_names, name)]
        self._full_definition = None
        return number
