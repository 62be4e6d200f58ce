"""Checks names of entities by the rules of the SDKs and the cloud, which allow more than the emulator.

Whether a name is in use is not checked here. Names are compared without regard to case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.model.limits import Limits

DEFAULT_NAMESPACE = "sbemulatorns"
"""The namespace of the official emulator. It is used for any host name."""

SUBSCRIPTIONS = "Subscriptions"
"""The segment between topic and subscription in a path, in the spelling that the JavaScript SDK expects."""

# The documentation of the service allows letters, digits, periods, hyphens and underscores. The service accepts a
# few others as well, such as MassTransit's tilde. It refuses these.
_FORBIDDEN = re.compile(r"""[@?#*\\\x00-\x20\x7f,;"'<>]""")
_FORBIDDEN_IN_ADDRESSES = re.compile(r"[@?#*\\\x00-\x1f\x7f]")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_SNAPSHOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NAMESPACE = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def subscription_path(topic: str, subscription: str) -> str:
    return f"{topic}/{SUBSCRIPTIONS}/{subscription}"


def entity_name_error(name: str, limits: Limits) -> str | None:
    """Returns what is wrong with the name of a queue or topic, or None."""
    return _wrong(name, limits.entity_path_max_characters) or _wrong_path(name)


def first_use_address_error(name: str, limits: Limits) -> str | None:
    """Returns what is wrong with the address of a queue that is created on first use, or None.

    Spaces, commas and quotes are allowed: generic clients use them (go-amqp's own integration tests).
    """
    characters_max = limits.entity_path_max_characters
    return _wrong(name, characters_max, _FORBIDDEN_IN_ADDRESSES) or _wrong_path(name)


def _wrong_path(name: str) -> str | None:
    segments = name.split("/")
    if not all(segments):
        return "'/' is allowed only between other characters"
    if any(segment.casefold() == SUBSCRIPTIONS.casefold() for segment in segments):
        return f"'{SUBSCRIPTIONS}' is reserved for the subscriptions of a topic"
    if name.startswith("$"):
        return "names that begin with '$' are reserved"
    return None


def subscription_name_error(name: str, limits: Limits) -> str | None:
    """Returns what is wrong with the name of a subscription, or None."""
    return "'/' is not allowed" if "/" in name else _wrong(name, limits.name_max_characters)


rule_name_error = subscription_name_error


def namespace_name_error(name: str, limits: Limits) -> str | None:
    """Returns what is wrong with the name of a namespace, or None. It is the first label of a host name, or all of it."""
    if not _NAMESPACE.fullmatch(name):
        return "letters, digits, hyphens and dots are allowed, a letter or digit first and last"
    return _wrong(name, limits.name_max_characters)


def snapshot_name_error(name: str, limits: Limits) -> str | None:
    """Returns what is wrong with the name of a snapshot, or None."""
    if not _SNAPSHOT.fullmatch(name):
        return "letters, digits, hyphens, underscores and dots are allowed, a letter or digit first"
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
