"""Fetches all entities from a running broker over HTTP, as a config file.

Parses the connection string and makes the request. It changes nothing on the broker.
"""

from __future__ import annotations

import http.client
import json
import ssl
from typing import TYPE_CHECKING, NamedTuple

from broker.app.cli.connection_strings import read_connection_string
from broker.app.topology_export import ExportedFile
from protocol.http.control.topology_api import PATH
from protocol.identity import sas

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 30
DEFAULT_PORT = 5300


class ExportFailed(Exception):
    """The entities could not be fetched. The text says why."""


class BrokerAddress(NamedTuple):
    """The address of the administration API of a broker, and a key."""

    host: str
    port: int
    key_name: str
    key: str
    authority: Path | None = None
    """File of the trusted certificates, for TLS. None for plain HTTP."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        """Returns a connection that is not open yet."""
        if self.authority is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_S, context=context)


def address_in(connection_string: str, authority: Path | None = None) -> BrokerAddress:
    """Returns the address in a connection string. Raises `ExportFailed`."""
    read = read_connection_string(connection_string)
    if read is None:
        raise ExportFailed(
            "a connection string has Endpoint=sb://HOST:PORT, SharedAccessKeyName and "
            "SharedAccessKey, with semicolons between them"
        )
    return BrokerAddress(read.host, read.port or DEFAULT_PORT, read.key_name, read.key, authority)


def fetch(address: BrokerAddress, form: str) -> ExportedFile:
    """Fetches the entities from a running broker. Raises `ExportFailed`."""
    token = sas.make(f"sb://{address.host}", address.key_name, address.key, sas.YEAR_9999_S)
    connection = address.connect()
    try:
        connection.request("GET", f"{PATH}?form={form}", headers={"Authorization": token})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ExportFailed(
            f"{address} does not answer: {error}; start it, or name another broker or a store"
        ) from error
    finally:
        connection.close()
    try:
        content = json.loads(body)
        if response.status != http.HTTPStatus.OK:
            raise ExportFailed(f"{address} refuses: {content['error']}")
        return ExportedFile(content["document"], content["losses"])
    except (ValueError, TypeError, KeyError) as error:
        raise ExportFailed(
            f"{address} is not a Peeklock broker: it answered {response.status}"
        ) from error
