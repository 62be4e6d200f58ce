"""All entities with which a broker starts, by namespace and path, and the checks across entities.

Checks the features of the tier, duplicate names, and forwarding to missing entities or in a circle. The values of a
single definition are checked where it is read; the core checks quotas and SQL.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from config.files.mistakes import did_you_mean
from config.model.definitions import (
    AuthorizationRule,
    EntityDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.names import SUBSCRIPTIONS
from config.model.tier_features import missing_feature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from config.files.document import Node
    from config.files.mistakes import ConfigReport
    from config.model.limits import Limits

    Tell = Callable[[Node, str], None]
    """Reports a finding, as a mistake or as a warning."""


@dataclass(frozen=True, slots=True)
class Topology:
    namespaces: Mapping[str, Mapping[str, EntityDefinition]] = field(default_factory=dict)
    """Definitions by the name of the namespace and the path. The first namespace is used for any host name, and
    there is always one. Names are in lower case. A topic comes before its subscriptions."""
    authorization_rules: Mapping[str, Sequence[AuthorizationRule]] = field(default_factory=dict)
    """Rules of whole namespaces. The rules of an entity are in its definition."""


@dataclass(frozen=True, slots=True)
class DeclaredEntity:
    """A definition and its position in the file."""

    path: str
    definition: EntityDefinition
    node: Node
    places: Mapping[str, Node]
    """The node of each given field."""

    @property
    def topic(self) -> str | None:
        """The path of the topic of a subscription; None for other entities."""
        if not isinstance(self.definition, SubscriptionDefinition):
            return None
        return self.path.rpartition(f"/{SUBSCRIPTIONS}/")[0]


def assemble(
    declared: Sequence[DeclaredEntity],
    limits: Limits,
    report: ConfigReport,
    *,
    missing_target: Tell | None = None,
) -> dict[str, EntityDefinition]:
    """Returns the entities of one namespace, and checks them together.

    `missing_target` is called for forwarding to an entity that is not declared. By default that is a mistake.
    """
    for one in declared:
        if missing := missing_feature(one.definition, limits):
            report.mistake(one.node, missing)
    by_path = _unique(declared, report)
    by_path = {
        key: _resolve_forwarding(one, by_path, report, missing_target or report.mistake)
        for key, one in by_path.items()
    }
    _warn_of_circles(by_path, report)
    return {one.path: one.definition for one in by_path.values()}


def _unique(declared: Sequence[DeclaredEntity], report: ConfigReport) -> dict[str, DeclaredEntity]:
    by_path: dict[str, DeclaredEntity] = {}
    for one in declared:
        first = by_path.setdefault(one.path.casefold(), one)
        if first is not one:
            report.mistake(
                one.node,
                f"the name {one.path!r} is taken in line {first.node.line}; "
                "case makes no difference, and queues and topics share their names",
            )
        if isinstance(one.definition, SubscriptionDefinition):
            rules = Counter(rule.name.casefold() for rule in one.definition.rules)
            for name in [name for name, count in rules.items() if count > 1]:
                report.mistake(one.node, f"two rules have the name {name!r}")
    return by_path


def _resolve_forwarding(
    one: DeclaredEntity,
    by_path: Mapping[str, DeclaredEntity],
    report: ConfigReport,
    missing_target: Tell,
) -> DeclaredEntity:
    """Returns the entity with its forwarding targets in the spelling of their declarations."""
    definition = one.definition
    if isinstance(definition, TopicDefinition):
        return one

    def target(field_name: str) -> str | None:
        return _target(one, field_name, by_path, report, missing_target)

    return replace(
        one,
        definition=replace(
            definition,
            forward_to=target("forward_to"),
            forward_dead_letters_to=target("forward_dead_letters_to"),
        ),
    )


def _target(
    one: DeclaredEntity,
    field_name: str,
    by_path: Mapping[str, DeclaredEntity],
    report: ConfigReport,
    missing_target: Tell,
) -> str | None:
    written: str | None = getattr(one.definition, field_name)
    if written is None:
        return None
    place = one.places[field_name]
    target = by_path.get(written.casefold())
    if target is one:
        report.warning(place, f"{one.path!r} forwards to itself: {_ENDS_AT_HOP_LIMIT}")
    elif target is None or target.topic is not None:
        known = [other.path for other in by_path.values() if other.topic is None]
        hint = did_you_mean(written, known)
        missing_target(place, f"there is no queue or topic {written!r} to forward to{hint}")
        return written
    return target.path


_ENDS_AT_HOP_LIMIT = "what is forwarded too often is dead-lettered"
"""Service Bus accepts forwarding in a circle, and so does the broker."""


def _warn_of_circles(by_path: Mapping[str, DeclaredEntity], report: ConfigReport) -> None:
    """Reports entities that forward in a circle."""
    onward: dict[str, set[str]] = {key: set() for key in by_path}
    for key, one in by_path.items():
        if isinstance(one.definition, TopicDefinition):
            continue
        if one.topic is not None and one.topic.casefold() in onward:
            onward[one.topic.casefold()].add(key)
        target = (one.definition.forward_to or "").casefold()
        if target in by_path and target != key:  # forwarding to itself has been reported
            onward[key].add(target)
    while True:
        try:
            TopologicalSorter(onward).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]  # targets come first in it, and one of them twice
            starts = [key for key in circle if "forward_to" in by_path[key].places]
            trail = " → ".join(by_path[key].path for key in circle)
            report.warning(
                by_path[starts[0]].places["forward_to"],
                f"forwarding goes in a circle: {trail}; {_ENDS_AT_HOP_LIMIT}",
            )
            onward[starts[0]].clear()  # then search for the next circle
        else:
            return
