"""Every bound of the broker, named with its unit.

No rules: whoever meets a bound decides how to refuse. `RELAXED` protects the broker and nothing
else, so that a test is never stopped by a price list; `strict(tier)` gives Azure's own quotas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from config.model.choices import Choice
from config.model.definitions import (
    DEFAULT_LOCK_DURATION_MS,
    DEFAULT_MAX_SIZE_MEGABYTES,
    UNLIMITED_MS,
)

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS
INT32_MAX = 2_147_483_647
STANDARD_PARTITION_COUNT = 16
"""Partitions of a partitioned entity in the Standard tier; Premium partitions whole namespaces."""


class Tier(Choice):
    """What the namespace claims to be, and in strict mode is held to."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults are the relaxed values."""

    offers_more_than_plain_queues: bool = True
    """Topics, sessions, duplicate detection, forwarding, deletion when idle and transactions."""

    # --- entities ---------------------------------------------------------------------------
    entities_per_namespace_max: int = 100_000
    """Queues and topics together."""
    entity_path_max_characters: int = 260
    name_max_characters: int = 260
    """Of a namespace, subscription or rule."""
    subscriptions_per_topic_max: int = 10_000
    rules_per_subscription_max: int = 10_000
    sql_text_max_characters: int = 64 * KIBIBYTE
    """Of one filter or one action."""
    statements_per_action_max: int = 1_024
    authorization_rules_per_entity_max: int = 1_000
    user_metadata_max_characters: int = 1_024
    forward_hops_max: int = 4

    # --- entity properties ------------------------------------------------------------------
    lock_duration_min_ms: int = 5 * SECOND_MS
    lock_duration_max_ms: int = 5 * MINUTE_MS
    lock_duration_default_ms: int = DEFAULT_LOCK_DURATION_MS
    """Of an entity that says nothing about it; a setting."""
    max_delivery_count_max: int = INT32_MAX
    time_to_live_min_ms: int = 1 * SECOND_MS
    time_to_live_max_ms: int = UNLIMITED_MS
    duplicate_window_min_ms: int = 5 * SECOND_MS
    duplicate_window_max_ms: int = 7 * DAY_MS
    auto_delete_on_idle_min_ms: int = 5 * MINUTE_MS
    entity_size_max_megabytes: int = INT32_MAX
    partition_count: int = 1
    """How many times its size a partitioned entity holds, and shows."""
    entity_size_default_megabytes: int = INT32_MAX
    """Of an entity that says nothing about it: as much as the disk holds."""

    # --- messages ---------------------------------------------------------------------------
    message_max_bytes: int = 100 * MEBIBYTE
    """The most an entity may be set to take."""
    message_size_min_kilobytes: int = 1
    """The least an entity may be set to take."""
    message_default_kilobytes: int = 1024
    """What an entity takes when nothing is set, as the cloud's premium tier does."""
    message_default_allowance_bytes: int = 64 * KIBIBYTE
    """On top of that default, so that a body of just that size passes with its properties."""
    batch_max_bytes: int = 100 * MEBIBYTE
    batch_max_messages: int = 100_000
    message_id_max_characters: int = 128
    session_id_max_characters: int = 128
    session_state_max_bytes: int = 100 * MEBIBYTE
    session_states_per_entity_max: int = 1_000_000
    session_states_max_bytes: int = 128 * MEBIBYTE
    """Of all entities of a namespace together: they are in memory."""

    # --- requests ---------------------------------------------------------------------------
    peek_max_messages: int = 10_000
    receive_deferred_max_messages: int = 10_000
    receive_deferred_max_bytes: int = 32 * MEBIBYTE
    """In one answer, which is in memory as a whole; one message alone may be larger."""
    delete_max_messages: int = 4_000
    list_max_entities: int = 1_000
    http_body_max_bytes: int = 101 * MEBIBYTE
    """A message over the REST data plane, with some room for its properties."""

    # --- connections ------------------------------------------------------------------------
    connections_max: int = 10_000
    links_per_connection_max: int = 5_000
    receivers_per_entity_max: int = 10_000
    frame_max_bytes: int = 64 * KIBIBYTE
    handshake_timeout_ms: int = 30 * SECOND_MS
    """From the first byte of a connection to its `open`."""
    authorization_timeout_ms: int = 60 * SECOND_MS
    """How long an open connection may stay without a token, in strict authorization. A connection that
    authenticated with SASL PLAIN needs none."""

    # --- memory -----------------------------------------------------------------------------
    held_per_connection_max_bytes: int = 128 * MEBIBYTE
    """How much memory one AMQP connection may make the broker hold: sessions, links and messages of which some
    transfers have arrived. Beyond it the connection is closed. Complete messages, locks and the write buffer of the
    socket are not counted here."""
    held_max_bytes: int = 160 * MEBIBYTE
    """The same for all connections together. Beyond it the connection that holds most is closed."""
    held_without_token_per_connection_max_bytes: int = 512 * KIBIBYTE
    """The limit of one connection in strict authorization until its token is accepted."""
    held_without_token_max_bytes: int = 32 * MEBIBYTE
    """The limit of all connections that have no token yet, together."""
    unread_max_bytes: int = 96 * MEBIBYTE
    """What all clients together may leave unread of what was written to them. Beyond it those
    are cut off that have stopped reading, the one that left most first."""
    sender_credit_window: int = 5_000
    """Messages a sending link may have on the wire; granted anew when half is used."""
    sender_bytes_in_flight_max: int = 64 * MEBIBYTE
    """Bytes read from all AMQP connections together and not yet committed. Beyond it, each connection that sends
    pauses until the next commit."""

    # --- transactions -----------------------------------------------------------------------
    transaction_max_operations: int = 10_000
    transaction_max_bytes: int = 128 * MEBIBYTE
    transaction_timeout_ms: int = 2 * MINUTE_MS
    transactions_per_connection_max: int = 1_000
    transactions_without_token_max: int = 10
    """That a connection may declare before its token, in strict authorization."""
    transactions_max_bytes: int = 128 * MEBIBYTE
    """What all open transactions of a namespace hold together; more is refused as busy."""
    transactions_reserve_bytes: int = 32 * MEBIBYTE
    """On top of that, for connections whose transactions are small."""
    transactions_small_max_bytes: int = 1 * MEBIBYTE
    """Of one connection, to be served from that reserve."""


RELAXED = Limits()

STRICT = Limits(
    entities_per_namespace_max=10_000,
    name_max_characters=50,
    subscriptions_per_topic_max=2_000,
    rules_per_subscription_max=2_000,
    sql_text_max_characters=1_024,
    statements_per_action_max=32,
    authorization_rules_per_entity_max=12,
    duplicate_window_min_ms=20 * SECOND_MS,
    entity_size_max_megabytes=80 * 1024,
    entity_size_default_megabytes=DEFAULT_MAX_SIZE_MEGABYTES,
    message_size_min_kilobytes=1024,
    message_default_allowance_bytes=0,
    batch_max_bytes=1 * MEBIBYTE,
    batch_max_messages=4_500,
    peek_max_messages=250,
    connections_max=5_000,
    receivers_per_entity_max=5_000,
    sender_credit_window=1_000,
    transaction_max_operations=100,
)
"""Azure's quotas, in the Premium tier."""

_STANDARD = replace(
    STRICT,
    entity_size_max_megabytes=5 * 1024,
    partition_count=STANDARD_PARTITION_COUNT,
    message_max_bytes=256 * KIBIBYTE,
    message_size_min_kilobytes=1,
    message_default_kilobytes=256,
    batch_max_bytes=256 * KIBIBYTE,
    session_state_max_bytes=256 * KIBIBYTE,
    delete_max_messages=500,
)

_STRICT_BY_TIER = {
    Tier.PREMIUM: STRICT,
    Tier.STANDARD: _STANDARD,
    Tier.BASIC: replace(
        _STANDARD, time_to_live_max_ms=14 * DAY_MS, offers_more_than_plain_queues=False
    ),
}


def relaxed(tier: Tier) -> Limits:
    """What protects the broker, and no more than a tier can do."""
    return replace(
        RELAXED,
        offers_more_than_plain_queues=tier is not Tier.BASIC,
        partition_count=1 if tier is Tier.PREMIUM else STANDARD_PARTITION_COUNT,
    )


def strict(tier: Tier) -> Limits:
    """Azure's quotas in a tier."""
    return _STRICT_BY_TIER[tier]
