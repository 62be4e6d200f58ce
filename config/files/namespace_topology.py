"""Reads the entities of one namespace that is created while the broker runs, in either form of the config file.

The content is plain data, or the text of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.files import emulator_reader, yaml_reader
from config.files.document import node_of, parse_text
from config.files.mistakes import ConfigError, ConfigReport, Mistake
from config.files.node_values import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from config.files.document import Node
    from config.files.node_values import RuleCheck
    from config.files.topology import Topology
    from config.model.definitions import AuthorizationRule, EntityDefinition
    from config.model.limits import Limits

SOURCE = "topology"
NAMESPACES = "namespaces"


class NamespaceTopology(NamedTuple):
    """The entities of a namespace by path, a topic before its subscriptions, and the rules of the namespace."""

    entities: Mapping[str, EntityDefinition]
    authorization_rules: Sequence[AuthorizationRule] = ()
    warnings: Sequence[Mistake] = ()


def read_namespace_topology(
    content: object, limits: Limits, wrong_rule: RuleCheck
) -> NamespaceTopology:
    """Returns the topology in a text or in plain data. Raises `ConfigError` with every mistake."""
    report = ConfigReport()
    try:
        root = (
            parse_text(content, SOURCE, report)
            if isinstance(content, str)
            else node_of(content, SOURCE)
        )
        topology = _read(root, limits, report, wrong_rule)
    except RecursionError as error:
        raise ConfigError([Mistake(SOURCE, None, "", "is nested too deeply")]) from error
    report.raise_if_wrong()
    name, entities = next(iter(topology.namespaces.items()))
    queues_and_topics = sum("/Subscriptions/" not in path for path in entities)
    if queues_and_topics > limits.entities_per_namespace_max:
        most = limits.entities_per_namespace_max
        report.mistake(root, f"{queues_and_topics} queues and topics are too many; at most {most}")
        report.raise_if_wrong()
    rules = topology.authorization_rules.get(name, ())
    return NamespaceTopology(entities, rules, tuple(report.warnings))


def _read(root: Node, limits: Limits, report: ConfigReport, wrong_rule: RuleCheck) -> Topology:
    members = root.value if isinstance(root.value, dict) else {}
    if any(name.casefold() == emulator_reader.ROOT.casefold() for name in members):
        topology = emulator_reader.read_emulator_form(root, limits, report, wrong_rule)
        if len(topology.namespaces) > 1:
            report.mistake(root, "expected one namespace, which is the one that is created")
        return topology
    for name in (NAMESPACES, SETTINGS):
        if name in members:
            report.mistake(members[name], f"a namespace has no {name}")
    return yaml_reader.read_yaml_form(root, limits, report, wrong_rule)
