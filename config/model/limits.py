"""All limits of the broker, named with their units.

Only values: the code that checks a limit refuses. `RELAXED` protects the broker only, so that tests are not stopped by
the quotas of a price list. `strict(tier)` has the quotas of Azure.
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
    """The tier of the namespace. With strict quotas it is enforced."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits. The defaults are the relaxed values."""

    offers_more_than_plain_queues: bool = True
    """Topics, sessions, duplicate detection, forwarding, deletion when idle and transactions."""

    # --- namespaces -------------------------------------------------------------------------
    namespaces_max: int = 1_000
    """Namespaces of the broker, declared or created while it runs."""
    snapshots_max: int = 1_000
    """Snapshots of all namespaces together."""
    snapshots_max_bytes: int = 4_096 * MEBIBYTE
    """The size of all snapshots together. Each message counts 512 bytes more than its size."""
    snapshots_in_memory_max_bytes: int = 512 * MEBIBYTE
    """The same for those that are not kept in a file."""

    # --- entities ---------------------------------------------------------------------------
    entities_per_namespace_max: int = 100_000
    """Queues and topics together."""
    entity_path_max_characters: int = 260
    name_max_characters: int = 260
    """Limit of the names of namespaces, subscriptions and rules."""
    subscriptions_per_topic_max: int = 10_000
    rules_per_subscription_max: int = 10_000
    sql_text_max_characters: int = 64 * KIBIBYTE
    """Limit of one filter or one action."""
    statements_per_action_max: int = 1_024
    authorization_rules_per_entity_max: int = 1_000
    user_metadata_max_characters: int = 1_024
    forward_hops_max: int = 4

    # --- entity properties ------------------------------------------------------------------
    lock_duration_min_ms: int = 5 * SECOND_MS
    lock_duration_max_ms: int = 5 * MINUTE_MS
    lock_duration_default_ms: int = DEFAULT_LOCK_DURATION_MS
    """Default for an entity without a lock duration; a setting."""
    max_delivery_count_max: int = INT32_MAX
    time_to_live_min_ms: int = 1 * SECOND_MS
    time_to_live_max_ms: int = UNLIMITED_MS
    duplicate_window_min_ms: int = 5 * SECOND_MS
    duplicate_window_max_ms: int = 7 * DAY_MS
    auto_delete_on_idle_min_ms: int = 5 * MINUTE_MS
    entity_size_max_megabytes: int = INT32_MAX
    partition_count: int = 1
    """The size of a partitioned entity is multiplied by it."""
    entity_size_default_megabytes: int = INT32_MAX
    """Limit for an entity without a size: effectively the size of the disk."""

    # --- messages ---------------------------------------------------------------------------
    message_max_bytes: int = 100 * MEBIBYTE
    """The largest allowed maximum message size of an entity."""
    message_size_min_kilobytes: int = 1
    """The smallest allowed maximum message size of an entity."""
    message_default_kilobytes: int = 1024
    """Maximum message size of an entity without one, as in the Premium tier of the cloud."""
    message_default_allowance_bytes: int = 64 * KIBIBYTE
    """Added to that default, so that a body of exactly that size is accepted with its properties."""
    batch_max_bytes: int = 100 * MEBIBYTE
    batch_max_messages: int = 100_000
    message_id_max_characters: int = 128
    session_id_max_characters: int = 128
    session_state_max_bytes: int = 100 * MEBIBYTE
    session_states_per_entity_max: int = 1_000_000
    session_states_max_bytes: int = 128 * MEBIBYTE
    """Limit of all entities of a namespace together, because session states are in memory."""

    # --- requests ---------------------------------------------------------------------------
    peek_max_messages: int = 10_000
    receive_deferred_max_messages: int = 10_000
    receive_deferred_max_bytes: int = 32 * MEBIBYTE
    """Limit of one answer, which is in memory as a whole. A single message may be larger."""
    delete_max_messages: int = 4_000
    list_max_entities: int = 1_000
    http_body_max_bytes: int = 101 * MEBIBYTE
    """Limit of a body in the REST data plane: the largest message and its properties."""

    # --- connections ------------------------------------------------------------------------
    connections_max: int = 10_000
    links_per_connection_max: int = 5_000
    receivers_per_entity_max: int = 10_000
    frame_max_bytes: int = 64 * KIBIBYTE
    handshake_timeout_ms: int = 30 * SECOND_MS
    """Time from the first byte of a connection to its `open` frame."""
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
    """Output that all clients together have not read. Beyond it, clients that have stopped reading are disconnected,
    the one with the most unread output first."""
    sender_credit_window: int = 5_000
    """Credit of a sending link. It is renewed when half of it is used."""
    sender_bytes_in_flight_max: int = 64 * MEBIBYTE
    """Bytes read from all AMQP connections together and not yet committed. Beyond it, each connection that sends
    pauses until the next commit."""

    frames_recorded_max_bytes: int = 8 * MEBIBYTE
    """The frames of one namespace that the control API records. Beyond it the oldest are dropped."""
    frames_unread_max_bytes: int = 4 * MEBIBYTE
    """Frames that one client of the control API has not read from a live view. Beyond it frames are dropped."""

    # --- transactions -----------------------------------------------------------------------
    transaction_max_operations: int = 10_000
    transaction_max_bytes: int = 128 * MEBIBYTE
    transaction_timeout_ms: int = 2 * MINUTE_MS
    transactions_per_connection_max: int = 1_000
    transactions_without_token_max: int = 10
    """Transactions that a connection may declare before its token, in strict authorization."""
    faults_per_namespace_max: int = 1_000
    """Fault rules of the control API."""
    transactions_max_bytes: int = 128 * MEBIBYTE
    """Memory of all open transactions of a namespace. More is refused as busy."""
    transactions_reserve_bytes: int = 32 * MEBIBYTE
    """Additional memory for connections with small transactions."""
    transactions_small_max_bytes: int = 1 * MEBIBYTE
    """Limit of the transactions of one connection that may use that reserve."""


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
"""The quotas of Azure in the Premium tier."""

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
    """Returns the relaxed limits with the features of a tier."""
    return replace(
        RELAXED,
        offers_more_than_plain_queues=tier is not Tier.BASIC,
        partition_count=1 if tier is Tier.PREMIUM else STANDARD_PARTITION_COUNT,
    )


def strict(tier: Tier) -> Limits:
    """Returns the quotas of Azure in a tier."""
    return _STRICT_BY_TIER[tier]
