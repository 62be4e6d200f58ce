"""Reads our own form of the config file: everything that the administration API can set, in snake_case.

Names are those of the Python SDK (`lock_duration`, `max_delivery_count`), defaults those of Service Bus. An unknown name
is a mistake. `docker/entities.yaml` is an example with everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from config.files.node_values import (
    SETTINGS,
    items,
    known_members,
    mapping,
    required_text,
    scalars,
    text,
)
from config.files.properties import PROPERTIES, read_properties
from config.files.topology import DeclaredEntity, Topology, assemble
from config.model.authorization_keys import KEY_LENGTH, derived_secondary_key
from config.model.definitions import (
    CORRELATION_FIELDS,
    RIGHTS,
    AuthorizationRule,
    CorrelationFilter,
    EntityDefinition,
    FalseFilter,
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
    namespace_name_error,
    rule_name_error,
    subscription_name_error,
    subscription_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from config.files.document import Node
    from config.files.mistakes import ConfigReport
    from config.files.node_values import RuleCheck
    from config.model.limits import Limits

_D = TypeVar("_D", bound=EntityDefinition)

_NAMESPACE_MEMBERS = ["queues", "topics", "authorization_rules"]
TOP_LEVEL = [SETTINGS, "namespaces", *_NAMESPACE_MEMBERS]
_CORRELATION_ATTRIBUTES = [one.attribute for one in CORRELATION_FIELDS]
_FILTERS = ["sql_filter", "correlation_filter", "true_filter", "false_filter"]
_RIGHTS = {right.lower(): right for right in RIGHTS}


def read_yaml_form(
    root: Node, limits: Limits, report: ConfigReport, wrong_rule: RuleCheck
) -> Topology:
    """Returns the topology in a file. `root` is the whole file."""
    return _YamlForm(limits, report, wrong_rule).topology(root)


class _YamlForm:
    """One method for each level of the file."""

    def __init__(self, limits: Limits, report: ConfigReport, wrong_rule: RuleCheck) -> None:
        self._limits = limits
        self._report = report
        self._wrong_rule = wrong_rule

    def topology(self, root: Node) -> Topology:
        members = self._members(root, TOP_LEVEL)
        given = list(self._named(members.get("namespaces"), namespace_name_error))
        # Entities at the top level belong to the namespace that is used for any host name.
        top = {name: members[name] for name in _NAMESPACE_MEMBERS if name in members}
        if top or not given:
            given.insert(0, (DEFAULT_NAMESPACE, replace(root, value=top)))
        namespaces: dict[str, Mapping[str, EntityDefinition]] = {}
        authorization_rules: dict[str, Sequence[AuthorizationRule]] = {}
        for written, node in given:
            name = written.lower()
            if name in namespaces:
                self._report.mistake(node, f"there are two namespaces {name!r}")
            parts = self._members(node, _NAMESPACE_MEMBERS)
            namespaces[name] = self._namespace(parts)
            if rules := self._authorization_rules(parts.get("authorization_rules")):
                authorization_rules[name] = rules
        return Topology(namespaces, authorization_rules)

    def _namespace(self, members: Mapping[str, Node]) -> dict[str, EntityDefinition]:
        declared: list[DeclaredEntity] = []
        for name, node in self._named(members.get("queues"), entity_name_error):
            default = QueueDefinition(lock_duration_ms=self._limits.lock_duration_default_ms)
            queue, places, rest = self._properties(default, node, ["authorization_rules"])
            rules = self._authorization_rules(rest.get("authorization_rules"))
            declared.append(
                DeclaredEntity(name, replace(queue, authorization_rules=rules), node, places)
            )
        for name, node in self._named(members.get("topics"), entity_name_error):
            declared += self._topic(name, node)
        return assemble(declared, self._limits, self._report)

    def _topic(self, name: str, node: Node) -> Iterator[DeclaredEntity]:
        topic, places, rest = self._properties(
            TopicDefinition(), node, ["authorization_rules", "subscriptions"]
        )
        rules = self._authorization_rules(rest.get("authorization_rules"))
        yield DeclaredEntity(name, replace(topic, authorization_rules=rules), node, places)
        for subscription, its_node in self._named(
            rest.get("subscriptions"), subscription_name_error
        ):
            default = SubscriptionDefinition(lock_duration_ms=self._limits.lock_duration_default_ms)
            definition, its_places, its_rest = self._properties(default, its_node, ["rules"])
            if "rules" in its_rest and its_rest["rules"].value is not None:
                definition = replace(definition, rules=tuple(self._rules(its_rest["rules"])))
            path = subscription_path(name, subscription)
            yield DeclaredEntity(path, definition, its_node, its_places)

    def _rules(self, node: Node) -> Iterator[RuleDefinition]:
        for name, its_node in self._named(node, rule_name_error):
            members = self._members(
                its_node, [*_FILTERS, "parameters", "action", "action_parameters"]
            )
            action = required_text(members.get("action"), self._report)
            action_parameters = self._parameters(members, "action_parameters", "action")
            rule = RuleDefinition(
                name,
                self._filter(its_node, members),
                SqlAction(action, action_parameters) if action else None,
            )
            if wrong := self._wrong_rule(rule, self._limits):
                self._report.mistake(its_node, wrong)
            yield rule

    def _filter(self, node: Node, members: Mapping[str, Node]) -> Filter:
        given = [name for name in _FILTERS if name in members]
        if len(given) > 1:
            self._report.mistake(node, f"a rule has one filter, found {' and '.join(given)}")
        parameters = self._parameters(members, "parameters", "sql_filter")
        match given:
            case ["sql_filter", *_]:
                expression = required_text(members["sql_filter"], self._report)
                return SqlFilter(expression, parameters) if expression else TrueFilter()
            case ["correlation_filter", *_]:
                return self._correlation_filter(members["correlation_filter"])
            case ["false_filter", *_]:
                return FalseFilter()
            case _:
                return TrueFilter()

    def _correlation_filter(self, node: Node) -> Filter:
        members = self._members(node, [*_CORRELATION_ATTRIBUTES, "properties"])
        texts = {
            name: required_text(members[name], self._report)
            for name in _CORRELATION_ATTRIBUTES
            if name in members
        }
        properties = members.get("properties")
        if not texts and (properties is None or not properties.value):
            self._report.mistake(node, "expected at least one property to compare")
        return CorrelationFilter(**texts, properties=scalars(properties, self._report))

    def _parameters(
        self, members: Mapping[str, Node], name: str, needed_by: str
    ) -> Mapping[str, object]:
        if name in members and needed_by not in members:
            self._report.mistake(members[name], f"parameters are for {needed_by}; there is none")
        return scalars(members.get(name), self._report)

    def _authorization_rules(self, node: Node | None) -> tuple[AuthorizationRule, ...]:
        rules = []
        for name, rule in self._named(node, rule_name_error):
            members = self._members(rule, ["rights", "primary_key", "secondary_key"])
            given = members.get("primary_key")
            if given is None or given.value is None:
                self._report.mistake(rule, "primary_key is missing")
            primary_key = self._key(given) or ""
            secondary_key = self._key(members.get("secondary_key"))
            rules.append(
                AuthorizationRule(
                    name,
                    primary_key,
                    secondary_key or derived_secondary_key(name, primary_key),
                    self._rights(rule, members.get("rights")),
                )
            )
        return tuple(rules)

    def _key(self, node: Node | None) -> str | None:
        key = text(node, self._report)
        if node is not None and key and len(key.encode()) != KEY_LENGTH:
            self._report.warning(
                node,
                f"a key of {len(key.encode())} bytes; the .NET administration client lists no "
                f"queues where a key has not {KEY_LENGTH}: `openssl rand -base64 32` makes one",
            )
        return key

    def _rights(self, rule: Node, node: Node | None) -> frozenset[str]:
        rights = set()
        for item in items(node, self._report):
            right = _RIGHTS.get(str(item.value).lower())
            if right is None:
                self._report.mistake(
                    item, f"{item.kind} is not a right; expected Manage, Send or Listen"
                )
            else:
                rights.add(right)
        if not rights and (node is None or not node.value):
            self._report.mistake(
                node or rule, "rights is missing; expected some of Manage, Send, Listen"
            )
        # Manage includes Send and Listen: the cloud refuses Manage without the others.
        return frozenset(RIGHTS if "Manage" in rights else rights)

    # --- shared by all levels ---------------------------------------------------------------------

    def _properties(
        self, base: _D, node: Node, others: Sequence[str]
    ) -> tuple[_D, Mapping[str, Node], Mapping[str, Node]]:
        """Returns the definition, the nodes of its fields, and the other members."""
        names = {one.snake_name: one.name for one in PROPERTIES[type(base)]}
        members = self._members(node, [*names, *others])
        given = {names[name]: member for name, member in members.items() if name in names}
        definition, places = read_properties(base, given, self._limits, self._report)
        return definition, places, {name: members[name] for name in others if name in members}

    def _named(
        self, node: Node | None, wrong: Callable[[str, Limits], str | None]
    ) -> Iterator[tuple[str, Node]]:
        for name, member in mapping(node, self._report).items():
            if reason := wrong(name, self._limits):
                self._report.mistake(member, f"{name!r} is not a valid name: {reason}")
            yield name, member  # its content may have mistakes as well

    def _members(self, node: Node | None, known: Iterable[str]) -> Mapping[str, Node]:
        return known_members(node, known, self._report, self._report.mistake)
