"""Reads the official emulator's Config.json, with the defaults of that file.

Accepts more than the emulator does: the ranges of the cloud, every property, several namespaces. An unknown name is a
warning, because the emulator ignores it. A value that the broker cannot apply is a mistake.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from config.files.mistakes import did_you_mean
from config.files.node_values import SETTINGS, items, known_members, scalars, text
from config.files.properties import PROPERTIES, read_properties
from config.files.topology import DeclaredEntity, Topology, assemble
from config.model.definitions import (
    CORRELATION_FIELDS,
    CorrelationFilter,
    EntityDefinition,
    Filter,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
    TrueFilter,
)
from config.model.limits import RELAXED
from config.model.names import (
    DEFAULT_NAMESPACE,
    entity_name_error,
    namespace_name_error,
    rule_name_error,
    subscription_name_error,
    subscription_path,
)
from config.model.tier_features import missing_feature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from config.files.document import Node
    from config.files.mistakes import ConfigReport
    from config.files.node_values import RuleCheck
    from config.model.limits import Limits

_D = TypeVar("_D", bound=EntityDefinition)

ROOT = "UserConfig"
"""The only name at the top level of the file."""

QUEUE = QueueDefinition(
    lock_duration_ms=60_000,
    max_delivery_count=3,
    default_time_to_live_ms=3_600_000,
    duplicate_window_ms=20_000,
)
TOPIC = TopicDefinition(default_time_to_live_ms=3_600_000, duplicate_window_ms=20_000)
SUBSCRIPTION = SubscriptionDefinition(
    lock_duration_ms=60_000, max_delivery_count=3, default_time_to_live_ms=3_600_000
)

_CORRELATION_ATTRIBUTES = {one.element: one.attribute for one in CORRELATION_FIELDS}


def default_topology(limits: Limits = RELAXED) -> Topology:
    """Returns the topology of the emulator's default file, for a start without a config file."""
    filters: Mapping[str, tuple[RuleDefinition, ...]] = {
        "subscription.1": (
            RuleDefinition("app-prop-filter-1", CorrelationFilter(content_type="application/json")),
        ),
        "subscription.2": (
            RuleDefinition("user-prop-filter-1", CorrelationFilter(properties={"prop1": "value1"})),
        ),
        "subscription.3": SUBSCRIPTION.rules,
        "subscription.4": (
            RuleDefinition(
                "sql-filter-1",
                SqlFilter("sys.MessageId = '123456' AND userProp1 = 'value1'"),
                SqlAction("SET sys.To = 'Entity'"),
            ),
        ),
    }
    entities: dict[str, EntityDefinition] = {"queue.1": QUEUE, "topic.1": TOPIC}
    for name, rules in filters.items():
        entities[subscription_path("topic.1", name)] = replace(SUBSCRIPTION, rules=rules)
    offered = {path: one for path, one in entities.items() if not missing_feature(one, limits)}
    return Topology({DEFAULT_NAMESPACE: offered})


def read_emulator_form(
    root: Node, limits: Limits, report: ConfigReport, wrong_rule: RuleCheck
) -> Topology:
    """Returns the topology in a file. `root` is the whole file."""
    return _EmulatorForm(limits, report, wrong_rule).topology(root)


class _EmulatorForm:
    """One method for each level of the file."""

    def __init__(self, limits: Limits, report: ConfigReport, wrong_rule: RuleCheck) -> None:
        self._limits = limits
        self._report = report
        self._wrong_rule = wrong_rule

    def topology(self, root: Node) -> Topology:
        user_config = self._required(root, self._members(root, [ROOT, SETTINGS]), ROOT)
        if user_config is None:
            return Topology()
        members = self._members(user_config, ["Namespaces", "Logging"])
        self._required(user_config, members, "Namespaces")
        namespaces: dict[str, dict[str, EntityDefinition]] = {}
        for node in items(members.get("Namespaces"), self._report):
            name, entities = self._namespace(node)
            if name in namespaces:
                self._report.mistake(node, f"there are two namespaces {name!r}")
            namespaces[name] = entities
        if not namespaces:
            self._report.mistake(user_config, "expected one namespace at least")
        return Topology(namespaces)

    def _namespace(self, node: Node) -> tuple[str, dict[str, EntityDefinition]]:
        members = self._members(node, ["Name", "Queues", "Topics"])
        name = self._name(node, members, namespace_name_error) or DEFAULT_NAMESPACE
        declared: list[DeclaredEntity] = []
        for queue in items(members.get("Queues"), self._report):
            declared += self._queue(queue)
        for topic in items(members.get("Topics"), self._report):
            declared += self._topic(topic)
        # The emulator accepts forwarding to an entity that is not in the file, and Aspire writes such
        # files. The target may be created later.
        entities = assemble(
            declared, self._limits, self._report, missing_target=self._report.warning
        )
        return name.lower(), entities

    def _queue(self, node: Node) -> Iterator[DeclaredEntity]:
        members = self._members(node, ["Name", "Properties"])
        name = self._name(node, members, entity_name_error)
        definition, places = self._properties(QUEUE, members)
        if name is not None:
            yield DeclaredEntity(name, definition, node, places)

    def _topic(self, node: Node) -> Iterator[DeclaredEntity]:
        members = self._members(node, ["Name", "Properties", "Subscriptions"])
        name = self._name(node, members, entity_name_error)
        definition, places = self._properties(TOPIC, members)
        subscriptions = [
            self._subscription(subscription, name or "")
            for subscription in items(members.get("Subscriptions"), self._report)
        ]
        if name is not None:
            yield DeclaredEntity(name, definition, node, places)
            yield from filter(None, subscriptions)

    def _subscription(self, node: Node, topic: str) -> DeclaredEntity | None:
        members = self._members(node, ["Name", "Properties", "Rules"])
        name = self._name(node, members, subscription_name_error)
        definition, places = self._properties(SUBSCRIPTION, members)
        rules = [self._rule(rule) for rule in items(members.get("Rules"), self._report)]
        if rules:  # if rules are listed, the default rule that matches everything is not wanted
            definition = replace(definition, rules=tuple(filter(None, rules)))
        if name is None:
            return None
        return DeclaredEntity(subscription_path(topic, name), definition, node, places)

    def _rule(self, node: Node) -> RuleDefinition | None:
        members = self._members(node, ["Name", "Properties"])
        name = self._name(node, members, rule_name_error)
        given = self._required(node, members, "Properties")
        if given is None:
            return None
        properties = self._members(
            given, ["FilterType", "CorrelationFilter", "SqlFilter", "Action"]
        )
        filter_ = self._filter(given, properties)
        action = None
        if "Action" in properties and (expression := self._sql(properties["Action"])):
            action = SqlAction(expression)
        if not name or not filter_:
            return None
        rule = RuleDefinition(name, filter_, action)
        if wrong := self._wrong_rule(rule, self._limits):
            self._report.mistake(given, wrong)
        return rule

    def _filter(self, node: Node, properties: Mapping[str, Node]) -> Filter | None:
        readers: Mapping[str, tuple[str, Callable[[Node], Filter | None]]] = {
            "correlation": ("CorrelationFilter", self._correlation_filter),
            "sql": ("SqlFilter", self._sql_filter),
        }
        filter_type = properties.get("FilterType")
        if filter_type is None:
            self._report.mistake(node, "FilterType is missing; expected Correlation or Sql")
            return None
        found = readers.get(str(filter_type.value).casefold())
        if found is None:
            hint = did_you_mean(str(filter_type.value), ["Correlation", "Sql"])
            self._report.mistake(
                filter_type, f"{filter_type.kind} is not allowed; expected Correlation or Sql{hint}"
            )
            return None
        name, read = found
        if _is_missing(properties.get(name)):
            # Aspire writes every SQL rule like this.
            self._report.warning(node, f"{name} is missing: the rule takes every message")
            return TrueFilter()
        return read(properties[name])

    def _correlation_filter(self, node: Node) -> Filter | None:
        members = self._members(node, [*_CORRELATION_ATTRIBUTES, "Properties"])
        fields = {
            _CORRELATION_ATTRIBUTES[name]: text(member, self._report)
            for name, member in members.items()
            if name != "Properties"
        }
        properties = scalars(members.get("Properties"), self._report)
        if not properties and not any(
            fields.values()
        ):  # Aspire writes a rule without a filter like this
            self._report.warning(node, "names no property to compare: the rule takes every message")
            return TrueFilter()
        return CorrelationFilter(**fields, properties=properties)

    def _sql_filter(self, node: Node) -> Filter | None:
        expression = self._sql(node)
        return SqlFilter(expression) if expression else None

    def _sql(self, node: Node) -> str | None:
        members = self._members(node, ["SqlExpression"])
        return text(self._required(node, members, "SqlExpression"), self._report)

    def _properties(self, base: _D, members: Mapping[str, Node]) -> tuple[_D, Mapping[str, Node]]:
        known = [one.name for one in PROPERTIES[type(base)]]
        given = self._members(members.get("Properties"), known)
        return read_properties(base, given, self._limits, self._report)

    def _name(
        self, node: Node, members: Mapping[str, Node], wrong: Callable[[str, Limits], str | None]
    ) -> str | None:
        given = self._required(node, members, "Name")
        name = text(given, self._report)
        if given and name and (reason := wrong(name, self._limits)):
            self._report.mistake(given, f"{name!r} is not a valid name: {reason}")
        return name

    def _required(self, node: Node, members: Mapping[str, Node], name: str) -> Node | None:
        """Returns a member, or None if it is missing or null, which is a mistake."""
        member = members.get(name)
        if not _is_missing(member):
            return member
        if isinstance(node.value, dict):
            self._report.mistake(node, f"{name} is missing")
        return None

    def _members(self, node: Node | None, known: Iterable[str]) -> Mapping[str, Node]:
        return known_members(node, known, self._report, self._report.warning, any_case=True)


def _is_missing(node: Node | None) -> bool:
    """Null is the same as a member that is not there."""
    return node is None or node.value is None
