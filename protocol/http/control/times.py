"""Times and durations in the JSON of the control API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from protocol.http.control import control_errors

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_time(milliseconds: int) -> str | None:
    """Returns a time as text, such as 2026-02-03T04:05:06.789Z. 0 is None: not set. So is a time after the year
    9999, which stands for never."""
    if not milliseconds:
        return None
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def read_time(field: str, text: str) -> int:
    """Returns the milliseconds since 1970 of a time in ISO 8601. A time without a zone is UTC. Raises `ControlError`."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise control_errors.bad_field(
            field, f"The field '{field}' must be a time such as 2026-02-03T04:05:06Z."
        ) from None
