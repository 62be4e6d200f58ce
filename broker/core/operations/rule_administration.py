"""Adds, replaces, removes and lists the rules of subscriptions.

A rule is checked and compiled before anything changes. Other rules are not touched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract.errors import (
    ArgumentError,
    BrokerError,
    EntityAlreadyExists,
    EntityNotFound,
    NotAllowed,
    QuotaExceeded,
)
from broker.core.contract.records import RulesDeleted, RulesStored
from broker.core.entities.stored_definitions import rule_from_json
from broker.core.entities.subscription import Subscription
from broker.core.routing.compiled_rule import CompiledRule, compile_rule
from config.model.limits import RELAXED
from config.model.names import rule_name_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract import commands as ask
    from broker.core.contract.records import RuleRow
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from config.model.definitions import RuleDefinition
    from config.model.limits import Limits


class RuleAdministration:
    """Carries out the commands about rules."""

    __slots__ = ("_directory", "_limits")

    def __init__(self, limits: Limits, directory: Directory) -> None:
        self._limits = limits
        self._directory = directory

    # --- requests ---------------------------------------------------------------------------

    def add_rule(self, command: ask.AddRule, now_ms: int, turn: Turn) -> RuleDefinition:
        """Add a rule to a subscription, or replace an existing rule. Returns the rule."""
        subscription = self._subscription(command.path)
        rule = command.rule
        if (wrong := rule_name_error(rule.name, self._limits)) is not None:
            raise ArgumentError(f"'{rule.name}' cannot be used as the name of a rule: {wrong}.")
        earlier = subscription.rule(rule.name)
        if command.replace and earlier is None:
            raise EntityNotFound(f"{subscription.path}/Rules/{rule.name}")
        if not command.replace and earlier is not None:
            raise EntityAlreadyExists(
                f"The messaging entity '{subscription.path}/Rules/{rule.name}' already exists."
            )
        if earlier is None:
            self._check_count(subscription.rule_count + 1)
            rule = replace(rule, created_time_ms=rule.created_time_ms or now_ms)
        else:
            rule = replace(rule, created_time_ms=earlier.created_time_ms)
        compiled = self._compile(rule, command.compiled)
        subscription.restart_idle_time(now_ms)
        turn.records.append(RulesStored([self._put(subscription, compiled)]))
        return rule

    def remove_rule(self, command: ask.RemoveRule, now_ms: int, turn: Turn) -> None:
        """Remove a rule from a subscription."""
        subscription = self._subscription(command.path)
        if subscription.rule(command.name) is None:
            raise EntityNotFound(f"{subscription.path}/Rules/{command.name}")
        subscription.restart_idle_time(now_ms)
        self._remove(subscription, [command.name], turn)

    def get_rule(self, command: ask.GetRule, now_ms: int, turn: Turn) -> RuleDefinition:
        """Returns one rule of a subscription."""
        del now_ms, turn
        subscription = self._subscription(command.path)
        rule = subscription.rule(command.name)
        if rule is None:
            raise EntityNotFound(f"{subscription.path}/Rules/{command.name}")
        return rule

    def list_rules(self, command: ask.ListRules, now_ms: int, turn: Turn) -> list[RuleDefinition]:
        """Returns the rules of a subscription, ordered by name."""
        del now_ms, turn
        return self._subscription(command.path).rule_page(command.skip, command.top)

    def _subscription(self, path: str) -> Subscription:
        entity = self._directory.entity(path)
        if not isinstance(entity, Subscription):
            raise NotAllowed(f"'{entity.path}' is a {entity.kind}: only subscriptions have rules.")
        return entity

    # --- with their subscription --------------------------------------------------------------

    def compile_first(
        self,
        rules: Sequence[RuleDefinition],
        now_ms: int,
        compiled: Sequence[ask.PrecompiledRule | BrokerError] = (),
    ) -> list[CompiledRule]:
        """Returns the compiled rules of a new subscription. Raises if one of them is not allowed."""
        self._check_count(len(rules))
        return [
            self._compile(
                replace(rule, created_time_ms=rule.created_time_ms or now_ms),
                compiled[index : index + 1],
            )
            for index, rule in enumerate(rules)
        ]

    def create_first(
        self, subscription: Subscription, rules: Iterable[CompiledRule], turn: Turn
    ) -> None:
        """Add the rules of a new subscription."""
        rows = [self._put(subscription, rule) for rule in rules]
        if rows:
            turn.records.append(RulesStored(rows))

    def restore(self, subscription: Subscription, rows: Iterable[RuleRow]) -> None:
        """Restore the rules from the store, in the order of their numbers. They were accepted once, so
        they are not checked against limits that have become stricter."""
        for row in rows:
            compiled = compile_rule(rule_from_json(row.definition), RELAXED)
            self._put(subscription, compiled, row.number)

    def declare(
        self,
        subscription: Subscription,
        definitions: Sequence[RuleDefinition],
        now_ms: int,
        turn: Turn,
    ) -> None:
        """Make these rules the only rules of an existing subscription."""
        wanted = {rule.name.lower() for rule in definitions}
        present = subscription.full_definition.rules
        self._remove(
            subscription, [rule.name for rule in present if rule.name.lower() not in wanted], turn
        )
        changed: list[CompiledRule] = []
        for rule in definitions:
            earlier = subscription.rule(rule.name)
            created_ms = now_ms if earlier is None else earlier.created_time_ms
            dated = replace(rule, created_time_ms=rule.created_time_ms or created_ms)
            if dated != earlier:
                changed.append(compile_rule(dated, RELAXED))
        self.create_first(subscription, changed, turn)

    # --- doing it -----------------------------------------------------------------------------

    def _check_count(self, count: int) -> None:
        if count > self._limits.rules_per_subscription_max:
            raise QuotaExceeded(
                f"A subscription has at most {self._limits.rules_per_subscription_max} rules."
            )

    def _compile(
        self, rule: RuleDefinition, compiled: Sequence[ask.PrecompiledRule | BrokerError] = ()
    ) -> CompiledRule:
        """Returns the rule that was compiled before, or compiles it. Raises the error of a rule that
        could not be compiled."""
        if len(rule.name) > self._limits.name_max_characters:
            raise ArgumentError(
                f"A rule's name has at most {self._limits.name_max_characters} characters."
            )
        for ready in compiled:
            if isinstance(ready, BrokerError):
                raise ready
            assert isinstance(ready, CompiledRule)
            return ready._replace(definition=rule)
        return compile_rule(rule, self._limits)

    def _put(
        self, subscription: Subscription, rule: CompiledRule, number: int | None = None
    ) -> RuleRow:
        topic, _ = self._directory.topic_of(subscription.path)
        topic.put_rule(subscription, rule)
        return subscription.put_rule(rule.definition, number)

    def _remove(self, subscription: Subscription, names: Sequence[str], turn: Turn) -> None:
        topic, _ = self._directory.topic_of(subscription.path)
        numbers = []
        for name in names:
            topic.remove_rule(subscription, name)
            numbers.append(subscription.remove_rule(name))
        if numbers:
            turn.records.append(RulesDeleted(subscription.id, numbers))
