"""Parses the path of a request: it names an entity, a rule, a list, or messages.

SDKs write paths in different ways (`Subscriptions` or `subscriptions`, with or without a slash at the end, `a/b` or
`a%2Fb`). Whether the resource exists is not checked here.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from config.model import names
from config.model.definitions import EntityKind

MESSAGES = "messages"


class NamespaceRoot(NamedTuple):
    """The root of the namespace."""


class SubQueueResource(NamedTuple):
    """A sub-queue or another part of an entity, which cannot be managed."""

    path: str


class NamespaceInfo(NamedTuple):
    """`$namespaceinfo`."""


class EntityList(NamedTuple):
    """All queues or all topics."""

    kind: EntityKind


class EntityResource(NamedTuple):
    """A queue or topic. The path does not say which."""

    path: str


class SubscriptionList(NamedTuple):
    """All subscriptions of a topic."""

    topic: str


class SubscriptionResource(NamedTuple):
    """One subscription."""

    topic: str
    name: str

    @property
    def path(self) -> str:
        """The path in the core."""
        return names.subscription_path(self.topic, self.name)


class RuleList(NamedTuple):
    """All rules of a subscription."""

    subscription: SubscriptionResource


class RuleResource(NamedTuple):
    """One rule."""

    subscription: SubscriptionResource
    name: str


class MessagesResource(NamedTuple):
    """The messages of an entity, to which new ones are sent."""

    path: str


class NextMessage(NamedTuple):
    """The next message of a queue, subscription or sub-queue."""

    path: str


class LockedMessageResource(NamedTuple):
    """A message with this lock."""

    path: str
    lock_token: bytes


ManagedResource = (
    NamespaceRoot
    | SubQueueResource
    | NamespaceInfo
    | EntityList
    | EntityResource
    | SubscriptionList
    | SubscriptionResource
    | RuleList
    | RuleResource
)
MessageResource = MessagesResource | NextMessage | LockedMessageResource


def entity_of(resource: ManagedResource | MessageResource) -> str:
    """Returns the path of the entity of a resource; empty for the namespace."""
    match resource:
        case NamespaceRoot() | NamespaceInfo() | EntityList():
            return ""
        case SubscriptionList():
            return resource.topic
        case RuleList() | RuleResource():
            return resource.subscription.path
        case _:
            return resource.path


_PARTS = {"$deadletterqueue", "$transfer", "$management"}
_LISTS = {
    "$resources/queues": EntityList(EntityKind.QUEUE),
    "$resources/topics": EntityList(EntityKind.TOPIC),
}


def parse(path: str, method: str) -> ManagedResource | MessageResource:
    """Returns the resource that a decoded path names."""
    segments = [segment for segment in path.split("/") if segment]
    if not segments:
        return NamespaceRoot()
    keywords = [segment.lower() for segment in segments]
    whole = "/".join(keywords)
    if whole in _LISTS:
        return _LISTS[whole]
    if whole == "$namespaceinfo":
        return NamespaceInfo()
    runtime = _runtime(segments, keywords, method)
    if runtime is not None:
        return runtime
    if _PARTS.intersection(keywords):
        return SubQueueResource("/".join(segments))
    return _managed(segments, keywords)


def _runtime(segments: list[str], keywords: list[str], method: str) -> MessageResource | None:
    """Returns a resource of the data plane. Its paths are also possible names of entities, so the method must match."""
    if method == "POST" and len(segments) > 1 and keywords[-1] == MESSAGES:
        return MessagesResource("/".join(segments[:-1]))
    if method in {"POST", "DELETE"} and len(segments) > 2 and keywords[-2:] == [MESSAGES, "head"]:
        return NextMessage("/".join(segments[:-2]))
    if method in {"POST", "PUT", "DELETE"} and len(segments) > 3 and keywords[-3] == MESSAGES:
        try:
            token = UUID(segments[-1])
        except ValueError:
            return None
        return LockedMessageResource("/".join(segments[:-3]), token.bytes)
    return None


def _managed(segments: list[str], keywords: list[str]) -> ManagedResource:
    """Parses from the right: the name of a topic may contain slashes, that of a subscription or rule may not."""
    match keywords:
        case [_, *_, "subscriptions", _, "rules", _]:
            topic = "/".join(segments[:-4])
            return RuleResource(SubscriptionResource(topic, segments[-3]), segments[-1])
        case [_, *_, "subscriptions", _, "rules"]:
            return RuleList(SubscriptionResource("/".join(segments[:-3]), segments[-2]))
        case [_, *_, "subscriptions", _]:
            return SubscriptionResource("/".join(segments[:-2]), segments[-1])
        case [_, *_, "subscriptions"]:
            return SubscriptionList("/".join(segments[:-1]))
        case _:
            return EntityResource("/".join(segments))
