"""Ways to the broker, and the end of a connection."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from proton import ConnectionException, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.clients.proton.moves import connect, expect_nothing, listen, send, take, text

if TYPE_CHECKING:
    from proton import Event
    from proton.utils import BlockingConnection

    from tests.clients.python.trial import Broker

CLOSING_LIMIT_S = 2


def _there_and_back(connection: BlockingConnection, queue: str) -> None:
    send(connection, queue, "hello")
    assert ["hello"] == take(listen(connection, queue), 1)


def connect_emulator_string(broker: Broker) -> str:
    parts = dict(
        part.split("=", 1) for part in broker.connection_string.rstrip(";").split(";") if part
    )
    with connect(
        broker,
        url=parts["Endpoint"].replace("sb://", "amqp://"),
        user=parts["SharedAccessKeyName"],
        password=parts["SharedAccessKey"],
    ) as connection:
        _there_and_back(connection, broker.queue())
    return "endpoint, key name and key taken from the string"


def connect_tls(broker: Broker) -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(broker.authority_file)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, broker.authority_file)
    url = f"amqps://localhost:{broker.amqp_port}"
    with connect(broker, url=url, ssl_domain=domain, allow_insecure_mechs=False) as connection:
        _there_and_back(connection, broker.queue())


def error_unauthorized(broker: Broker) -> None:
    began_s, reason = time.monotonic(), ""
    try:
        with connect(broker, password="wrong"):
            raise AssertionError("let in with a wrong key")
    except ConnectionException as error:
        reason = str(error)
    assert "amqp:unauthorized-access" in reason, reason
    assert time.monotonic() - began_s < 5


class Returning(MessagingHandler):
    """Sends when its link is open, has the broker restarted, and is reconnected by the library."""

    def __init__(self, broker: Broker, queue: str) -> None:
        super().__init__()
        self._broker = broker
        self._queue = queue
        self._unsent = ["before", "after"]
        self.found: list[str] = []

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(
            f"amqp://{self._broker.host}:{self._broker.amqp_port}",
            user="RootManageSharedAccessKey",
            password="SAS_KEY_VALUE",
            allow_insecure_mechs=True,
            allowed_mechs="PLAIN",
            heartbeat=1,
        )
        event.container.create_sender(connection, self._queue)
        event.container.create_receiver(connection, self._queue)

    def on_link_opened(self, event: Event) -> None:
        if event.link.is_sender:
            event.link.send(text(self._unsent.pop(0)))

    def on_message(self, event: Any) -> None:
        self.accept(event.delivery)
        self.found.append(bytes(event.message.body).decode())
        if self._unsent:
            self._broker.restart()
        elif self.found[-1] == "after":
            event.connection.close()


def reconnect_after_restart(broker: Broker) -> None:
    """What was accepted just before the restart may have been too late, and then comes again."""
    client = Returning(broker, broker.queue())
    Container(client).run()
    assert client.found in (["before", "after"], ["before", "before", "after"]), client.found


def clean_close(broker: Broker) -> None:
    queue, before = broker.queue(), broker.metric("peeklock_connections")
    with connect(broker) as connection:
        send(connection, queue, "a")
        receiver = listen(connection, queue)
        assert ["a"] == take(receiver, 1)
        expect_nothing(receiver)
        receiver.link.flow(10)
        assert before + 1 == broker.metric("peeklock_connections")
        began_s = time.monotonic()
    assert time.monotonic() - began_s < CLOSING_LIMIT_S
    assert before == broker.metric("peeklock_connections")
