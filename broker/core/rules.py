"""Which subscriptions of a topic take a message, and as how many copies.

Owns rule selection: correlation, SQL, true and false filters, and the overlays of actions.
Rules that demand equalities are found by hash, so thousands of them cost one lookup for each set of
fields they test; only what cannot be found so is evaluated one by one, over one decoded view.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from broker.core.overlay import EMPTY, Overlay
from broker.core.sql import compile_action, values
from broker.core.sql.errors import FilterError
from broker.core.sql.properties import Draft, MessageProperties
from config.entities import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from config.limits import RELAXED, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from broker.core.message import Message, MessageReader, PropertyValue
    from broker.core.sql.analysis import Field
    from broker.core.sql.compiler import Action, Condition
    from config.entities import Filter, RuleDefinition

SubscriptionT = TypeVar("SubscriptionT", bound=Hashable)

RULE_NAME_PROPERTY = "RuleName"
"""Application property of a copy that an action made: the name of its rule."""

_CORRELATION_NAMES = {
    "correlation_id": "correlationid",
    "message_id": "messageid",
    "to": "to",
    "reply_to": "replyto",
    "label": "label",
    "session_id": "sessionid",
    "reply_to_session_id": "replytosessionid",
    "content_type": "contenttype",
}


# --- one rule -------------------------------------------------------------------------------------


class Selection(NamedTuple):
    """What a message must have for a rule to match."""

    equalities: Mapping[Field, Hashable]
    """Fields and their keys; see `_key`."""
    condition: Condition | None
    """What must be true besides, or None. With equalities, it cannot fail."""


EVERYTHING = Selection({}, None)


class CompiledRule(NamedTuple):
    """A rule ready to run."""

    definition: RuleDefinition
    selection: Selection | None
    """None for a rule that no message matches."""
    action: Action | None


def compile_rule(definition: RuleDefinition, limits: Limits = RELAXED) -> CompiledRule:
    """Raises `SqlSyntaxError`, or `ArgumentError` for a text beyond its limits."""
    action = definition.action
    return CompiledRule(
        definition,
        _select(definition.filter, limits),
        compile_action(
            action.expression,
            action.parameters,
            max_characters=limits.sql_text_max_characters,
            max_statements=limits.statements_per_action_max,
        )
        if action
        else None,
    )


def _select(rule_filter: Filter, limits: Limits) -> Selection | None:
    match rule_filter:
        case TrueFilter():
            return EVERYTHING
        case FalseFilter():
            return None
        case CorrelationFilter():
            return _demand(_correlated(rule_filter), None)
        case SqlFilter():
            return _select_by_sql(rule_filter, limits)


def _select_by_sql(rule_filter: SqlFilter, limits: Limits) -> Selection | None:
    # Imported with the first SQL filter: see `broker.core.sql`.
    from broker.core.sql.analysis import cannot_fail, demanded_equalities, is_constant
    from broker.core.sql.compiler import compile_condition
    from broker.core.sql.grammar import parse_filter

    tree = parse_filter(
        rule_filter.expression, rule_filter.parameters, limits.sql_text_max_characters
    )
    condition = compile_condition(tree)
    if is_constant(tree) and cannot_fail(tree):
        # `1=1` and the like: how clients that know only SQL say true and false.
        no_message: Any = None
        return EVERYTHING if condition(no_message) else None
    return _demand(demanded_equalities(tree), condition)


def _correlated(correlation: CorrelationFilter) -> dict[Field, PropertyValue]:
    fields: dict[Field, PropertyValue] = {
        (True, name): value
        for attribute, name in _CORRELATION_NAMES.items()
        if (value := getattr(correlation, attribute)) is not None
    }
    for name, value in correlation.properties.items():
        fields[False, name.lower()] = value
    return fields


def _demand(fields: Mapping[Field, PropertyValue], condition: Condition | None) -> Selection | None:
    equalities = {field: _key(value) for field, value in fields.items()}
    return None if None in equalities.values() else Selection(equalities, condition)


def _key(value: PropertyValue) -> Hashable | None:
    """What stands for a value in a hash table: equal keys are equal values. None: equals nothing.

    Python takes True for 1, messages do not.
    """
    value = values.plain(value)
    return ("boolean", value) if isinstance(value, bool) else value


# --- one subscription -----------------------------------------------------------------------------


class RuleSet:
    """The rules of one subscription."""

    __slots__ = ("compiled", "is_plain", "relevant")

    def __init__(
        self,
        definitions: Iterable[RuleDefinition],
        limits: Limits = RELAXED,
        earlier: RuleSet | None = None,
    ) -> None:
        """Compiles what `earlier` has not compiled already. Raises what `compile_rule` does."""
        known = {rule.definition.name: rule for rule in earlier.compiled} if earlier else {}
        self.compiled: list[CompiledRule] = [
            rule
            if (rule := known.get(definition.name)) and rule.definition == definition
            else compile_rule(definition, limits)
            for definition in definitions
        ]
        everything = [
            rule for rule in self.compiled if rule.selection == EVERYTHING and not rule.action
        ]
        acting = [rule for rule in self.compiled if rule.action]
        self.is_plain = bool(everything) and not acting
        """Every message, exactly once, as it came."""
        # Beside a rule that takes everything the others without action add nothing.
        self.relevant = [*everything[:1], *acting] if everything else self.compiled
        """The rules that must be looked at, in order."""


# --- all subscriptions of a topic -----------------------------------------------------------------


class Routed(NamedTuple, Generic[SubscriptionT]):
    """What one subscription takes of a message."""

    subscription: SubscriptionT
    copies: Sequence[Overlay | None]
    """One for each copy: the overlay it gets, or None for the message as it came."""
    error: FilterError | None = None
    """Why, besides, the message belongs in the subscription's dead-letter queue."""


class _Placed(Generic[SubscriptionT]):
    """A rule at its place in the index."""

    __slots__ = ("action", "condition", "fields", "keys", "name", "order", "routed", "subscription")

    def __init__(
        self, subscription: SubscriptionT, rule: CompiledRule, selection: Selection, order: int
    ) -> None:
        self.subscription = subscription
        self.name = rule.definition.name
        self.action = rule.action
        self.order = order
        self.condition = selection.condition
        self.fields = tuple(sorted(selection.equalities))
        self.keys = tuple(selection.equalities[field] for field in self.fields)
        self.routed = Routed(subscription, (None,))
        """The answer if this is the only rule that matches, and it has no action."""


# A bucket is a dictionary for its order and for removal at once; its values say nothing.
_Bucket = dict[_Placed[SubscriptionT], None]


class TopicRules(Generic[SubscriptionT]):
    """The rules of all subscriptions of a topic. Subscriptions are told apart by any key."""

    def __init__(
        self,
        encode_property: Callable[[PropertyValue], bytes],
        new_id: Callable[[], UUID],
        limits: Limits = RELAXED,
    ) -> None:
        self._encode_property = encode_property
        self._new_id = new_id
        self._limits = limits
        self._rule_sets: dict[SubscriptionT, RuleSet] = {}
        self._placed: dict[SubscriptionT, list[_Placed[SubscriptionT]]] = {}
        self._plain: dict[SubscriptionT, Routed[SubscriptionT]] = {}
        """Subscriptions that take every message as it came."""
        self._plain_list: list[Routed[SubscriptionT]] | None = None
        self._indexed: dict[tuple[Field, ...], dict[tuple[Hashable, ...], _Bucket[SubscriptionT]]]
        self._indexed = {}
        """By the fields tested, then by their keys."""
        self._scanned: dict[_Placed[SubscriptionT], Condition] = {}
        """Rules that only evaluation can tell."""

    def set(self, subscription: SubscriptionT, definitions: Iterable[RuleDefinition]) -> None:
        """Give a subscription its rules. A refusal changes nothing: see `compile_rule`."""
        rule_set = RuleSet(definitions, self._limits, self._rule_sets.get(subscription))
        self.remove(subscription)
        self._rule_sets[subscription] = rule_set
        if rule_set.is_plain:
            self._plain[subscription] = Routed(subscription, (None,))
            return
        placed = [
            _Placed(subscription, rule, rule.selection, order)
            for order, rule in enumerate(rule_set.relevant)
            if rule.selection is not None
        ]
        self._placed[subscription] = placed
        for rule in placed:
            if rule.condition is not None and not rule.fields:
                self._scanned[rule] = rule.condition
            else:
                group = self._indexed.setdefault(rule.fields, {})
                group.setdefault(rule.keys, {})[rule] = None

    def remove(self, subscription: SubscriptionT) -> None:
        """Forget a subscription, if it is known."""
        self._rule_sets.pop(subscription, None)
        self._plain_list = None
        self._plain.pop(subscription, None)
        for rule in self._placed.pop(subscription, ()):
            if rule in self._scanned:
                del self._scanned[rule]
                continue
            group = self._indexed[rule.fields]
            bucket = group[rule.keys]
            del bucket[rule]
            if not bucket:
                del group[rule.keys]
            if not group:
                del self._indexed[rule.fields]

    def route(self, message: Message, reader: MessageReader) -> Sequence[Routed[SubscriptionT]]:
        """Every subscription that takes the message, once each; not to be changed by the caller.

        A message the reader cannot read raises `UndecodableMessage`.
        """
        plain = self._plain_list
        if plain is None:
            plain = self._plain_list = list(self._plain.values())
        if not self._indexed and not self._scanned:
            return plain
        view = MessageProperties(message, reader, self._new_id)
        matched = self._look_up(view)
        failed = self._scan(view, matched)
        if failed or any(rule.action is not None for rule in matched):
            return [*plain, *self._copies(message, view, matched, failed)]
        # Rules without action: one copy, however many of them match.
        return [*plain, *{rule.subscription: rule.routed for rule in matched}.values()]

    def _look_up(self, view: MessageProperties) -> list[_Placed[SubscriptionT]]:
        """The indexed rules that match."""
        matched: list[_Placed[SubscriptionT]] = []
        for fields, group in self._indexed.items():
            keys: list[Hashable] = []
            for is_system, name in fields:
                value = view.system[name] if is_system else view.user.get(name)
                key = value if type(value) is str else _key(value)
                if key is None:
                    break
                keys.append(key)
            else:
                for rule in group.get(tuple(keys), ()):
                    if rule.condition is None or rule.condition(view):
                        matched.append(rule)  # noqa: PERF401 -- most buckets hold one rule
        return matched

    def _scan(
        self, view: MessageProperties, matched: list[_Placed[SubscriptionT]]
    ) -> dict[SubscriptionT, FilterError]:
        """Add the rules that must be evaluated and match; give the first failure of each."""
        failed: dict[SubscriptionT, FilterError] = {}
        for rule, condition in self._scanned.items():
            try:
                if condition(view):
                    matched.append(rule)
            except FilterError as error:
                failed.setdefault(rule.subscription, error)
        return failed

    def _copies(
        self,
        message: Message,
        view: MessageProperties,
        matched: list[_Placed[SubscriptionT]],
        failed: dict[SubscriptionT, FilterError],
    ) -> Iterable[Routed[SubscriptionT]]:
        """One copy for all rules without action, one for each with."""
        routed = {rule.subscription: rule.routed for rule in matched if rule.action is None}
        acting = [rule for rule in matched if rule.action is not None]
        for rule in sorted(acting, key=lambda rule: rule.order):
            subscription = rule.subscription
            try:
                overlay = self._act(rule, message, view)
            except FilterError as error:
                failed.setdefault(subscription, error)
                continue
            copies = routed[subscription].copies if subscription in routed else ()
            routed[subscription] = Routed(subscription, (*copies, overlay))
        for subscription, failure in failed.items():
            copies = routed[subscription].copies if subscription in routed else ()
            routed[subscription] = Routed(subscription, copies, failure)
        return routed.values()

    def _act(
        self, rule: _Placed[SubscriptionT], message: Message, view: MessageProperties
    ) -> Overlay:
        """What the rule's action, and its name, change about the message."""
        assert rule.action is not None
        draft = Draft(view)
        rule.action(draft)
        draft.set_user(RULE_NAME_PROPERTY, rule.name)
        before = message.overlay or EMPTY
        return replace(
            before,
            properties={**before.properties, **draft.changed_user(self._encode_property)},
            system={**before.system, **draft.changed_system(self._encode_property)},
        )
