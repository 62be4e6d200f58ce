"""Counts what happens to messages, for each queue.

Each queue has its own counts, which end with the queue. A turn gathers what to add. It is added
when the turn is durable, so that only durable changes are counted.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What happened to a message, or to a request about it."""

    ACCEPTED = "accepted"
    """Accepted from a sender: sent, scheduled, or a duplicate that was dropped."""
    DEDUPLICATED = "deduplicated"
    """Dropped by duplicate detection."""
    UNMATCHED = "unmatched"
    """Sent to a topic without a matching subscription."""
    DELIVERED = "delivered"
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    DEFERRED = "deferred"
    RELEASED = "released"
    """Unlocked without a failed delivery: by its receiver, or because its session was closed."""
    LOCK_LOST = "lock_lost"
    """Unlocked with a failed delivery: the lock expired, or the connection was lost."""
    EXPIRED = "expired"
    """The time to live has ended."""
    DEAD_LETTERED = "dead_lettered"
    FORWARDED = "forwarded"
    CANCELLED = "cancelled"
    """Deleted while it was scheduled."""
    DELETED = "deleted"
    """Deleted by a request."""
    SEND_REFUSED = "send_refused"
    SETTLE_REFUSED = "settle_refused"
    ATTACH_REFUSED = "attach_refused"


class DeadLetterCause(StrEnum):
    """Why a message was dead-lettered. The reason in the message itself can be any text."""

    APPLICATION = "application"
    """A receiver dead-lettered it."""
    MAX_DELIVERY_COUNT = "max_delivery_count_exceeded"
    TIME_TO_LIVE = "time_to_live_expired"
    FORWARD_HOPS = "max_forward_hops_exceeded"
    FORWARDING = "forwarding_failed"
    """The destination is deleted, disabled, full, or does not accept the message."""
    NO_SESSION_ID = "session_id_missing"
    FILTER = "filter_failed"


Counted = Outcome | DeadLetterCause
Counts = dict[Counted, int]
"""Number of messages by outcome, and number of dead letters by cause."""
