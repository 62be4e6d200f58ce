"""Strict authorization as users of the stock Python SDK meet it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from protocol.identity import sas
from tests.support.server import HOST, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT_NAME, ROOT_KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
HOUR_S = 3600
CONFIG = {
    "queues": {
        "orders": {
            "authorization_rules": {
                "reader": {"rights": ["Listen"], "primary_key": "reader-key"},
                "writer": {
                    "rights": ["Send"],
                    "primary_key": "writer-key",
                    "secondary_key": "writer-second",
                },
            }
        }
    },
    "namespaces": {
        name: {
            "queues": {"orders": None},
            "authorization_rules": {name: {"rights": ["Manage"], "primary_key": f"{name}-key"}},
        }
        for name in ("run-1", "run-2")
    },
}


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def broker(tls_folder: Path) -> Iterator[BrokerProcess]:
    environment = {"PEEKLOCK_AUTHORIZATION": "strict", "PEEKLOCK_TLS_FOLDER": str(tls_folder)}
    with BrokerProcess(config=CONFIG, environment=environment) as broker:
        yield broker


def client(broker: BrokerProcess, key_name: str, key: str, host: str = HOST) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        f"Endpoint=sb://{host}:{broker.amqp_port};SharedAccessKeyName={key_name};"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true;",
        retry_total=0,
    )


def client_with_token(broker: BrokerProcess, lasting_s: int) -> ServiceBusClient:
    resource = f"sb://{HOST}:{broker.amqp_port}/orders"
    token = sas.make(resource, ROOT_NAME, ROOT_KEY, int(time.time()) + lasting_s)
    return ServiceBusClient.from_connection_string(
        f"Endpoint=sb://{HOST}:{broker.amqp_port};SharedAccessSignature={token};"
        "UseDevelopmentEmulator=true;",
        retry_total=0,
    )


def send(one: ServiceBusClient, text: str) -> None:
    with one, one.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(text))


def receive(one: ServiceBusClient, count: int) -> list[str]:
    """Receives so many messages, with as many calls as needed. For 0, returns what arrives within a
    short time."""
    texts: list[str] = []
    with one, one.get_queue_receiver("orders") as receiver:
        while messages := receiver.receive_messages(count or 1, max_wait_time=5 if count else 0.5):
            for message in messages:
                receiver.complete_message(message)
                texts.append(str(message))
            if len(texts) >= count:
                break
    return texts


@pytest.mark.parametrize(
    ("key_name", "key"),
    [(ROOT_NAME, "wrong"), ("nobody", ROOT_KEY), ("reader", "writer-key")],
)
def test_a_wrong_key_is_an_authentication_error(broker: BrokerProcess, key_name: str, key: str):
    """The SDK's own exception; the words are in the broker's log, since the SDK drops them."""
    with pytest.raises(ServiceBusAuthenticationError):
        send(client(broker, key_name, key), "never")
    assert (
        f"InvalidSignature: The token has an invalid signature. No key of a rule '{key_name}'"
        in (broker.log_text())
    )


def test_a_key_that_may_only_read_reads(broker: BrokerProcess):
    """And the SDK's authorization error meets who tries to write with it."""
    send(client(broker, "writer", "writer-key"), "to be read")
    with pytest.raises(ServiceBusAuthorizationError, match="'Send' claim"):
        send(client(broker, "reader", "reader-key"), "never")
    assert ["to be read"] == receive(client(broker, "reader", "reader-key"), 1)


def test_a_key_that_may_only_write_writes(broker: BrokerProcess):
    """With either of its two keys."""
    send(client(broker, "writer", "writer-second"), "written")
    with pytest.raises(ServiceBusAuthorizationError, match="'Listen' claim"):
        receive(client(broker, "writer", "writer-key"), 1)
    assert ["written"] == receive(client(broker, "reader", "reader-key"), 1)


def test_administration_asks_for_manage(broker: BrokerProcess, tls_folder: Path):
    """Over TLS, as the SDK insists, with the broker's own authority trusted."""

    def names(key_name: str, key: str) -> list[str]:
        with ServiceBusAdministrationClient.from_connection_string(
            f"Endpoint=sb://localhost:{broker.http_port};SharedAccessKeyName={key_name};"
            f"SharedAccessKey={key};UseDevelopmentEmulator=true;",
            connection_verify=str(tls_folder / "ca.pem"),
            retry_total=0,
        ) as administration:
            return [queue.name for queue in administration.list_queues()]

    assert ["orders"] == names(ROOT_NAME, ROOT_KEY)
    for key_name, key in ((ROOT_NAME, "wrong"), ("writer", "writer-key")):
        with pytest.raises(ClientAuthenticationError):
            names(key_name, key)


def test_parallel_runs_share_a_broker_and_nothing_else(broker: BrokerProcess):
    """Each run has its own key. Entity names and address are the same."""
    for run in ("run-1", "run-2"):
        send(client(broker, run, f"{run}-key"), f"of {run}")
    assert [] == receive(client(broker, "reader", "reader-key"), 0)
    for run in ("run-1", "run-2"):
        assert [f"of {run}"] == receive(client(broker, run, f"{run}-key"), 1)


def test_a_token_that_runs_out_ends_what_it_allowed():
    """By the broker's clock, on links that are open, until then and not longer."""
    with BrokerProcess(config=CONFIG, environment={"PEEKLOCK_AUTHORIZATION": "strict"}) as broker:
        with (
            client_with_token(broker, 2 * HOUR_S) as short,
            short.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("at once"))
            broker.advance_clock((2 * HOUR_S - 60) * 1000)
            sender.send_messages(ServiceBusMessage("just in time"))
            broker.advance_clock(120 * 1000)
            # What the SDK says depends on whether it has read the detach by then.
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("too late"))
            assert "ExpiredToken: The token is expired, and no other" in broker.log_text()
        with pytest.raises(ServiceBusAuthenticationError):
            send(client_with_token(broker, HOUR_S), "never")
        assert ["at once", "just in time"] == receive(client_with_token(broker, 3 * HOUR_S), 2)
