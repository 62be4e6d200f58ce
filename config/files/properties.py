"""The properties of queues, topics and subscriptions: their names, fields and allowed values.

One table for all forms: `LockDuration` in the emulator's file is `lock_duration` in ours. Reads values into definitions;
`topology.py` checks the entities together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from config.model.definitions import (
    UNLIMITED_MS,
    EntityDefinition,
    EntityStatus,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.durations import finer_ticks_of, format_duration, parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from config.files.document import Node
    from config.files.mistakes import ConfigReport
    from config.model.limits import Limits

    Read = Callable[[Node, Limits], Any]
    Range = Callable[[Limits], tuple[int, int]]

_D = TypeVar("_D", bound=EntityDefinition)


# --- kinds of values: each returns the value, or raises ValueError with what is allowed -----------


class OutOfRange(ValueError):
    """A number is smaller or larger than allowed."""

    def __init__(self, allowed: str, value: int, lowest: int, highest: int) -> None:
        super().__init__(allowed)
        self.value = value
        self.lowest = lowest
        self.highest = highest


def _boolean(node: Node, _limits: Limits) -> bool:
    if not isinstance(node.value, bool):
        raise ValueError("true or false")
    return node.value


def _integer(bounds: Range) -> Read:
    def read(node: Node, limits: Limits) -> int:
        lowest, highest = bounds(limits)
        value = node.value
        allowed = f"a whole number from {lowest} to {highest}"
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(allowed)
        if not lowest <= value <= highest:
            raise OutOfRange(allowed, value, lowest, highest)
        return value

    return read


def _duration(bounds: Range) -> Read:
    def read(node: Node, limits: Limits) -> int:
        shortest_ms, longest_ms = bounds(limits)
        allowed = f"a duration of {format_duration(shortest_ms)} or longer"
        if longest_ms < UNLIMITED_MS:
            allowed = (
                f"a duration from {format_duration(shortest_ms)} to {format_duration(longest_ms)}"
            )
        try:
            value_ms = parse_duration_ms(node.value if isinstance(node.value, str) else "")
        except ValueError as error:
            raise ValueError(allowed) from error
        if not shortest_ms <= value_ms <= longest_ms:
            raise OutOfRange(allowed, value_ms, shortest_ms, longest_ms)
        return value_ms

    return read


def _text(node: Node, limits: Limits) -> str:
    longest = limits.user_metadata_max_characters
    if not isinstance(node.value, str) or len(node.value) > longest:
        raise ValueError(f"text of at most {longest} characters")
    return node.value


def _entity(node: Node, _limits: Limits) -> str | None:
    if not isinstance(node.value, str):
        raise ValueError("the name of a queue or topic")
    return node.value.strip("/") or None


def _status(node: Node, _limits: Limits) -> EntityStatus:
    for status in EntityStatus:
        if isinstance(node.value, str) and node.value.casefold() == status.value.casefold():
            return status
    raise ValueError(" or ".join(status.value for status in EntityStatus))


# --- the table ----------------------------------------------------------------------------------

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class ConfigProperty:
    name: str
    """The name in Service Bus."""
    field: str
    read: Read

    @property
    def is_duration(self) -> bool:
        """Whether the field is a number of milliseconds."""
        return self.field.endswith("_ms")

    @property
    def snake_name(self) -> str:
        """The name in our own form and in the Python SDK."""
        return _WORD.sub("_", self.name).lower()


def _property(name: str, read: Read, field: str | None = None) -> ConfigProperty:
    return ConfigProperty(name, field or _WORD.sub("_", name).lower(), read)


_TIME_TO_LIVE = _property(
    "DefaultMessageTimeToLive",
    _duration(lambda limits: (limits.time_to_live_min_ms, limits.time_to_live_max_ms)),
    "default_time_to_live_ms",
)
_OF_ALL = (
    _TIME_TO_LIVE,
    _property(
        "AutoDeleteOnIdle",
        _duration(lambda limits: (limits.auto_delete_on_idle_min_ms, UNLIMITED_MS)),
        "auto_delete_on_idle_ms",
    ),
    _property("Status", _status),
    _property("EnableBatchedOperations", _boolean),
    _property("UserMetadata", _text),
)
_OF_QUEUES_AND_TOPICS = (
    _property("RequiresDuplicateDetection", _boolean),
    _property(
        "DuplicateDetectionHistoryTimeWindow",
        _duration(lambda limits: (limits.duplicate_window_min_ms, limits.duplicate_window_max_ms)),
        "duplicate_window_ms",
    ),
    _property(
        "MaxSizeInMegabytes",
        _integer(lambda limits: (1, limits.entity_size_max_megabytes)),
        "max_size_megabytes",
    ),
    _property(
        "MaxMessageSizeInKilobytes",
        _integer(
            lambda limits: (limits.message_size_min_kilobytes, limits.message_max_bytes // 1024)
        ),
        "max_message_size_kilobytes",
    ),
    _property("EnablePartitioning", _boolean),
    _property("EnableExpress", _boolean),
    _property("SupportOrdering", _boolean),
)
_OF_QUEUES_AND_SUBSCRIPTIONS = (
    _property(
        "LockDuration",
        _duration(lambda limits: (limits.lock_duration_min_ms, limits.lock_duration_max_ms)),
        "lock_duration_ms",
    ),
    _property("MaxDeliveryCount", _integer(lambda limits: (1, limits.max_delivery_count_max))),
    _property("DeadLetteringOnMessageExpiration", _boolean, "dead_lettering_on_expiration"),
    _property("RequiresSession", _boolean),
    _property("ForwardTo", _entity),
    _property("ForwardDeadLetteredMessagesTo", _entity, "forward_dead_letters_to"),
)

PROPERTIES: Mapping[type, tuple[ConfigProperty, ...]] = {
    QueueDefinition: (*_OF_ALL, *_OF_QUEUES_AND_TOPICS, *_OF_QUEUES_AND_SUBSCRIPTIONS),
    TopicDefinition: (
        *_OF_ALL,
        *_OF_QUEUES_AND_TOPICS,
        _property("FilteringMessagesBeforePublishing", _boolean),
    ),
    SubscriptionDefinition: (
        *_OF_ALL,
        *_OF_QUEUES_AND_SUBSCRIPTIONS,
        _property(
            "DeadLetteringOnFilterEvaluationExceptions",
            _boolean,
            "dead_lettering_on_filter_errors",
        ),
    ),
}


def read_properties(
    base: _D, given: Mapping[str, Node], limits: Limits, report: ConfigReport
) -> tuple[_D, Mapping[str, Node]]:
    """Returns `base` with the given values, which have the names of Service Bus, and the node of each given field."""
    values: dict[str, Any] = {}
    finer: dict[str, int] = {}
    places: dict[str, Node] = {}
    for one in PROPERTIES[type(base)]:
        node = given.get(one.name)
        if node is None or node.value is None:
            continue
        try:
            values[one.field] = one.read(node, limits)
            places[one.field] = node
            note_finer_ticks(one, node.value, values, finer)
        except ValueError as allowed:
            report.mistake(node, f"{node.kind} is not allowed; expected {allowed}")
    return replace(base, finer_ticks=tuple(finer.items()), **values), places


def note_finer_ticks(
    one: ConfigProperty, given: object, values: Mapping[str, Any], finer: dict[str, int]
) -> None:
    """Records the part of a duration that is finer than milliseconds."""
    if one.is_duration and isinstance(given, str) and values[one.field] < UNLIMITED_MS:
        ticks = finer_ticks_of(given)
        if ticks:
            finer[one.field] = ticks


def written_properties(
    definition: EntityDefinition, base: EntityDefinition
) -> Iterator[tuple[ConfigProperty, bool | int | str]]:
    """Yields the properties in which a definition differs from `base`, with their values in a file."""
    finer = dict(definition.finer_ticks)
    for one in PROPERTIES[type(definition)]:
        value = getattr(definition, one.field)
        if value == getattr(base, one.field) and one.field not in finer:
            continue
        if isinstance(value, EntityStatus):
            value = value.value
        elif one.is_duration:
            value = format_duration(value, finer.get(one.field, 0))
        yield one, value


def all_properties(
    definition: EntityDefinition,
) -> Iterator[tuple[ConfigProperty, bool | int | str | None]]:
    """Yields all properties with their values in a file. None: not set, or without end."""
    finer = dict(definition.finer_ticks)
    for one in PROPERTIES[type(definition)]:
        value = getattr(definition, one.field)
        if isinstance(value, EntityStatus):
            value = value.value
        elif one.is_duration:
            is_endless = value >= UNLIMITED_MS
            value = None if is_endless else format_duration(value, finer.get(one.field, 0))
        yield one, value
