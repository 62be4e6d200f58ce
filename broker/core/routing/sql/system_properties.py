"""The names of `sys.` properties: the public properties of the .NET message class.

A listed name that is not set on a message is null. Any other name is an error.
"""

from __future__ import annotations

from datetime import datetime, timedelta

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
    "sessionid": str,
    "timetolive": timedelta,
    "to": str,
    "viapartitionkey": str,
}
"""The properties that a rule action may change, and their types."""

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
