"""Writes and reads the authorization rules of an entity as XML.

Answers contain the keys: a client that reads them has the claim Manage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.core.contract.errors import ArgumentError
from config.model.authorization_keys import derived_secondary_key
from config.model.definitions import RIGHTS, AuthorizationRule
from protocol.http import atom

if TYPE_CHECKING:
    from broker.core.contract.effects import EntityView
    from config.model.limits import Limits


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def write(view: EntityView) -> str:
    """Returns all rules of an entity. Empty values are left out: the .NET SDK fails on an empty key, and then cannot
    list entities. The tests of the Go SDK compare the times with those they sent."""
    rules: tuple[AuthorizationRule, ...] = getattr(view.definition, "authorization_rules", ())
    inner = []
    for rule in rules:
        rights = "".join(
            f"<AccessRights>{right}</AccessRights>" for right in RIGHTS if right in rule.rights
        )
        inner.append(
            '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
            "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
            f"<Rights>{rights}</Rights>"
            f"{_element('CreatedTime', rule.created_time)}"
            f"{_element('ModifiedTime', rule.modified_time)}"
            f"{_element('KeyName', rule.name)}{_element('PrimaryKey', rule.primary_key)}"
            f"{_element('SecondaryKey', rule.secondary_key)}</AuthorizationRule>"
        )
    return f"<AuthorizationRules>{''.join(inner)}</AuthorizationRules>"


def _element(name: str, text: str) -> str:
    return atom.element(name, text) if text else ""


def read(rules: atom.Element, limits: Limits) -> tuple[AuthorizationRule, ...]:
    """Returns the rules in a description. Raises `ArgumentError`."""
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
    times = [(rule.text_of(which) or "").strip() for which in ("CreatedTime", "ModifiedTime")]
    for time in times:
        if time and not _TIME.fullmatch(time):
            raise ArgumentError(f"The rule '{name}' has a time that cannot be read: '{time[:50]}'.")
    secondary = rule.text_of("SecondaryKey") or derived_secondary_key(name, key)
    return AuthorizationRule(name, key, secondary, granted, *times)
