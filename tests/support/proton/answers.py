"""The answers that a client can get: an outcome, a message, or none.

Defines the types and the AMQP codes. The caller decides what they mean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ANSWER_TIMEOUT_S = 30.0
"""A broker that runs answers much earlier."""

ACCEPTED, REJECTED, MODIFIED, DECLARED, TRANSACTIONAL = 0x24, 0x25, 0x27, 0x33, 0x34


class Refused(Exception):
    """The broker refused or detached a link. The text begins with the condition."""


class Unanswered(Exception):
    """The broker runs and does not answer in time."""


class Outcome(NamedTuple):
    """The outcome of a delivery."""

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
    """A message that was received, and its delivery, by which it is settled."""

    delivery: Any
    message: bytes
