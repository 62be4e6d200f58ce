"""Parses link addresses.

SDKs write the same entity differently: `queue`, `/queue`, `amqps://host:5672/queue`. Paths keep their case, because
the core ignores it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote

CBS_NODE = "$cbs"
MANAGEMENT_SUFFIX = "/$management"
DEAD_LETTER_SUFFIX = "/$deadletterqueue"
TRANSFER_SUFFIX = "/$transfer"


class NodeKind(Enum):
    """The kinds of nodes that a link can be attached to."""

    ENTITY = "entity"
    MANAGEMENT = "management"
    CBS = "cbs"


class Address(NamedTuple):
    """A node of this broker."""

    kind: NodeKind
    path: str
    """Entity path with the sub-queue suffix. Empty for `$cbs` and the management node of the namespace."""


def is_subscription(path: str) -> bool:
    """Whether a path is that of a subscription or one of its sub-queues."""
    return "/subscriptions/" in path.lower()


def is_receive_only(path: str) -> bool:
    """Whether a path is that of a subscription or a sub-queue, to which nothing can be sent."""
    return is_subscription(path) or path.lower().endswith(DEAD_LETTER_SUFFIX)


def split_sub_queue(path: str) -> tuple[str, str]:
    """Returns the entity of a path, and its queue: `main`, `dead_letter` or `transfer_dead_letter`."""
    if not path.lower().endswith(DEAD_LETTER_SUFFIX):
        return path, "main"
    entity = path[: -len(DEAD_LETTER_SUFFIX)]
    if entity.lower().endswith(TRANSFER_SUFFIX):
        return entity[: -len(TRANSFER_SUFFIX)], "transfer_dead_letter"
    return entity, "dead_letter"


def parse(text: str) -> Address:
    """Returns the node of a source or target address."""
    path = text
    scheme, separator, rest = path.partition("://")
    if separator and scheme.isalpha():
        path = rest.partition("/")[2]
    path = unquote(path).strip("/")
    lowered = path.lower()
    if lowered == CBS_NODE:
        return Address(NodeKind.CBS, "")
    if lowered.endswith(MANAGEMENT_SUFFIX):
        return Address(NodeKind.MANAGEMENT, path[: -len(MANAGEMENT_SUFFIX)])
    if lowered == MANAGEMENT_SUFFIX[1:]:
        return Address(NodeKind.MANAGEMENT, "")
    return Address(NodeKind.ENTITY, path)
