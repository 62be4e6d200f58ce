"""Definitions of queues, topics, subscriptions and rules, with the defaults of Service Bus.

Frozen, valid data: files and requests are checked where they are read. Durations are milliseconds; `UNLIMITED_MS`
is what SDKs send for "never".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

UNLIMITED_MS = 922_337_203_685_477
"""TimeSpan.MaxValue: P10675199DT2H48M5.4775807S."""

DEFAULT_LOCK_DURATION_MS = 30_000
DEFAULT_MAX_DELIVERY_COUNT = 10
DEFAULT_DUPLICATE_WINDOW_MS = 600_000
DEFAULT_MAX_SIZE_MEGABYTES = 1024

RIGHTS = ("Manage", "Send", "Listen")
"""The rights of a key, in the order of the service."""


FinerTicks = tuple[tuple[str, int], ...]
"""By field, the part of a duration that is finer than milliseconds, in units of 100 ns. Answers show durations with
that precision, as those of Service Bus do. It is not used otherwise."""


class EntityStatus(Enum):
    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A named key and its rights."""

    name: str
    primary_key: str
    secondary_key: str = ""
    rights: frozenset[str] = frozenset(RIGHTS)
    created_time: str = ""
    modified_time: str = ""
    """Both as they were given; empty if they were not."""


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Matches a message if all fields that are set are equal to those of the message."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)

    def set_fields(self) -> Iterator[tuple[CorrelationField, str]]:
        """Yields the system properties that are compared, with their values."""
        for one in CORRELATION_FIELDS:
            value: str | None = getattr(self, one.attribute)
            if value is not None:
                yield one, value


class CorrelationField(NamedTuple):
    """The names of one system property that a correlation filter compares."""

    attribute: str
    """Of `CorrelationFilter`; the YAML form uses it, too."""
    element: str
    """In the XML of the administration API and in the emulator's Config.json."""
    amqp_key: str
    """In the map of the AMQP management operation `add-rule`."""

    @property
    def sql_name(self) -> str:
        """The property after `sys.` in SQL filters, which ignore case."""
        return self.element.lower()


CORRELATION_FIELDS = (
    CorrelationField("correlation_id", "CorrelationId", "correlation-id"),
    CorrelationField("message_id", "MessageId", "message-id"),
    CorrelationField("to", "To", "to"),
    CorrelationField("reply_to", "ReplyTo", "reply-to"),
    CorrelationField("label", "Label", "label"),
    CorrelationField("session_id", "SessionId", "session-id"),
    CorrelationField("reply_to_session_id", "ReplyToSessionId", "reply-to-session-id"),
    CorrelationField("content_type", "ContentType", "content-type"),
)
"""In the order of the described list that the AMQP operation `enumerate-rules` returns."""


class LongInteger(int):
    """An integer in a filter that was given with the type long. Answers have the same type, because clients
    compare it. For the comparison with messages, it is an integer like any other."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SqlFilter:
    expression: str
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Matches every message."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Matches no message."""


Filter = CorrelationFilter | SqlFilter | TrueFilter | FalseFilter


@dataclass(frozen=True, slots=True)
class SqlAction:
    expression: str
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleDefinition:
    name: str
    filter: Filter = TrueFilter()
    action: SqlAction | None = None
    created_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    lock_duration_ms: int = DEFAULT_LOCK_DURATION_MS
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    default_time_to_live_ms: int = UNLIMITED_MS
    dead_lettering_on_expiration: bool = False
    requires_session: bool = False
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = DEFAULT_DUPLICATE_WINDOW_MS
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    forward_to_scheme: str = "sb"
    forward_dead_letters_to_scheme: str = "sb"
    """The schemes of the addresses in answers of the administration API."""
    auto_delete_on_idle_ms: int = UNLIMITED_MS
    max_size_megabytes: int | None = None
    """None: answers show the default of the cloud, and strict quotas enforce it."""
    max_message_size_kilobytes: int | None = None
    """None: the default of the tier."""
    status: EntityStatus = EntityStatus.ACTIVE
    enable_batched_operations: bool = True
    enable_partitioning: bool = False
    enable_express: bool = False
    support_ordering: bool = True
    user_metadata: str | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    finer_ticks: FinerTicks = ()


@dataclass(frozen=True, slots=True)
class TopicDefinition:
    default_time_to_live_ms: int = UNLIMITED_MS
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = DEFAULT_DUPLICATE_WINDOW_MS
    auto_delete_on_idle_ms: int = UNLIMITED_MS
    max_size_megabytes: int | None = None
    max_message_size_kilobytes: int | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    enable_batched_operations: bool = True
    enable_partitioning: bool = False
    enable_express: bool = False
    support_ordering: bool = True
    filtering_messages_before_publishing: bool = False
    user_metadata: str | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    finer_ticks: FinerTicks = ()


@dataclass(frozen=True, slots=True)
class SubscriptionDefinition:
    lock_duration_ms: int = DEFAULT_LOCK_DURATION_MS
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    default_time_to_live_ms: int = UNLIMITED_MS
    dead_lettering_on_expiration: bool = False
    dead_lettering_on_filter_errors: bool = True
    requires_session: bool = False
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    forward_to_scheme: str = "sb"
    forward_dead_letters_to_scheme: str = "sb"
    """The schemes of the addresses in answers of the administration API."""
    auto_delete_on_idle_ms: int = UNLIMITED_MS
    status: EntityStatus = EntityStatus.ACTIVE
    enable_batched_operations: bool = True
    user_metadata: str | None = None
    rules: tuple[RuleDefinition, ...] = (RuleDefinition("$Default"),)
    finer_ticks: FinerTicks = ()


EntityDefinition = QueueDefinition | TopicDefinition | SubscriptionDefinition


class EntityKind(StrEnum):
    """The kinds of entities, as the store and log lines name them."""

    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


ENTITY_KINDS: Mapping[type, EntityKind] = {
    QueueDefinition: EntityKind.QUEUE,
    TopicDefinition: EntityKind.TOPIC,
    SubscriptionDefinition: EntityKind.SUBSCRIPTION,
}
