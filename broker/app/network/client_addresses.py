"""Addresses and connection strings, as clients on this machine use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.settings.settings import Settings

_LOCAL_HOSTS = ("127.0.0.1", "0.0.0.0", "::", "::1")  # noqa: S104 -- compared, not bound


def address_text(host: str, port: int) -> str:
    """Returns `127.0.0.1:5672` or `[::1]:5672`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def client_host(settings: Settings) -> str:
    """Returns the host that clients on this machine use."""
    return "localhost" if settings.host in _LOCAL_HOSTS else settings.host


def connection_string(settings: Settings, port: int) -> str:
    """Returns the connection string of messaging clients. Without a port, SDKs connect to 5672."""
    return _with_key(settings, address_text(client_host(settings), port).removesuffix(":5672"))


def administration_connection_string(settings: Settings) -> str:
    """Returns the connection string of administration clients. Without a port, each SDK has another
    default, and none of them is 5672."""
    return _with_key(settings, address_text(client_host(settings), settings.http_port))


def _with_key(settings: Settings, endpoint: str) -> str:
    return (
        f"Endpoint=sb://{endpoint};"
        f"SharedAccessKeyName={settings.shared_access_key_name};"
        f"SharedAccessKey={settings.shared_access_key};UseDevelopmentEmulator=true;"
    )
