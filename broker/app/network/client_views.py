"""The AMQP clients as the control API shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from protocol.http.control_services import ClientError, ClientErrors, LockHolder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.effects import Peer
    from protocol.amqp.connection import Connection


def holder_of(peer: Peer) -> LockHolder:
    """Returns who holds a lock. A client of the REST API has no connection, and is not known."""
    client = getattr(peer, "client", None)
    if client is None:
        return LockHolder()
    return LockHolder(
        client.connection_id, client.container_id, getattr(peer, "name", ""), client.address
    )


def connection_view(connection: Connection) -> dict[str, Any]:
    """Returns a connection and its links as plain data."""
    client = connection.client
    error = client.last_error
    return {
        "id": client.connection_id,
        "client": client.address,
        "container_id": client.container_id,
        "product": client.product,
        "host": client.host,
        "opened_at": real_time(client.opened_ms),
        "links": [link._asdict() for link in connection.link_views()],
        "last_error": None
        if error is None
        else {"at": real_time(error[0]), "condition": error[1], "message": error[2]},
    }


def client_errors(connections: Iterable[Connection]) -> ClientErrors:
    """Returns the last errors of connections, the newest first."""
    count = 0
    errors = []
    for connection in connections:
        count += 1
        client = connection.client
        if client.last_error is not None:
            at_ms, condition, message = client.last_error
            # The tracking id and what follows it are for the log.
            sentence = message.partition(" TrackingId:")[0] or condition
            errors.append(ClientError(client.connection_id, client.container_id, at_ms, sentence))
    return ClientErrors(count, sorted(errors, key=lambda one: -one.at_ms))


def real_time(milliseconds: int) -> str:
    """Returns a time of the real clock as text."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
