"""Writes queues, topics and subscriptions as XML descriptions.

One table for each kind lists the elements, in the order of the service. Answers always have all elements.
`config/files/properties.py` checks values, and `description_reader.py` reads requests by the same tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from config.files.properties import PROPERTIES
from config.model.definitions import (
    DEFAULT_MAX_SIZE_MEGABYTES,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.durations import format_duration
from protocol import addresses
from protocol.http import atom
from protocol.http.admin import authorization_rules_xml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract.effects import EntityView
    from config.model.definitions import EntityDefinition

COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"


class DescriptionContext(NamedTuple):
    """The values of a description that are not those of the entity."""

    host: str
    """The host of the request, for the addresses of forwarding targets."""
    api_version: str
    message_max_kilobytes: int
    partition_count: int = 1
    """The size of a partitioned entity is multiplied by it."""


Write = Callable[[Any, str, DescriptionContext], "str | None"]


class DefinitionElement(NamedTuple):
    """An element that is a field of the definition."""

    element: str
    read: Callable[[str], bool | int | str]
    """Returns the value as a config file has it."""
    write: Write
    """Takes a definition and the name of its field. Returns None to leave the element out."""
    since: str = ""
    """The first api-version that has the element."""


class ReadOnlyElement(NamedTuple):
    """An element that answers have, and that is ignored in requests."""

    element: str
    write: Callable[[EntityView, DescriptionContext], str]
    """Returns the text of the element."""
    since: str = ""


class NestedElement(NamedTuple):
    """An element with child elements, written as XML."""

    write: Callable[[EntityView, DescriptionContext], str]


DescriptionLine = DefinitionElement | ReadOnlyElement | NestedElement


# --- properties --------------------------------------------------------------------------------

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _read_boolean(text: str) -> bool | str:
    return _BOOLEANS.get(text.strip().lower(), text)


def _read_integer(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _read_forward(text: str) -> str:
    """Returns the path of a name or of a URL with any scheme and host."""
    return addresses.parse(text.strip()).path


def _write_forward(definition: Any, field: str, context: DescriptionContext) -> str | None:
    """Returns an address with the scheme of the request: the SDKs of .NET and Java send http or https."""
    path = getattr(definition, field)
    scheme = getattr(definition, f"{field}_scheme")
    return None if path is None else f"{scheme}://{context.host}/{path}"


def _write_duration(definition: Any, field: str, _: DescriptionContext) -> str:
    finer = dict(definition.finer_ticks)
    return format_duration(getattr(definition, field), finer.get(field, 0))


def _write_max_size(definition: Any, field: str, context: DescriptionContext) -> str:
    size = getattr(definition, field) or DEFAULT_MAX_SIZE_MEGABYTES
    return str(size * context.partition_count if definition.enable_partitioning else size)


def _write_value(write: Callable[[Any], str | None]) -> Write:
    return lambda definition, field, _: write(getattr(definition, field))


def _boolean(element: str) -> DefinitionElement:
    return DefinitionElement(element, _read_boolean, _write_value(lambda value: str(value).lower()))


def _integer(element: str) -> DefinitionElement:
    return DefinitionElement(element, _read_integer, _write_value(str))


def _duration(element: str) -> DefinitionElement:
    return DefinitionElement(element, str.strip, _write_duration)


def _forward(element: str) -> DefinitionElement:
    return DefinitionElement(element, _read_forward, _write_forward)


LOCK_DURATION = _duration("LockDuration")
MAX_SIZE = DefinitionElement("MaxSizeInMegabytes", _read_integer, _write_max_size)
DUPLICATE_DETECTION = _boolean("RequiresDuplicateDetection")
SESSION = _boolean("RequiresSession")
TIME_TO_LIVE = _duration("DefaultMessageTimeToLive")
DEAD_LETTER_EXPIRED = _boolean("DeadLetteringOnMessageExpiration")
DUPLICATE_WINDOW = _duration("DuplicateDetectionHistoryTimeWindow")
MAX_DELIVERY_COUNT = _integer("MaxDeliveryCount")
BATCHED = _boolean("EnableBatchedOperations")
STATUS = DefinitionElement("Status", str.strip, _write_value(lambda value: str(value.value)))
FORWARD_TO = _forward("ForwardTo")
FORWARD_DEAD_LETTERS = _forward("ForwardDeadLetteredMessagesTo")
USER_METADATA = DefinitionElement("UserMetadata", str, _write_value(lambda value: value))
ORDERING = _boolean("SupportOrdering")
IDLE = _duration("AutoDeleteOnIdle")
PARTITIONING = _boolean("EnablePartitioning")
EXPRESS = _boolean("EnableExpress")
MAX_MESSAGE_SIZE = DefinitionElement(
    "MaxMessageSizeInKilobytes",
    _read_integer,
    lambda definition, field, context: str(
        getattr(definition, field) or context.message_max_kilobytes
    ),
    since="2021-05",
)


# --- read-only elements ------------------------------------------------------------------------


def _counts(view: EntityView, _: DescriptionContext) -> str:
    """Returns the counts. The JavaScript SDK needs exactly this: one prefix, declared on this element."""
    details = {
        "ActiveMessageCount": view.active_count,
        "DeadLetterMessageCount": view.dead_letter_count,
        "ScheduledMessageCount": view.scheduled_count,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": view.transfer_dead_letter_count,
    }
    inner = "".join(f"<d2p1:{name}>{count}</d2p1:{name}>" for name, count in details.items())
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{inner}</CountDetails>'


def _message_count(view: EntityView, _: DescriptionContext) -> str:
    """Returns the number of all messages. Deferred messages have no count of their own."""
    return str(
        view.active_count
        + view.deferred_count
        + view.dead_letter_count
        + view.scheduled_count
        + view.transfer_dead_letter_count
    )


def _always(text: str) -> Callable[[EntityView, DescriptionContext], str]:
    return lambda _view, _context: text


SIZE = ReadOnlyElement("SizeInBytes", lambda view, _: str(view.size_bytes))
MESSAGE_COUNT = ReadOnlyElement("MessageCount", _message_count)
CREATED = ReadOnlyElement("CreatedAt", lambda view, _: atom.timestamp(view.created_time_ms))
UPDATED = ReadOnlyElement("UpdatedAt", lambda view, _: atom.timestamp(view.updated_time_ms))
ACCESSED = ReadOnlyElement("AccessedAt", lambda view, _: atom.timestamp(view.accessed_time_ms))
"""A queue or topic that was never used shows `0001-01-01T00:00:00Z`; a subscription shows when it
was created (recorded answers, and Go's test of `ListSubscriptionsRuntimeProperties`)."""
SUBSCRIPTION_ACCESSED = ReadOnlyElement(
    "AccessedAt",
    lambda view, _: atom.timestamp(view.accessed_time_ms or view.created_time_ms),
)
AVAILABILITY = ReadOnlyElement("EntityAvailabilityStatus", _always("Available"))
NOT_ANONYMOUS = ReadOnlyElement("IsAnonymousAccessible", _always("false"))
COUNT_DETAILS = NestedElement(_counts)
AUTHORIZATION_RULES = NestedElement(lambda view, _: authorization_rules_xml.write(view))


# --- the kinds -------------------------------------------------------------------------------

QUEUE: tuple[DescriptionLine, ...] = (
    LOCK_DURATION,
    MAX_SIZE,
    DUPLICATE_DETECTION,
    SESSION,
    TIME_TO_LIVE,
    DEAD_LETTER_EXPIRED,
    DUPLICATE_WINDOW,
    MAX_DELIVERY_COUNT,
    BATCHED,
    SIZE,
    MESSAGE_COUNT,
    NOT_ANONYMOUS,
    AUTHORIZATION_RULES,
    STATUS,
    FORWARD_TO,
    USER_METADATA,
    CREATED,
    UPDATED,
    ACCESSED,
    ORDERING,
    COUNT_DETAILS,
    IDLE,
    PARTITIONING,
    AVAILABILITY,
    FORWARD_DEAD_LETTERS,
    EXPRESS,
    MAX_MESSAGE_SIZE,
)

TOPIC: tuple[DescriptionLine, ...] = (
    TIME_TO_LIVE,
    MAX_SIZE,
    DUPLICATE_DETECTION,
    DUPLICATE_WINDOW,
    BATCHED,
    SIZE,
    _boolean("FilteringMessagesBeforePublishing"),
    NOT_ANONYMOUS,
    AUTHORIZATION_RULES,
    STATUS,
    USER_METADATA,
    CREATED,
    UPDATED,
    ACCESSED,
    ORDERING,
    COUNT_DETAILS,
    ReadOnlyElement("SubscriptionCount", lambda view, _: str(view.subscription_count)),
    ReadOnlyElement("SqlFilterCount", lambda view, _: str(view.sql_filter_count), since="2024-05"),
    ReadOnlyElement(
        "CorrelationFilterCount",
        lambda view, _: str(view.correlation_filter_count),
        since="2024-05",
    ),
    IDLE,
    PARTITIONING,
    AVAILABILITY,
    ReadOnlyElement("EnableSubscriptionPartitioning", _always("false")),
    EXPRESS,
    MAX_MESSAGE_SIZE,
)

SUBSCRIPTION: tuple[DescriptionLine, ...] = (
    LOCK_DURATION,
    SESSION,
    TIME_TO_LIVE,
    DEAD_LETTER_EXPIRED,
    _boolean("DeadLetteringOnFilterEvaluationExceptions"),
    MESSAGE_COUNT,
    MAX_DELIVERY_COUNT,
    BATCHED,
    STATUS,
    FORWARD_TO,
    USER_METADATA,
    CREATED,
    UPDATED,
    SUBSCRIPTION_ACCESSED,
    COUNT_DETAILS,
    FORWARD_DEAD_LETTERS,
    IDLE,
    AVAILABILITY,
)


class DescriptionKind(NamedTuple):
    """A kind of entity: the element of its description, its table, its definition."""

    element: str
    lines: tuple[DescriptionLine, ...]
    definition: type[QueueDefinition | TopicDefinition | SubscriptionDefinition]


DESCRIPTION_KINDS: Mapping[str, DescriptionKind] = {
    kind.element: kind
    for kind in (
        DescriptionKind("QueueDescription", QUEUE, QueueDefinition),
        DescriptionKind("TopicDescription", TOPIC, TopicDefinition),
        DescriptionKind("SubscriptionDescription", SUBSCRIPTION, SubscriptionDefinition),
    )
}
_KIND_OF: Mapping[type, DescriptionKind] = {
    kind.definition: kind for kind in DESCRIPTION_KINDS.values()
}

FIELDS: Mapping[type, Mapping[str, str]] = {
    definition: {one.name: one.field for one in properties}
    for definition, properties in PROPERTIES.items()
}
"""For each kind of definition, the field of each element."""

DECIDED_ONCE = (SESSION, DUPLICATE_DETECTION, PARTITIONING)
"""An update may repeat these elements or leave them out; the core refuses to change them."""


def kind_of(definition: EntityDefinition) -> DescriptionKind:
    """Returns the kind of an entity."""
    return _KIND_OF[type(definition)]


# --- out -------------------------------------------------------------------------------------


def write(view: EntityView, context: DescriptionContext) -> str:
    """Returns the description of an entity."""
    kind = kind_of(view.definition)
    fields = FIELDS[kind.definition]
    parts: list[str] = []
    for line in kind.lines:
        if isinstance(line, NestedElement):
            parts.append(line.write(view, context))
        elif line.since <= context.api_version:
            if isinstance(line, DefinitionElement):
                text = line.write(view.definition, fields[line.element], context)
            else:
                text = line.write(view, context)
            if text is not None:
                parts.append(atom.element(line.element, text))
    return atom.described(kind.element, "".join(parts))
