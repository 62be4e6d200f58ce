"""Counts what happens to messages, for each queue.

Each queue has its own counts, which end with the queue. A turn gathers what to add. It is added
when the turn is durable, so that only durable changes are counted.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What happened to a message, or to a request about it."""

    ACCEPTED = "accepted"
    """Taken from a sender: sent, scheduled, or a duplicate that was then dropped."""
    DEDUPLICATED = "deduplicated"
    """Dropped, because its message id was seen before."""
    UNMATCHED = "unmatched"
    """Sent to a topic of which no subscription wanted it."""
    DELIVERED = "delivered"
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    DEFERRED = "deferred"
    RELEASED = "released"
    """Given back without a failed delivery: by its receiver, or because a session was closed."""
    LOCK_LOST = "lock_lost"
    """Given back with a failed delivery: the lock expired, or the connection broke."""
    EXPIRED = "expired"
    """Its time to live was over."""
    DEAD_LETTERED = "dead_lettered"
    FORWARDED = "forwarded"
    CANCELLED = "cancelled"
    """Scheduled, and deleted before its time."""
    DELETED = "deleted"
    """Deleted unread, by a request for it."""
    SEND_REFUSED = "send_refused"
    SETTLE_REFUSED = "settle_refused"
    ATTACH_REFUSED = "attach_refused"


class DeadLetterCause(StrEnum):
    """Why a message was dead-lettered. The reason in the message itself may be any text of a client."""

    APPLICATION = "application"
    """A receiver dead-lettered it."""
    MAX_DELIVERY_COUNT = "max_delivery_count_exceeded"
    TIME_TO_LIVE = "time_to_live_expired"
    FORWARD_HOPS = "max_forward_hops_exceeded"
    FORWARDING = "forwarding_failed"
    """The entity it was to go on to is gone, disabled, full, or does not take it."""
    NO_SESSION_ID = "session_id_missing"
    FILTER = "filter_failed"


Counted = Outcome | DeadLetterCause
Counts = dict[Counted, int]
"""How many messages by what happened; and of the dead letters among them, how many by cause."""
