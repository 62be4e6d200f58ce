"""The entities, clients and messages of the runs. Each message can be identified.

A body is plain text with the fields that the core reads, so that no AMQP codec is needed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from broker.core.messages.identifiers import MessageIds, lock_tokens
from broker.core.namespace import Namespace
from config.model.definitions import (
    CorrelationFilter,
    QueueDefinition,
    RuleDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import Limits
from tests.support.core_dialogue import PlainReader, message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Self

    from broker.core.contract.effects import Effect
    from broker.core.contract.message import Message
    from config.model.definitions import EntityDefinition

START_MS = 1_700_000_000_000
LOCK_MS = 10_000
WINDOW_MS = 30_000
LIVE_MS = 20_000
LARGEST_KILOBYTES = 400

LIMITS = Limits(
    transaction_timeout_ms=40_000,
    transaction_max_operations=4,
    transactions_per_connection_max=2,
    delete_max_messages=5,
    receive_deferred_max_messages=5,
)

_DEFINITIONS: Mapping[str, EntityDefinition] = {
    "plain": QueueDefinition(lock_duration_ms=LOCK_MS, max_delivery_count=3),
    "short": QueueDefinition(
        lock_duration_ms=LOCK_MS,
        max_delivery_count=2,
        default_time_to_live_ms=LIVE_MS,
        dead_lettering_on_expiration=True,
        max_size_megabytes=1,
    ),
    "unique": QueueDefinition(
        lock_duration_ms=LOCK_MS,
        max_delivery_count=2,
        requires_duplicate_detection=True,
        duplicate_window_ms=WINDOW_MS,
    ),
    "grouped": QueueDefinition(
        lock_duration_ms=LOCK_MS, max_delivery_count=3, requires_session=True, max_size_megabytes=1
    ),
    "fading": QueueDefinition(
        lock_duration_ms=LOCK_MS,
        max_delivery_count=2,
        requires_session=True,
        default_time_to_live_ms=LIVE_MS,
        dead_lettering_on_expiration=True,
        requires_duplicate_detection=True,
        duplicate_window_ms=WINDOW_MS,
    ),
    # --- forwarding: every destination has one source, so that the order over there is certain
    "onward": QueueDefinition(
        lock_duration_ms=LOCK_MS, forward_to="plain", forward_dead_letters_to="morgue"
    ),
    "morgue": QueueDefinition(lock_duration_ms=LOCK_MS, max_delivery_count=2),
    "here": QueueDefinition(lock_duration_ms=LOCK_MS, forward_to="there"),
    "there": QueueDefinition(lock_duration_ms=LOCK_MS, forward_to="here"),
    "mirror": QueueDefinition(
        lock_duration_ms=LOCK_MS,
        max_delivery_count=2,
        forward_to="mirror",
        forward_dead_letters_to="mirror",
    ),
    "gathering": QueueDefinition(
        lock_duration_ms=LOCK_MS,
        max_delivery_count=2,
        requires_session=True,
        forward_to="gathered",
        forward_dead_letters_to="gathering",
    ),
    "gathered": QueueDefinition(lock_duration_ms=LOCK_MS, max_delivery_count=2),
    "sorting": QueueDefinition(lock_duration_ms=LOCK_MS, forward_to="fading"),
    # --- a topic
    "feeder": QueueDefinition(lock_duration_ms=LOCK_MS, forward_to="news"),
    "news": TopicDefinition(default_time_to_live_ms=4 * LIVE_MS),
    "news/Subscriptions/all": SubscriptionDefinition(
        lock_duration_ms=LOCK_MS, max_delivery_count=2
    ),
    "news/Subscriptions/red": SubscriptionDefinition(
        lock_duration_ms=LOCK_MS,
        max_delivery_count=2,
        default_time_to_live_ms=LIVE_MS,
        dead_lettering_on_expiration=True,
        rules=(RuleDefinition("red", CorrelationFilter(label="red")),),
    ),
    "news/Subscriptions/grouped": SubscriptionDefinition(
        lock_duration_ms=LOCK_MS, max_delivery_count=2, requires_session=True
    ),
}

ENTITIES: Mapping[str, EntityDefinition] = {
    path: definition
    if isinstance(definition, SubscriptionDefinition)
    else replace(definition, max_message_size_kilobytes=LARGEST_KILOBYTES)
    for path, definition in _DEFINITIONS.items()
}

SEND_VIA = ("plain", "grouped")
"""Where senders send to one entity by way of another."""

FOCUSES: tuple[tuple[str, ...], ...] = (
    ("plain",),
    ("short",),
    ("unique",),
    ("grouped",),
    ("grouped",),
    ("fading",),
    ("onward", "plain", "morgue"),
    ("here", "there"),
    ("mirror",),
    ("gathering", "gathered"),
    ("sorting", "fading"),
    (
        "news",
        "news/Subscriptions/all",
        "news/Subscriptions/red",
        "news/Subscriptions/grouped",
    ),
    (
        "news",
        "feeder",
        "news/Subscriptions/all",
        "news/Subscriptions/red",
    ),
    SEND_VIA,
    SEND_VIA,
)
"""Entities that one run plays with: few, so that much happens to each."""

SESSIONS = ("", "a", "A", "b")
MESSAGE_IDS = (None, "x", "y")
LABELS = (None, "red")


class ModelClient:
    """A peer with a name. Keeps its effects and passes them to an observer."""

    def __init__(
        self, name: str, told: Callable[[ModelClient, Effect], None] | None = None
    ) -> None:
        self.name = name
        self._told = told

    def receive(self, effect: Effect) -> None:
        """Takes an effect that is durable."""
        if self._told is not None:
            self._told(self, effect)

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memory: dict[int, Any]) -> Self:
        return self


def new_message(
    mark: str,
    *,
    session_id: str | None = None,
    message_id: str | None = None,
    label: str | None = None,
    time_to_live_ms: int | None = None,
    scheduled_for_ms: int = 0,
    size: int | None = None,
) -> Message:
    """A message as a sender's link would build it; its size may be pretended."""
    built = message(
        mark,
        session=session_id,
        message_id=message_id,
        time_to_live_ms=time_to_live_ms,
        at_ms=scheduled_for_ms,
        **({} if label is None else {"label": label}),
    )
    if size is not None:
        built.size = size
    return built


def fields_of(body: bytes) -> tuple[str, str | None, str | None, str | None]:
    """Mark, session id, message id and label."""
    fields = PlainReader.fields(body)
    mark = body.partition(b";")[0].decode()
    return mark, fields.get("session"), fields.get("id"), fields.get("label")


def mark_of(message: Message) -> str:
    """Returns the part of a body that identifies the message."""
    assert message.body is not None, "a message without its body was shown or delivered"
    return fields_of(message.body)[0]


def counted_tokens() -> Callable[[int], list[bytes]]:
    """Lock tokens that never repeat and are the same in every run."""
    numbers = count(1)
    return lock_tokens(
        lambda size: b"".join(next(numbers).to_bytes(16, "big") for _ in range(size // 16))
    )


def new_namespace(
    *,
    payload_budget_bytes: int | None = None,
    hold_locks: bool = False,
    new_lock_tokens: Callable[[int], list[bytes]] | None = None,
    ids: MessageIds | None = None,
) -> Namespace:
    """A real machine without entities."""
    return Namespace(
        "default",
        reader=PlainReader(),
        new_lock_tokens=new_lock_tokens or counted_tokens(),
        limits=LIMITS,
        ids=ids or MessageIds(),
        payload_budget_bytes=payload_budget_bytes,
        hold_locks_after_connection_loss=hold_locks,
    )
