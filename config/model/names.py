"""What an entity may be called: the rules of the SDKs and the cloud, not the emulator's narrower ones.

Judges a name alone; whether it is taken is not asked here. Names compare without regard to case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.model.limits import Limits

DEFAULT_NAMESPACE = "sbemulatorns"
"""The one the official emulator knows; it answers on any host name."""

SUBSCRIPTIONS = "Subscriptions"
"""Between a topic and its subscription in a path, in the spelling that JavaScript's SDK expects."""

# The service allows letters, digits, periods, hyphens and underscores, and takes a few others all the
# same, such as MassTransit's tilde. These it refuses.
_FORBIDDEN = re.compile(r"""[@?#*\\\x00-\x20\x7f,;"'<>]""")
_FORBIDDEN_IN_ADDRESSES = re.compile(r"[@?#*\\\x00-\x1f\x7f]")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAMESPACE = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def subscription_path(topic: str, subscription: str) -> str:
    return f"{topic}/{SUBSCRIPTIONS}/{subscription}"


def wrong_entity_name(name: str, limits: Limits) -> str | None:
    """Say what is wrong with the name of a queue or topic; None if nothing is."""
    return _wrong(name, limits.entity_path_max_characters) or _wrong_path(name)


def wrong_address(name: str, limits: Limits) -> str | None:
    """Say what is wrong with the address of a queue that its first user creates.

    Spaces, commas and quotes are allowed: generic clients use them (go-amqp's own integration tests).
    """
    characters_max = limits.entity_path_max_characters
    return _wrong(name, characters_max, _FORBIDDEN_IN_ADDRESSES) or _wrong_path(name)


def _wrong_path(name: str) -> str | None:
    segments = name.split("/")
    if not all(segments):
        return "'/' may stand between other characters only"
    if any(segment.casefold() == SUBSCRIPTIONS.casefold() for segment in segments):
        return f"'{SUBSCRIPTIONS}' is reserved for the subscriptions of a topic"
    if name.startswith("$"):
        return "names that begin with '$' are reserved"
    return None


def wrong_subscription_name(name: str, limits: Limits) -> str | None:
    """Say what is wrong with the name of a subscription; None if nothing is."""
    return "'/' is not allowed" if "/" in name else _wrong(name, limits.name_max_characters)


wrong_rule_name = wrong_subscription_name


def wrong_namespace_name(name: str, limits: Limits) -> str | None:
    """A namespace is the first part of a host name, or a whole one."""
    if not _NAMESPACE.fullmatch(name):
        return "letters, digits, hyphens and dots are allowed, a letter or digit first and last"
    return _wrong(name, limits.name_max_characters)


def _wrong(name: str, characters_max: int, forbidden: re.Pattern[str] = _FORBIDDEN) -> str | None:
    if not name:
        return "a name may not be empty"
    if len(name) > characters_max:
        return f"{len(name)} characters are too many; at most {characters_max} are allowed"
    if found := forbidden.search(name):
        shown = f"'{found[0]}'" if found[0].isprintable() and found[0] != " " else "white space"
        return f"{shown} is not allowed"
    return None
