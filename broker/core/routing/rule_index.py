"""The index of all rules of a topic: finds the subscriptions that get a message, and their copies.

Rules with equality conditions are found by hash: one lookup for each set of tested fields, for any
number of rules. Other rules are evaluated one by one on one decoded view of the message. Adding or
removing a rule does not touch other rules.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from broker.core.contract.message_changes import EMPTY, MessageChanges
from broker.core.routing.compiled_rule import EVERYTHING, key_of
from broker.core.routing.sql.message_properties import EditableProperties, MessageProperties
from broker.core.routing.sql.sql_errors import EVALUATION_ERRORS, FilterError, as_filter_error
from config.model.definitions import CorrelationFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from broker.core.contract.errors import BrokerError
    from broker.core.contract.message import Message, MessageReader, PropertyValue
    from broker.core.routing.compiled_rule import CompiledRule
    from broker.core.routing.sql.analysis import Field
    from broker.core.routing.sql.compiler import Condition

SubscriptionT = TypeVar("SubscriptionT", bound=Hashable)

RULE_NAME_PROPERTY = "RuleName"
"""The application property with the name of the rule, on copies that an action has changed."""


CHANGES_MAX_BYTES = 256 * 1024
"""How much an action may set in a copy. It comes in addition to the size of the message."""


class RoutedCopies(NamedTuple, Generic[SubscriptionT]):
    """The copies of a message for one subscription."""

    subscription: SubscriptionT
    copies: Sequence[MessageChanges | None]
    """The changes of each copy. None for an unchanged copy."""
    error: FilterError | None = None
    """The error of a filter or action, if the message also goes to the dead-letter queue."""
    rules: tuple[str, ...] = ()
    """The name of the rule that made each copy. Of several that made it together, one is named."""


class _SubscriptionRules(Generic[SubscriptionT]):
    """The rules of one subscription."""

    __slots__ = (
        "acting_count",
        "by_name",
        "everything",
        "next_order",
        "scanned",
        "scanned_acting",
        "selective_count",
        "subscription",
    )

    def __init__(self, subscription: SubscriptionT) -> None:
        self.subscription = subscription
        self.by_name: dict[str, _IndexedRule[SubscriptionT]] = {}
        """By name in lower case."""
        self.next_order = 0
        self.everything: dict[str, None] = {}
        """The names of the rules without an action that match every message. If there is one, other
        rules without an action make no difference and are not evaluated."""
        self.acting_count = 0
        """The number of rules with an action."""
        self.selective_count = 0
        """The number of rules without an action that match only some messages."""
        self.scanned: dict[_IndexedRule[SubscriptionT], Condition] = {}
        """Rules of those that must be evaluated."""
        self.scanned_acting: dict[_IndexedRule[SubscriptionT], Condition] = {}


class _IndexedRule(Generic[SubscriptionT]):
    """A rule in the index."""

    __slots__ = (
        "action",
        "condition",
        "fields",
        "is_correlation",
        "keys",
        "name",
        "order",
        "routed",
        "rules",
        "selection",
        "subscription",
    )

    def __init__(
        self, rules: _SubscriptionRules[SubscriptionT], rule: CompiledRule, order: int
    ) -> None:
        self.rules = rules
        self.subscription = rules.subscription
        self.name = rule.definition.name
        self.routed = RoutedCopies(rules.subscription, (None,), rules=(self.name,))
        """The result if it matches, and no rule with an action does."""
        self.is_correlation = isinstance(rule.definition.filter, CorrelationFilter)
        self.action = rule.action
        self.order = order
        """The order of the rule. Copies that actions have changed come in this order."""
        self.selection = rule.selection
        equalities = {} if rule.selection is None else rule.selection.equalities
        self.condition = None if rule.selection is None else rule.selection.condition
        self.fields = tuple(sorted(equalities))
        self.keys = tuple(equalities[field] for field in self.fields)

    @property
    def is_everything(self) -> bool:
        return self.action is None and self.selection == EVERYTHING

    @property
    def is_scanned(self) -> bool:
        return self.condition is not None and not self.fields


# A bucket is a dict without values: it keeps the order and removes a rule in constant time.
_Bucket = dict[_IndexedRule[SubscriptionT], None]

_Failures = dict[SubscriptionT, tuple[int, FilterError]]
"""The error of a rule of each subscription, and the order of the rule."""


class TopicRules(Generic[SubscriptionT]):
    """The rules of all subscriptions of a topic. Any hashable object can identify a subscription."""

    def __init__(
        self, encode_property: Callable[[PropertyValue], bytes], new_id: Callable[[], UUID]
    ) -> None:
        self._encode_property = encode_property
        self._new_id = new_id
        self._rules: dict[SubscriptionT, _SubscriptionRules[SubscriptionT]] = {}
        self._plain: dict[SubscriptionT, RoutedCopies[SubscriptionT]] = {}
        """Subscriptions that get an unchanged copy of every message."""
        self._plain_list: list[RoutedCopies[SubscriptionT]] | None = None
        self._evaluated: set[SubscriptionT] = set()
        """Subscriptions for which a message must be evaluated."""
        self._indexed: dict[tuple[Field, ...], dict[tuple[Hashable, ...], _Bucket[SubscriptionT]]]
        self._indexed = {}
        """Rules by the tested fields, and then by the keys of their values."""
        self._scanned: dict[
            tuple[SubscriptionT, bool], dict[_IndexedRule[SubscriptionT], Condition]
        ] = {}
        """Rules that must be evaluated, by subscription and whether they have an action."""
        self.rule_count = 0
        self.correlation_filter_count = 0

    # --- changing -----------------------------------------------------------------------------

    def put(self, subscription: SubscriptionT, rule: CompiledRule) -> None:
        """Add a rule, or replace the rule of the same name."""
        rules = self._rules.get(subscription)
        if rules is None:
            rules = self._rules[subscription] = _SubscriptionRules(subscription)
        key = rule.definition.name.lower()
        earlier = rules.by_name.get(key)
        if earlier is None:
            order = rules.next_order
            rules.next_order += 1
        else:
            order = earlier.order
            self._remove_from_index(earlier)
        placed = rules.by_name[key] = _IndexedRule(rules, rule, order)
        self._add_to_index(placed)
        self._update_evaluated_rules(rules)

    def remove_rule(self, subscription: SubscriptionT, name: str) -> None:
        """Remove an existing rule."""
        rules = self._rules[subscription]
        self._remove_from_index(rules.by_name.pop(name.lower()))
        self._update_evaluated_rules(rules)

    def remove(self, subscription: SubscriptionT) -> None:
        """Remove all rules of a subscription, if it has any."""
        rules = self._rules.pop(subscription, None)
        if rules is not None:
            for rule in rules.by_name.values():
                self._remove_from_index(rule)
            self._update_evaluated_rules(rules)

    def _add_to_index(self, rule: _IndexedRule[SubscriptionT]) -> None:
        self._count(rule, 1)
        if rule.selection is None or rule.is_everything:
            return
        if rule.is_scanned:
            assert rule.condition is not None
            self._scanned_conditions(rule)[rule] = rule.condition
        else:
            group = self._indexed.setdefault(rule.fields, {})
            group.setdefault(rule.keys, {})[rule] = None

    def _remove_from_index(self, rule: _IndexedRule[SubscriptionT]) -> None:
        self._count(rule, -1)
        if rule.selection is None or rule.is_everything:
            return
        if rule.is_scanned:
            del self._scanned_conditions(rule)[rule]
            return
        group = self._indexed[rule.fields]
        bucket = group[rule.keys]
        del bucket[rule]
        if not bucket:
            del group[rule.keys]
        if not group:
            del self._indexed[rule.fields]

    def _count(self, rule: _IndexedRule[SubscriptionT], change: int) -> None:
        rules = rule.rules
        self.rule_count += change
        self.correlation_filter_count += change * rule.is_correlation
        if rule.is_everything and change > 0:
            rules.everything[rule.name] = None
        elif rule.is_everything:
            del rules.everything[rule.name]
        elif rule.selection is not None and rule.action is not None:
            rules.acting_count += change
        elif rule.selection is not None:
            rules.selective_count += change

    @staticmethod
    def _scanned_conditions(
        rule: _IndexedRule[SubscriptionT],
    ) -> dict[_IndexedRule[SubscriptionT], Condition]:
        return rule.rules.scanned if rule.action is None else rule.rules.scanned_acting

    def _update_evaluated_rules(self, rules: _SubscriptionRules[SubscriptionT]) -> None:
        subscription = rules.subscription
        takes_everything = bool(rules.everything)
        plain = self._plain.get(subscription)
        names = tuple(islice(rules.everything, 1))
        if names != (() if plain is None else plain.rules):
            self._plain_list = None
            if takes_everything:
                self._plain[subscription] = RoutedCopies(subscription, (None,), rules=names)
            else:
                del self._plain[subscription]
        for acts, scanned in ((False, rules.scanned), (True, rules.scanned_acting)):
            if scanned and (acts or not takes_everything):
                self._scanned[subscription, acts] = scanned
            else:
                self._scanned.pop((subscription, acts), None)
        if rules.acting_count or (rules.selective_count and not takes_everything):
            self._evaluated.add(subscription)
        else:
            self._evaluated.discard(subscription)

    # --- routing ------------------------------------------------------------------------------

    @property
    def plain(self) -> Sequence[RoutedCopies[SubscriptionT]]:
        """Returns the copies for subscriptions that get every message unchanged."""
        if self._plain_list is None:
            self._plain_list = list(self._plain.values())
        return self._plain_list

    @property
    def evaluates_messages(self) -> bool:
        """Whether the copies depend on the message. Otherwise `plain` has all of them."""
        return bool(self._evaluated)

    def route(
        self, message: Message, reader: MessageReader
    ) -> Sequence[RoutedCopies[SubscriptionT]]:
        """Returns the copies for every subscription that gets the message. The caller must not
        change the result.

        Raises `UndecodableMessage` if the message cannot be read.
        """
        plain = self.plain
        if not self._evaluated:
            return plain
        view = MessageProperties(message, reader, self._new_id)
        failures: _Failures[SubscriptionT] = {}
        matched = self._look_up(view, failures)
        if self._scanned:
            self._scan(view, matched, failures)
        failed = {subscription: error for subscription, (_, error) in failures.items()}
        if failed or any(rule.action is not None for rule in matched):
            return list(self._copies(message, view, matched, failed))
        # All matching rules without an action make one copy together.
        return [*plain, *{rule.subscription: rule.routed for rule in matched}.values()]

    def route_unreadable(self, error: BrokerError) -> Sequence[RoutedCopies[SubscriptionT]]:
        """Returns the copies of a message that was accepted earlier and cannot be read: a filter that
        looks into it fails."""
        routed = dict(self._plain)
        failure = FilterError(str(error))
        for subscription in self._rules:
            if subscription in self._evaluated:
                made = routed.get(subscription) or RoutedCopies(subscription, ())
                routed[subscription] = made._replace(error=failure)
        return list(routed.values())

    def _look_up(
        self, view: MessageProperties, failures: _Failures[SubscriptionT]
    ) -> list[_IndexedRule[SubscriptionT]]:
        """Returns the indexed rules that match."""
        matched: list[_IndexedRule[SubscriptionT]] = []
        for fields, group in self._indexed.items():
            keys: list[Hashable] = []
            for is_system, name in fields:
                value = view.system[name] if is_system else view.user.get(name)
                key = value if type(value) is str else key_of(value)
                if key is None:
                    break
                keys.append(key)
            else:
                for rule in group.get(tuple(keys), ()):
                    if rule.action is None and rule.rules.everything:
                        continue
                    try:
                        if rule.condition is None or rule.condition(view):
                            matched.append(rule)
                    except EVALUATION_ERRORS as error:
                        _note_failure(failures, rule, error)
        return matched

    def _scan(
        self,
        view: MessageProperties,
        matched: list[_IndexedRule[SubscriptionT]],
        failures: _Failures[SubscriptionT],
    ) -> None:
        """Evaluate rules and add those that match."""
        for scanned in self._scanned.values():
            for rule, condition in scanned.items():
                try:
                    if condition(view):
                        matched.append(rule)
                except EVALUATION_ERRORS as error:
                    _note_failure(failures, rule, error)

    def _copies(
        self,
        message: Message,
        view: MessageProperties,
        matched: list[_IndexedRule[SubscriptionT]],
        failed: dict[SubscriptionT, FilterError],
    ) -> Iterable[RoutedCopies[SubscriptionT]]:
        """Returns one copy for all matching rules without an action, and one for each with an
        action."""
        routed = dict(self._plain)
        routed.update((rule.subscription, rule.routed) for rule in matched if not rule.action)
        acting = [rule for rule in matched if rule.action is not None]
        for rule in sorted(acting, key=lambda rule: rule.order):
            subscription = rule.subscription
            try:
                changes = self._act(rule, message, view)
            except EVALUATION_ERRORS as error:
                failed.setdefault(subscription, as_filter_error(error))
                continue
            _, copies, _, names = routed.get(subscription) or RoutedCopies(subscription, ())
            copies, names = (*copies, changes), (*names, rule.name)
            routed[subscription] = RoutedCopies(subscription, copies, rules=names)
        for subscription, failure in failed.items():
            made = routed.get(subscription) or RoutedCopies(subscription, ())
            routed[subscription] = made._replace(error=failure)
        return routed.values()

    def _act(
        self, rule: _IndexedRule[SubscriptionT], message: Message, view: MessageProperties
    ) -> MessageChanges:
        """Returns the changes that the action of a rule makes, including the name of the rule."""
        assert rule.action is not None
        draft = EditableProperties(view)
        rule.action(draft)
        draft.set_user(RULE_NAME_PROPERTY, rule.name)
        size = 0

        def encode(value: PropertyValue) -> bytes:
            nonlocal size
            encoded = self._encode_property(value)
            size += len(encoded)
            if size > CHANGES_MAX_BYTES:
                raise FilterError(f"The action sets more than {CHANGES_MAX_BYTES} bytes.")
            return encoded

        properties, system = draft.changed_user(encode), draft.changed_system(encode)
        for name in properties:
            name.encode()  # fails here for a name that cannot be stored
        before = message.changes or EMPTY
        return replace(before.with_properties(properties), system={**before.system, **system})


def _note_failure(
    failures: _Failures[SubscriptionT], rule: _IndexedRule[SubscriptionT], error: Exception
) -> None:
    """Keep the error of the first rule of each subscription."""
    earlier = failures.get(rule.subscription)
    if earlier is None or rule.order < earlier[0]:
        failures[rule.subscription] = rule.order, as_filter_error(error)
