"""Reads connection strings of Service Bus, which name a broker or a namespace on the command line."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class ConnectionString(NamedTuple):
    """The parts of a connection string."""

    host: str
    port: int | None
    """None if the endpoint names no port."""
    key_name: str
    key: str
    is_for_emulator: bool
    """Whether it has UseDevelopmentEmulator=true."""


def read_connection_string(text: str) -> ConnectionString | None:
    """Returns the parts of a connection string, or None if it has no valid endpoint, or no key."""
    parts = (part.partition("=") for part in text.strip().split(";") if part.strip())
    fields = {name.strip().lower(): value.strip() for name, _, value in parts}
    try:
        endpoint = urlsplit(fields["endpoint"])
        host, port = endpoint.hostname, endpoint.port
        key_name, key = fields["sharedaccesskeyname"], fields["sharedaccesskey"]
        (host or "").encode("idna")  # raises UnicodeError, a ValueError, for a..b
    except (KeyError, ValueError):
        return None
    if not host:
        return None
    is_for_emulator = fields.get("usedevelopmentemulator", "").lower() == "true"
    return ConnectionString(host, port, key_name, key, is_for_emulator)
