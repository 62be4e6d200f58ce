"""Reads the entities in an ARM template: resources of the type Microsoft.ServiceBus/namespaces and below it.

What cannot be carried over is reported with its line, and the rest is read. A template has no keys and no messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from config.files.arm_expressions import ArmExpressions, CannotEvaluate
from config.files.document import Node
from config.files.node_values import items, known_members, mapping, scalars, text
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
from config.model.names import (
    DEFAULT_NAMESPACE,
    entity_name_error,
    rule_name_error,
    subscription_name_error,
    subscription_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from config.files.mistakes import ConfigReport
    from config.files.node_values import RuleCheck
    from config.model.limits import Limits

_D = TypeVar("_D", bound=EntityDefinition)

NAMESPACE = "microsoft.servicebus/namespaces"
QUEUE = f"{NAMESPACE}/queues"
TOPIC = f"{NAMESPACE}/topics"
SUBSCRIPTION = f"{TOPIC}/subscriptions"
RULE = f"{SUBSCRIPTION}/rules"
DEPLOYMENT = "microsoft.resources/deployments"
COPIES_MAX = 800
"""How many copies of a resource a loop of Azure can make."""
_KEYS = {f"{one}/authorizationrules" for one in (NAMESPACE, QUEUE, TOPIC)}
_IGNORED = {"isclientaffine", "clientaffineproperties", "enableexpress", "supportordering"}
"""Properties that a template may set to a value with which the broker does nothing."""
DEFAULT_RULE = "$Default"
_CORRELATION = {one.element: one.attribute for one in CORRELATION_FIELDS}


def is_arm_template(root: Node) -> bool:
    """Whether a document is an ARM template."""
    return isinstance(root.value, dict) and "resources" in root.value


def read_arm_template(
    root: Node, limits: Limits, report: ConfigReport, wrong_rule: RuleCheck
) -> Topology:
    """Returns the topology in a template. Everything that cannot be carried over is in the report."""
    return _ArmTemplate(root, limits, report, wrong_rule).topology()


@dataclass(slots=True)
class _Namespace:
    entities: list[DeclaredEntity] = field(default_factory=list)
    subscriptions: dict[str, DeclaredEntity] = field(default_factory=dict)
    """By path in lower case."""
    rules: dict[str, list[tuple[RuleDefinition, Node]]] = field(default_factory=dict)
    """By the path of the subscription, in lower case."""


class _ArmTemplate:
    def __init__(
        self, root: Node, limits: Limits, report: ConfigReport, wrong_rule: RuleCheck
    ) -> None:
        self._root = mapping(root, report)
        self._limits = limits
        self._report = report
        self._wrong_rule = wrong_rule
        self._expressions = ArmExpressions(
            mapping(self._root.get("parameters"), report),
            mapping(self._root.get("variables"), report),
        )
        self._namespaces: dict[str, _Namespace] = {}
        self._readers: Mapping[str, Callable[[Node, _Namespace, list[str]], None]] = {
            QUEUE: self._queue,
            TOPIC: self._topic,
            SUBSCRIPTION: self._subscription,
            RULE: self._rule,
        }

    def topology(self) -> Topology:
        self._resources(self._root.get("resources"), "", "")
        for name, node in self._expressions.without_default.items():
            self._report.warning(node, f"has no default value: its name {name!r} is used as value")
        topologies = {
            name: assemble(
                [*one.entities, *self._with_rules(one)],
                self._limits,
                self._report,
                missing_target=self._report.warning,
            )
            for name, one in self._namespaces.items()
        }
        if len(topologies) <= 1:  # clients of `localhost` find it without a host name of its own
            return Topology({DEFAULT_NAMESPACE: next(iter(topologies.values()), {})})
        return Topology(topologies)

    def _with_rules(self, namespace: _Namespace) -> Iterator[DeclaredEntity]:
        """Yields the subscriptions with their rules. What belongs to another template has no place here."""
        kinds: dict[str, type] = {}
        for entity in namespace.entities:
            kinds.setdefault(entity.path.lower(), type(entity.definition))
        for path, one in namespace.subscriptions.items():
            rules = [rule for rule, _ in namespace.rules.pop(path, [])]
            if kinds.get(str(one.topic).lower()) is not TopicDefinition:
                self._report.warning(one.node, f"is left out: there is no topic {one.topic!r}")
                continue
            if not any(rule.name.casefold() == DEFAULT_RULE.casefold() for rule in rules):
                # A deployment creates it with the subscription, and leaves it beside the others.
                if rules:
                    self._report.warning(
                        one.node, f"has the rule {DEFAULT_RULE} as well, which takes every message"
                    )
                rules.insert(0, RuleDefinition(DEFAULT_RULE, TrueFilter()))
            assert isinstance(one.definition, SubscriptionDefinition)
            yield replace(one, definition=replace(one.definition, rules=tuple(rules)))
        for path, rest in namespace.rules.items():
            for rule, node in rest:
                self._report.warning(
                    node, f"the rule {rule.name!r} is left out: there is no subscription {path!r}"
                )

    # --- resources ------------------------------------------------------------------------------

    def _resources(self, node: Node | None, above_type: str, above_name: str) -> None:
        if node is None:
            return
        # Newer templates name their resources: a mapping instead of a list.
        found = node.value.values() if isinstance(node.value, dict) else items(node, self._report)
        for resource in found:
            members = mapping(resource, self._report)
            for _ in self._copies(members.get("copy")):
                self._named_resource(resource, members, above_type, above_name)

    def _copies(self, loop: Node | None) -> Iterator[None]:
        """Yields for each copy of a resource, while `copyIndex()` is the number of that copy."""
        if loop is None:
            yield
            return
        members = mapping(loop, self._report)
        count = self._value(members.get("count"))
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= COPIES_MAX:
            self._report.warning(
                loop, f"is left out: a number from 0 to {COPIES_MAX} is expected as its count"
            )
            return
        name = str(self._value(members.get("name")) or "")
        for number in range(count):
            with self._expressions.copy_of(name, number):
                yield

    def _named_resource(
        self, resource: Node, members: Mapping[str, Node], above_type: str, above_name: str
    ) -> None:
        kind = str(self._value(members.get("type")) or "")
        name = str(self._value(members.get("name")) or "")
        if not kind or not name:
            self._report.warning(resource, "is left out: its type or its name is not known")
            return
        kind = f"{above_type}/{kind}" if above_type and "/" not in kind else kind
        if above_name and not name.casefold().startswith(f"{above_name}/".casefold()):
            name = f"{above_name}/{name}"
        if "condition" in members and self._value(members["condition"]) is False:
            return
        self._resource(resource, members, kind, name)
        self._resources(members.get("resources"), kind, name)

    def _nested_template(self, node: Node, members: Mapping[str, Node]) -> None:
        """Reads the template in a deployment. It has the parameters and variables of the template around it, unless it
        says otherwise."""
        properties = mapping(members.get("properties"), self._report)
        template = mapping(properties.get("template"), self._report)
        options = mapping(properties.get("expressionEvaluationOptions"), self._report)
        if str(self._value(options.get("scope"))).casefold() == "inner" or not template:
            self._report.warning(node, "is left out: it has parameters of its own, or a link")
            return
        self._resources(template.get("resources"), "", "")

    def _resource(self, node: Node, members: Mapping[str, Node], kind: str, name: str) -> None:
        lowered = kind.casefold()
        segments = [segment.replace("~", "/") for segment in name.split("/")]
        if lowered == NAMESPACE:
            self._namespaces.setdefault(name.lower(), _Namespace())
            self._namespace(members)
        elif lowered == DEPLOYMENT:
            self._nested_template(node, members)
        elif lowered in _KEYS:
            self._report.warning(node, f"the rule {name!r} is left out: a template has no keys")
        elif lowered not in self._readers:
            self._report.warning(node, f"a resource of type {kind!r} is left out")
        elif len(segments) != lowered.count("/"):
            self._report.warning(
                node, f"is left out: {name!r} has not one name for each part of its type"
            )
        else:
            resolved = self._resolved(members.get("properties")) or Node({}, node.source, node.line)
            namespace = self._namespaces.setdefault(segments[0].lower(), _Namespace())
            self._readers[lowered](replace(resolved, line=node.line), namespace, segments[1:])

    def _namespace(self, members: Mapping[str, Node]) -> None:
        sku = mapping(members.get("sku"), self._report).get("name")
        if sku is not None and (tier := self._value(sku)) != "Premium":
            self._report.warning(
                sku, f"the tier {tier!r} is a setting of the broker: --tier {tier}"
            )
        for name, node in mapping(members.get("properties"), self._report).items():
            self._report.warning(node, f"{name} of a namespace is not carried over")

    def _queue(self, node: Node, namespace: _Namespace, names: list[str]) -> None:
        self._add(QueueDefinition(), names[0], node, namespace)

    def _topic(self, node: Node, namespace: _Namespace, names: list[str]) -> None:
        self._add(TopicDefinition(), names[0], node, namespace)

    def _add(self, base: _D, name: str, node: Node, namespace: _Namespace) -> None:
        if self._is_named(node, name, entity_name_error):
            definition, places = self._properties(base, node)
            namespace.entities.append(DeclaredEntity(name, definition, node, places))

    def _subscription(self, node: Node, namespace: _Namespace, names: list[str]) -> None:
        topic, name = names
        if self._is_named(node, name, subscription_name_error):
            definition, places = self._properties(SubscriptionDefinition(), node)
            path = subscription_path(topic, name)
            namespace.subscriptions[path.lower()] = DeclaredEntity(path, definition, node, places)

    def _rule(self, node: Node, namespace: _Namespace, names: list[str]) -> None:
        topic, subscription, name = names
        if not self._is_named(node, name, rule_name_error):
            return
        members = self._members(node, ["filterType", "sqlFilter", "correlationFilter", "action"])
        action = None
        if "action" in members and mapping(members["action"], self._report):
            action = self._sql(members["action"])
        rule = RuleDefinition(name, self._filter(members), SqlAction(action) if action else None)
        if wrong := self._wrong_rule(rule, self._limits):
            self._report.warning(node, f"the rule {name!r} is left out: {wrong}")
            return
        if isinstance(rule.filter, TrueFilter):  # no type of filter in a template means this
            self._report.warning(
                node, f"the rule {name!r} has no filter that can be read: it takes every message"
            )
        path = subscription_path(topic, subscription).lower()
        namespace.rules.setdefault(path, []).append((rule, node))

    def _filter(self, members: Mapping[str, Node]) -> Filter:
        kind = members.get("filterType")
        is_correlation = kind is not None and str(kind.value).casefold() == "correlationfilter"
        if "sqlFilter" in members and not is_correlation:
            expression = self._sql(members["sqlFilter"])
            return SqlFilter(expression) if expression else TrueFilter()
        if "correlationFilter" not in members:
            return TrueFilter()
        node = members["correlationFilter"]
        given = self._members(node, [*_CORRELATION, "Properties", "requiresPreprocessing"])
        texts = {
            _CORRELATION[name]: text(member, self._report)
            for name, member in given.items()
            if name in _CORRELATION
        }
        properties = scalars(given.get("Properties"), self._report)
        if not properties and not any(texts.values()):
            return TrueFilter()
        return CorrelationFilter(**texts, properties=properties)

    def _sql(self, node: Node) -> str | None:
        known = ["sqlExpression", "compatibilityLevel", "requiresPreprocessing"]
        return text(self._members(node, known).get("sqlExpression"), self._report)

    # --- values ---------------------------------------------------------------------------------

    def _is_named(self, node: Node, name: str, wrong: Callable[[str, Limits], str | None]) -> bool:
        reason = wrong(name, self._limits)
        if reason is not None:
            self._report.warning(node, f"is left out: {name!r} is not a valid name: {reason}")
        return reason is None

    def _properties(self, base: _D, node: Node) -> tuple[_D, Mapping[str, Node]]:
        known = {one.name.casefold(): one.name for one in PROPERTIES[type(base)]}
        given: dict[str, Node] = {}
        for written, member in mapping(node, self._report).items():
            if written.casefold() in known:
                given[known[written.casefold()]] = member
            elif written.casefold() not in _IGNORED or member.value not in (False, None):
                self._report.warning(member, f"{written} is not carried over")
        return read_properties(base, given, self._limits, self._report)

    def _members(self, node: Node, known: list[str]) -> Mapping[str, Node]:
        return known_members(node, known, self._report, self._report.warning, any_case=True)

    def _value(self, node: Node | None) -> object:
        """Returns the value of a node, or None after reporting that it cannot be evaluated."""
        if node is None:
            return None
        try:
            return self._expressions.value(node)
        except CannotEvaluate as error:
            self._report.warning(node, f"cannot be evaluated: {error}")
            return None

    def _resolved(self, node: Node | None) -> Node | None:
        """Returns a node whose expressions are replaced by their values. What cannot be evaluated is left out."""
        if node is None:
            return None
        if isinstance(node.value, dict):
            members = {name: self._resolved(member) for name, member in node.value.items()}
            return replace(
                node, value={name: one for name, one in members.items() if one is not None}
            )
        if isinstance(node.value, list):
            resolved = [self._resolved(item) for item in node.value]
            return replace(node, value=[item for item in resolved if item is not None])
        value = self._value(node)
        if value is None or not isinstance(value, bool | int | float | str):
            return None
        return replace(node, value=value)
