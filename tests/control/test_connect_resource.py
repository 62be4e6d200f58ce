"""How clients connect: the connection string works, and a key is not shown to who must not see it."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from protocol.identity import sas
from tests.control.client import ControlClient
from tests.support.server import HOST, BrokerProcess, root_token

NAMESPACE_KEY = {"rights": ["manage", "send", "listen"], "primary_key": "c2VjcmV0"}


def test_the_connection_string_works(api, broker):
    """It has the host and the port of the request, which serve AMQP as well."""
    about = api.get("/connect")
    assert f"{HOST}:{broker.http_port}" == about["host"]
    assert {"amqp": broker.amqp_port, "http": broker.http_port, "tls": None} == about["ports"]
    assert ("development", False) == (about["authorization"], about["is_tls"])
    with ServiceBusClient.from_connection_string(about["connection_string"]) as client:
        with client.get_queue_sender("retries") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
    assert 1 == api.post("/purge", entity="retries")["count"]


def test_a_namespace_has_its_own_key(api, broker):
    made = api.post("/namespaces", name="mine")
    about = ControlClient(broker.http_port, "mine").get("/connect")
    assert ("mine", made["connection_string"]) == (about["namespace"], about["connection_string"])
    api.request("DELETE", "/namespaces/mine")


def test_a_declared_namespace_is_named_by_its_host(broker):
    about = ControlClient(broker.http_port, "team-b").get("/connect")
    assert f"team-b.localhost:{broker.http_port}" == about["host"]


@pytest.fixture
def strict():
    config = {
        "queues": {"orders": {}},
        "namespaces": {
            "team-b": {"queues": {"orders": {}}, "authorization_rules": {"team": NAMESPACE_KEY}}
        },
    }
    arguments = ["--authorization", "strict", "--control-api", "on"]
    with BrokerProcess(config=config, testing_api=False, arguments=arguments) as running:
        yield running


def test_in_strict_mode_only_the_brokers_own_key_is_shown_its_key(strict):
    about = ControlClient(strict.http_port, token=root_token()).get("/connect")
    assert ("strict", "SAS_KEY_VALUE") == (about["authorization"], about["key"])
    team = sas.make(f"sb://{HOST}/", "team", "c2VjcmV0", 1 << 40)
    about = ControlClient(strict.http_port, token=team).get("/connect")
    assert ("team-b", None, None) == (about["namespace"], about["key"], about["connection_string"])
    assert 401 == ControlClient(strict.http_port).refused("GET", "/connect").status
