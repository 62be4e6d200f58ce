"""How many messages are stored as a whole: those of a batch, of a request to schedule, or of a transaction.

They are stored in one turn and one commit, and other clients wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import MessageSizeExceeded, QuotaExceeded

if TYPE_CHECKING:
    from config.model.limits import Limits

ATOMIC_COPIES_MAX = 100_000
"""How many copies on all subscriptions they may become."""


def check_count(what: str, count: int, limits: Limits) -> None:
    """Raises if there are more messages than a batch has."""
    if count > limits.batch_max_messages:
        raise MessageSizeExceeded(f"{what} has at most {limits.batch_max_messages} messages.")


def check_copies(what: str, copies: int) -> None:
    """Raises if messages would become too many copies."""
    if copies > ATOMIC_COPIES_MAX:
        raise QuotaExceeded(
            f"{what} is stored as a whole, with all copies for subscriptions, and makes at most "
            f"{ATOMIC_COPIES_MAX} messages; this would be {copies}."
        )
