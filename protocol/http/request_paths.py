"""Which thing a request's path names: an entity, a rule, a list, or messages.

Every SDK spells paths in its own way (`Subscriptions` or `subscriptions`, a slash at the end or
none, `a/b` or `a%2Fb`); the spelling ends here. Whether the thing exists is not known here.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from config.model import names
from config.model.definitions import EntityKind

MESSAGES = "messages"


class NamespaceRoot(NamedTuple):
    """The namespace's own address."""


class SubQueueResource(NamedTuple):
    """A sub-queue or another part of an entity, which nobody manages by itself."""

    path: str


class NamespaceInfo(NamedTuple):
    """`$namespaceinfo`."""


class EntityList(NamedTuple):
    """All queues or all topics."""

    kind: EntityKind


class EntityResource(NamedTuple):
    """A queue or topic: which of the two, the path does not tell."""

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
        """As the core addresses it."""
        return names.subscription_path(self.topic, self.name)


class RuleList(NamedTuple):
    """All rules of a subscription."""

    subscription: SubscriptionResource


class RuleResource(NamedTuple):
    """One rule."""

    subscription: SubscriptionResource
    name: str


class MessagesResource(NamedTuple):
    """Where messages are sent to."""

    path: str


class NextMessage(NamedTuple):
    """The next message of a queue, subscription or sub-queue."""

    path: str


class LockedMessageResource(NamedTuple):
    """A message that was received under this lock."""

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
    """The path of the entity that a resource is or belongs to; empty for the namespace."""
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
    """What a decoded path names."""
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
    """The data plane's paths are also possible entity names: the verb has to fit as well."""
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
    """Read from the right: a topic's name may hold slashes, a subscription's or rule's may not."""
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
