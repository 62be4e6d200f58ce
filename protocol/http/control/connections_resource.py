"""The AMQP connections of a namespace with their links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from protocol.http.control.request_models import AnswerModel
from protocol.http.control.routes import Route

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call


class LinkAnswer(AnswerModel):
    """A link."""

    name: str
    role: str = Field(description="sender or receiver: what the client is")
    address: str = Field(description="the entity, sub-queue or node")
    session_id: str | None
    credit: int = Field(description="how many more messages may be sent on it now")
    deliveries: int = Field(description="messages that were sent on it so far")
    unsettled: int


class ConnectionAnswer(AnswerModel):
    """A connection."""

    id: str
    client: str = Field(description="the network address")
    container_id: str
    product: str | None = Field(description="what the client says that it is")
    host: str = Field(description="the host name that the client asked for")
    opened_at: str | None = Field(description="in real time")
    links: list[LinkAnswer]
    last_error: dict[str, Any] | None = Field(description="the last error that it was sent")


class ConnectionsAnswer(AnswerModel):
    """All connections of the namespace."""

    connections: list[ConnectionAnswer]


async def list_connections(call: Call) -> Answer:
    """Lists connections."""
    return {"connections": list(call.services.connections(call.namespace))}


ROUTES = (
    Route(
        "GET",
        "/connections",
        "listConnections",
        "List the AMQP connections with links, credit, unsettled messages and the last error",
        list_connections,
        ConnectionsAnswer,
    ),
)
