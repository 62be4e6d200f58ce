"""The names of `sys.` properties: the public properties of the .NET message class.

A listed name that is not set on a message is null. Any other name is an error.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from config.model.ticks import TimeSpanTicks, ticks_of_span

if TYPE_CHECKING:
    from broker.core.contract.message import PropertyValue

SESSION_ID = "sessionid"
TIME_TO_LIVE = "timetolive"

SETTABLE: dict[str, type] = {
    "contenttype": str,
    "correlationid": str,
    "forcepersistence": bool,
    "label": str,
    "messageid": str,
    "partitionkey": str,
    "replyto": str,
    "replytosessionid": str,
    "scheduledenqueuetimeutc": datetime,
    SESSION_ID: str,
    TIME_TO_LIVE: timedelta,
    "to": str,
    "viapartitionkey": str,
}
"""The properties that a rule action may change, and their types."""

_SHORT = frozenset({"messageid", "partitionkey", "replytosessionid", SESSION_ID, "viapartitionkey"})
SHORT_MAX_CHARACTERS = 128

READ_ONLY = frozenset(
    {
        "deadlettersource",
        "deliverycount",
        "enqueuedsequencenumber",
        "enqueuedtimeutc",
        "expiresatutc",
        "lockeduntilutc",
        "locktoken",
        "sequencenumber",
        "size",
        "state",
    }
)

_NEWER_NAMES = {
    "enqueuedtime": "enqueuedtimeutc",
    "expiresat": "expiresatutc",
    "lockeduntil": "lockeduntilutc",
    "scheduledenqueuetime": "scheduledenqueuetimeutc",
    "subject": "label",
    "transactionpartitionkey": "viapartitionkey",
}
"""Current SDKs have renamed some. Both names are accepted."""

_CANONICAL = {**{name: name for name in (*SETTABLE, *READ_ONLY)}, **_NEWER_NAMES}


def canonical(name: str) -> str | None:
    """Returns the canonical lower-case name of a property, or None if there is none."""
    return _CANONICAL.get(name.lower())


def refusal(key: str, value: PropertyValue) -> str | None:
    """Returns why .NET refuses a value for a property, or None."""
    if key in _SHORT and isinstance(value, str) and len(value) > SHORT_MAX_CHARACTERS:
        return f"has at most {SHORT_MAX_CHARACTERS} characters"
    if isinstance(value, timedelta | TimeSpanTicks) and ticks_of_span(value) <= 0:
        return "must be positive"
    return None
