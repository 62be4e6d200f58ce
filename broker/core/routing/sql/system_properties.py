"""The names behind `sys.`: the public properties of the .NET message class.

Owns which exist, under which names, and what a rule action may put into them.
A name that is listed here and not set on a message is null; any other name is an error.
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
"""What a rule action may change, and the type it is kept in."""

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
"""Today's SDKs renamed some; both names are understood."""

_CANONICAL = {**{name: name for name in (*SETTABLE, *READ_ONLY)}, **_NEWER_NAMES}


def canonical(name: str) -> str | None:
    """The lower-case name a property is kept under; None if there is no such property."""
    return _CANONICAL.get(name.lower())
