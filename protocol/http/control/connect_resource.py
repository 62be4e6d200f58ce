"""How clients connect to this broker: the connection string, the ports and what TLS needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from broker.core.contract.errors import Unauthorized
from protocol.http.control.request_models import AnswerModel
from protocol.http.control.routes import Route

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call


class PortsAnswer(AnswerModel):
    """The ports on which the broker listens. Each accepts AMQP, HTTP and WebSocket, with and without TLS."""

    amqp: int
    http: int
    tls: int | None = Field(description="the additional port for TLS; null if there is none")


class ConnectAnswer(AnswerModel):
    """How clients connect to a namespace."""

    namespace: str
    version: str = Field(description="of the broker")
    authorization: str = Field(description="development or strict")
    host: str = Field(description="the host and the port of this request, at which AMQP works, too")
    is_tls: bool = Field(description="whether this request came over TLS")
    ports: PortsAnswer
    certificate_authority: str | None = Field(
        description="the file with the authority that clients of TLS trust; null if the certificate is not the "
        "broker's own"
    )
    key_name: str | None
    key: str | None = Field(
        description="null if it may not be shown: with strict authorization the request needs the broker's own key"
    )
    connection_string: str | None = Field(
        description="for messaging and for administration; null without a key"
    )


async def get_connect(call: Call) -> Answer:
    """Returns how clients connect."""
    services = call.services
    request = call.request
    endpoints = services.endpoints()
    host = request.host
    view = services.namespace_control.view(call.namespace)
    key_name, key = view.key_name, view.key
    if key is None:
        key_name, key = endpoints.key_name, endpoints.key
        try:
            services.authorize_broker(request.headers.get("Authorization"), host)
        except Unauthorized:
            key_name = key = None
        if call.namespace != services.namespaces()[0] and not host.startswith(f"{call.namespace}."):
            # The key of the broker does not select a namespace that the config file declares, but a host name does.
            port = host.rpartition(":")[2]
            host = f"{call.namespace}.localhost:{port}" if port.isdigit() else host
    return {
        "namespace": call.namespace,
        "version": services.version,
        "authorization": "strict" if endpoints.is_strict else "development",
        "host": host,
        "is_tls": request.secure,
        "ports": {
            "amqp": endpoints.amqp_port,
            "http": endpoints.http_port,
            "tls": endpoints.tls_port,
        },
        "certificate_authority": endpoints.certificate_authority,
        "key_name": key_name,
        "key": key,
        "connection_string": None
        if key is None
        else f"Endpoint=sb://{host};SharedAccessKeyName={key_name};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;",
    }


ROUTES = (
    Route(
        "GET",
        "/connect",
        "getConnect",
        "Get the connection string and the ports",
        get_connect,
        ConnectAnswer,
    ),
)
