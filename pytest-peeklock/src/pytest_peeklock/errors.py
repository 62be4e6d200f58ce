"""What the client raises: a refusal with the broker's own sentence, a wait that timed out, a broker that is not there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_peeklock.answers import Condition, Seen

TIMED_OUT = 408


class PeeklockError(Exception):
    """The broker refused a request. Its text is the broker's sentence."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, such as 404."""
        self.code = code
        """A word for programs, such as `entity_not_found`."""
        self.message = message
        self.field = field
        """The field of the request that is wrong, if it is one."""
        self.details: Mapping[str, Any] = details or {}
        """What the answer has beside the error."""


class WaitTimedOut(PeeklockError, AssertionError):
    """The conditions of a wait did not hold in time. An assertion, because a test fails by it."""

    conditions: Sequence[Condition] = ()
    """What was waited for."""

    @property
    def seen(self) -> list[Seen]:
        """Returns what was seen last, in the order of the conditions."""
        found: list[Seen] = self.details.get("seen", [])
        return found

    def __str__(self) -> str:
        lines = [self.message]
        for condition, seen in zip(self.conditions, self.seen):
            holds = "holds" if seen["holds"] else f"does not hold, {seen['count']} seen"
            lines.append(f"  {json.dumps(condition)}: {holds}")
        return "\n".join(lines)


class BrokerNotReachable(Exception):
    """No broker answers at the address, or what answers there is no Peeklock."""


class BrokerNotStarted(Exception):
    """No broker could be found or started. The text says what was tried."""


def refusal(status: int, content: object) -> PeeklockError:
    """Returns the error for an answer of 400 and above. Raises `BrokerNotReachable` if it has another form."""
    try:
        details: dict[str, Any] = dict(content)  # type: ignore[call-overload]
        error = details.pop("error")
        code, message, field = error["code"], error["message"], error["field"]
    except (KeyError, TypeError, ValueError):
        raise BrokerNotReachable(
            f"What answers there is not the control API of Peeklock: it answered {status}."
        ) from None
    kind = WaitTimedOut if status == TIMED_OUT else PeeklockError
    return kind(status, code, message, field, details)
