"""A live broker on each storage, and entities made for one test."""

from __future__ import annotations

import http.client
import itertools
import json
import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_numbers = itertools.count(1)


class Live:
    """A running broker as a test uses it."""

    def __init__(self, process: BrokerProcess, tls_folder: Path | None = None) -> None:
        self.process = process
        self.connection_string = process.connection_string
        self._tls_folder = tls_folder

    def client(self, **options: object) -> ServiceBusClient:
        """A stock client; close it, or use it in a `with` block."""
        return ServiceBusClient.from_connection_string(self.connection_string, **options)

    def administration(self) -> ServiceBusAdministrationClient:
        """A stock administration client; it insists on TLS, so the broker's folder for it must be
        known."""
        assert self._tls_folder is not None, "this broker's authority is nowhere to be read"
        return ServiceBusAdministrationClient.from_connection_string(
            self.process.admin_connection_string,
            connection_verify=str(self._tls_folder / "ca.pem"),
        )

    def queue(self, **properties: object) -> str:
        """A new queue; properties by their Service Bus names."""
        name = f"queue-{next(_numbers)}"
        self.put(name, "QueueDescription", properties)
        return name

    def topic(self, **properties: object) -> str:
        """A new topic."""
        name = f"topic-{next(_numbers)}"
        self.put(name, "TopicDescription", properties)
        return name

    def subscription(
        self, topic: str, name: str, *, rule: str | None = None, **properties: object
    ) -> None:
        """A new subscription; `rule` is the filter of its only rule, as XML."""
        inside = f"<DefaultRuleDescription>{rule}</DefaultRuleDescription>" if rule else ""
        path = f"{topic}/Subscriptions/{name}"
        self.put(path, "SubscriptionDescription", properties, inside)

    def put(self, path: str, kind: str, properties: dict[str, object], inside: str = "") -> None:
        """Create an entity through the administration API."""
        elements = inside + "".join(
            f"<{name}>{escape(_text(value))}</{name}>" for name, value in properties.items()
        )
        body = (
            '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
            f'<{kind} xmlns="{SERVICE_BUS}">{elements}</{kind}></content></entry>'
        )
        connection = http.client.HTTPConnection("127.0.0.1", self.process.http_port)
        try:
            connection.request("PUT", f"/{path}?api-version=2021-05", body.encode())
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status == 201, text
        finally:
            connection.close()

    def count(self, path: str) -> int:
        """Returns how many messages an entity has, in any state."""
        status, content = self.process.request("GET", f"/{path}?api-version=2021-05&enrich=True")
        found = re.search(r"<MessageCount>(\d+)<", content.decode())
        assert status == 200, content
        assert found, content
        return int(found[1])

    def now_ms(self) -> int:
        """The broker's time."""
        status, content = self.process.request("POST", "/$peeklock/clock", {"advance_ms": 0})
        assert status == 200, content
        return int(json.loads(content)["now_ms"])

    def advance(self, *, seconds: float) -> None:
        """Move the broker's clock."""
        self.process.advance_clock(int(seconds * 1000))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture(scope="session", params=["memory", "sqlite", "postgresql"])
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """One broker for all tests of a storage."""
    url = "memory:"
    if request.param == "sqlite":
        url = sqlite_url(tmp_path_factory.mktemp("store"))
    elif request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").url()
    with BrokerProcess(storage=url) as process:
        yield Live(process)


def sqlite_url(folder: Path) -> str:
    """A storage URL for a new file."""
    return f"sqlite:///{folder / 'peeklock.db'}"
