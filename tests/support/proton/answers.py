"""What a client can get for an answer: an outcome, a message, or none.

It defines the types and AMQP's codes for them; the caller decides what they mean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ANSWER_TIMEOUT_S = 30.0
"""A broker that lives answers everything long before."""

ACCEPTED, REJECTED, MODIFIED, DECLARED, TRANSACTIONAL = 0x24, 0x25, 0x27, 0x33, 0x34


class Refused(Exception):
    """The broker ended a link, or would not have it; the text begins with the condition."""


class Unanswered(Exception):
    """The broker lives and says nothing."""


class Outcome(NamedTuple):
    """What the broker says about a delivery."""

    state: int
    fields: list[Any]
    condition: str | None
    """Why it was refused."""

    @property
    def is_accepted(self) -> bool:
        if self.state == TRANSACTIONAL:
            return len(self.fields) > 1 and self.fields[1].descriptor == ACCEPTED
        return self.state == ACCEPTED

    @property
    def is_refused(self) -> bool:
        return self.condition is not None


class Arrival(NamedTuple):
    """A message that was received, and the delivery to settle it by."""

    delivery: Any
    message: bytes
