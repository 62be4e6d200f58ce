"""The keys of an entity as XML, and back.

Owns how one is written and what a request must say of it; who may use a key for what is decided
where it is presented. Answers show keys as they are: whoever reads them may manage the entity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.errors import ArgumentError
from config.entities import RIGHTS, AuthorizationRule
from protocol.http import atom

if TYPE_CHECKING:
    from broker.core.effects import EntityView
    from config.limits import Limits


def write(view: EntityView) -> str:
    """All of an entity's; it has no times for each, so they have its own."""
    rules: tuple[AuthorizationRule, ...] = getattr(view.definition, "authorization_rules", ())
    created, updated = atom.timestamp(view.created_time_ms), atom.timestamp(view.updated_time_ms)
    inner = []
    for rule in rules:
        rights = "".join(
            f"<AccessRights>{right}</AccessRights>" for right in RIGHTS if right in rule.rights
        )
        inner.append(
            '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
            "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
            f"<Rights>{rights}</Rights>"
            f"<CreatedTime>{created}</CreatedTime><ModifiedTime>{updated}</ModifiedTime>"
            f"{atom.element('KeyName', rule.name)}{atom.element('PrimaryKey', rule.primary_key)}"
            f"{atom.element('SecondaryKey', rule.secondary_key)}</AuthorizationRule>"
        )
    return f"<AuthorizationRules>{''.join(inner)}</AuthorizationRules>"


def read(rules: atom.Element, limits: Limits) -> tuple[AuthorizationRule, ...]:
    """What a description says; raises `ArgumentError`."""
    if len(rules.children) > limits.authorization_rules_per_entity_max:
        raise ArgumentError(
            f"An entity may have {limits.authorization_rules_per_entity_max} authorization rules."
        )
    return tuple(_read_one(rule) for rule in rules.children)


def _read_one(rule: atom.Element) -> AuthorizationRule:
    name, key = rule.text_of("KeyName"), rule.text_of("PrimaryKey")
    if not name or not key:
        raise ArgumentError("An authorization rule needs a KeyName and a PrimaryKey.")
    rights = rule.child("Rights")
    granted = frozenset(right.text for right in rights.children) if rights else frozenset()
    if not granted or not granted <= set(RIGHTS):
        raise ArgumentError(f"The rights of rule '{name}' must be among {', '.join(RIGHTS)}.")
    return AuthorizationRule(name, key, rule.text_of("SecondaryKey") or "", granted)
