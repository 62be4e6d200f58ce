"""Namespaces on demand: created, used beside others with the stock client, and deleted."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from proton import Message
from proton.utils import BlockingConnection

from broker.app import topology_export
from protocol.identity import sas
from storage.sqlite.store import SqliteStore
from tests.control.client import ControlClient
from tests.support.server import BrokerProcess, root_token

if TYPE_CHECKING:
    from pathlib import Path

TOPOLOGY = {
    "queues": {"orders": {"lock_duration": "PT30S"}},
    "topics": {"events": {"subscriptions": {"red": {"rules": {"r": {"sql_filter": "c = 'red'"}}}}}},
}
EMULATOR_FORM = """
{
  "UserConfig": { // as the emulator reads it
    "Namespaces": [
      {"Name": "sbemulatorns", "Queues": [{"Name": "orders", "Properties": {"MaxDeliveryCount": 3}}],},
    ],
    "Logging": {"Type": "File"},
  }
}
"""


def send(connection_string: str, queue: str, *texts: str) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages([ServiceBusMessage(text) for text in texts])


def receive(connection_string: str, queue: str, count: int = 10, wait_s: float = 2) -> list[str]:
    """Receive and complete."""
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        messages = receiver.receive_messages(count, max_wait_time=wait_s)
        for message in messages:
            receiver.complete_message(message)
        return [str(message) for message in messages]


def put_queue(port: int, namespace: dict[str, Any], name: str) -> int:
    """Create a queue through the administration API with the key of a namespace. Returns the status."""
    url = f"127.0.0.1:{port}/{name}"
    token = sas.make(f"http://{url}", namespace["key_name"], namespace["key"], 1 << 33)
    content = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"Authorization": token, "Content-Type": "application/atom+xml"}
        connection.request("PUT", f"/{name}?api-version=2021-05", content, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def paths(api: ControlClient, namespace: str) -> list[str]:
    found = ControlClient(api.port, namespace).get("/entities")
    return [entity["path"] for entity in found["entities"]]


def test_namespaces_with_the_same_host_name_are_told_apart_by_their_keys(api: ControlClient):
    """Each client sees its own queue; so does the administration client."""
    created = [api.post("/namespaces", topology=TOPOLOGY) for _ in range(2)]
    assert created[0]["name"] != created[1]["name"]
    for one in created:
        assert f"sb://127.0.0.1:{api.port};" in one["connection_string"]
        assert (3, False, False) == (one["entities"], one["is_default"], one["is_declared"])
        send(one["connection_string"], "orders", f"for {one['name']}")
    for one in created:
        assert [f"for {one['name']}"] == receive(one["connection_string"], "orders", 1)
    assert 201 == put_queue(api.port, created[0], "extra")
    assert "extra" in paths(api, created[0]["name"])
    assert "extra" not in paths(api, created[1]["name"])
    assert "extra" not in [entity["path"] for entity in api.get("/entities")["entities"]]
    for one in created:
        assert {"deleted": one["name"]} == api.request(
            "DELETE", f"/namespaces/{one['name']}"
        ).content


@pytest.mark.parametrize("form", [EMULATOR_FORM, "queues: {orders: {max_delivery_count: 3}}"])
def test_a_topology_may_be_the_text_of_a_file(api: ControlClient, form: str):
    """Of either form, with comments and trailing commas as the emulator accepts them."""
    created = api.post("/namespaces", topology=form)
    (entity,) = ControlClient(api.port, created["name"]).get("/entities")["entities"]
    assert ("orders", 3) == (entity["path"], entity["properties"]["max_delivery_count"])
    api.request("DELETE", f"/namespaces/{created['name']}")


def test_an_empty_namespace_can_be_named(api: ControlClient):
    """The name of its key is its own."""
    created = api.post("/namespaces", name="Team-C", ephemeral=True)
    assert ("team-c", "team-c", True, 0) == (
        created["name"],
        created["key_name"],
        created["ephemeral"],
        created["entities"],
    )
    shown = api.get("/namespaces/team-c")
    assert created["connection_string"] == shown["connection_string"]
    listed = {one["name"]: one for one in api.get("/namespaces")["namespaces"]}
    assert listed["sbemulatorns"]["is_default"]
    assert listed["team-b"]["is_declared"]
    assert not listed["team-c"]["is_declared"]
    api.request("DELETE", "/namespaces/team-c")
    assert "team-c" not in [one["name"] for one in api.get("/namespaces")["namespaces"]]


REFUSED = [
    ({"name": "team-b"}, 409, "namespace_already_exists", "name"),
    ({"name": "not a name"}, 400, "argument_error", "name"),
    ({"name": "a@b"}, 400, "argument_error", "name"),
    ({"name": "localhost"}, 400, "argument_error", "name"),
    ({"name": "127.0.0.1"}, 400, "argument_error", "name"),
    ({"nam": "x"}, 400, "unknown_field", "nam"),
    ({"topology": 7}, 400, "invalid_field", "topology"),
    ({"topology": {"queues": {"a b": {}}}}, 400, "invalid_topology", 'topology.queues["a b"]'),
    ({"topology": {"queue": {}}}, 400, "invalid_topology", "topology.queue"),
    ({"topology": {"namespaces": {"x": {}}}}, 400, "invalid_topology", "topology.namespaces"),
    ({"topology": {"settings": {}}}, 400, "invalid_topology", "topology.settings"),
    ({"topology": "queues: ["}, 400, "invalid_topology", "topology"),
    ({"topology": "2026-02-30"}, 400, "invalid_topology", "topology"),
    ({"topology": '{"queues": {"a\\ud800": {}}}'}, 400, "invalid_topology", "topology"),
    ({"topology": {"UserConfig": {"Namespaces": []}}}, 400, "invalid_topology", None),
    (
        {
            "topology": {
                "topics": {"t": {"subscriptions": {"s": {"rules": {"r": {"sql_filter": "a ="}}}}}}
            }
        },
        400,
        "invalid_topology",
        "topology.topics.t.subscriptions.s.rules.r",
    ),
    ({"topology": {}, "from": {"snapshot": "x"}}, 400, "invalid_field", "from"),
    ({"from": {"snapshot": "unknown"}}, 404, "snapshot_not_found", None),
    ({"from": {"namespace": "unknown", "snapshot": "x"}}, 404, "snapshot_not_found", None),
]


@pytest.mark.parametrize(("body", "status", "code", "field"), REFUSED)
def test_a_wrong_request_creates_nothing(api: ControlClient, body, status, code, field):
    """And the refusal says what is wrong."""
    before = api.get("/namespaces")
    answer = api.refused("POST", "/namespaces", body)
    assert (status, code) == (answer.status, answer.error["code"])
    if field is not None:
        assert field == answer.error["field"]
    assert before == api.get("/namespaces")


def test_declared_and_unknown_namespaces_are_not_deleted(api: ControlClient):
    """Nor the default namespace."""
    for name in ("sbemulatorns", "team-b"):
        answer = api.refused("DELETE", f"/namespaces/{name}")
        assert (400, "not_allowed") == (answer.status, answer.error["code"])
    answer = api.refused("DELETE", "/namespaces/unknown")
    assert (404, "namespace_not_found") == (answer.status, answer.error["code"])


def test_clients_of_a_deleted_namespace_are_told(api: ControlClient):
    """A connected client gets an error, and cannot connect again."""
    created = api.post("/namespaces", topology=TOPOLOGY)
    connection_string = created["connection_string"]
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        sender = client.get_queue_sender("orders")
        receiver = client.get_queue_receiver("orders", max_wait_time=5)
        sender.send_messages(ServiceBusMessage("x"))
        assert 1 == len(receiver.receive_messages(1))
        began_s = time.monotonic()
        assert 200 == api.request("DELETE", f"/namespaces/{created['name']}").status
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("y"))
        with pytest.raises(ServiceBusError):
            receiver.receive_messages(1)
        assert time.monotonic() - began_s < 5
    with pytest.raises(ServiceBusAuthenticationError):
        send(connection_string, "orders", "z")
    assert 401 == put_queue(api.port, created, "extra")
    # The name is free, and the new namespace has nothing of the old one.
    again = api.post("/namespaces", name=created["name"], topology=TOPOLOGY)
    assert again["key"] != created["key"]
    assert [] == receive(again["connection_string"], "orders", wait_s=0.3)
    api.request("DELETE", f"/namespaces/{created['name']}")


def test_a_hundred_namespaces_are_created_at_once(api: ControlClient):
    """Each within a few milliseconds."""
    names = [f"parallel-{number}" for number in range(100)]
    began_s = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        created = list(
            pool.map(lambda name: api.post("/namespaces", name=name, topology=TOPOLOGY), names)
        )
    took_s = time.monotonic() - began_s
    print(f"{took_s * 10:.2f} ms for each")
    assert names == [one["name"] for one in created]
    assert took_s < 5  # generous: a loaded machine
    for one in created[::25]:
        send(one["connection_string"], "orders", one["name"])
    for one in created[::25]:
        assert [one["name"]] == receive(one["connection_string"], "orders", 1)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: api.request("DELETE", f"/namespaces/{name}"), names))
    assert {200} == {answer.status for answer in answers}


def test_each_namespace_has_a_clock(api: ControlClient):
    """Moving one leaves the others alone: a scheduled message becomes active in one namespace only."""
    first, second = (api.post("/namespaces", topology=TOPOLOGY) for _ in range(2))
    week_s = 7 * 24 * 3600
    for one in (first, second):
        with (
            ServiceBusClient.from_connection_string(one["connection_string"]) as client,
            client.get_queue_sender("orders") as sender,
        ):
            in_a_week = dt.datetime.now(dt.UTC) + dt.timedelta(days=7, seconds=-10)
            sender.schedule_messages(ServiceBusMessage("later"), in_a_week)
    moved = ControlClient(api.port, first["name"]).post("/clock/advance", seconds=week_s)
    assert week_s * 1000 == moved["ahead_ms"]
    assert 0 == ControlClient(api.port, second["name"]).get("/clock")["ahead_ms"]
    assert 0 == api.get("/clock")["ahead_ms"]
    assert ["later"] == receive(first["connection_string"], "orders", 1)
    assert [] == receive(second["connection_string"], "orders", 1, wait_s=0.3)
    for one in (first, second):
        api.request("DELETE", f"/namespaces/{one['name']}")


def test_the_clock_of_one_namespace_stands_still(api: ControlClient):
    """A lock does not expire in it, whatever the broker's clock shows, until the clock is moved."""
    topology = {"queues": {"orders": {"lock_duration": "PT5S"}}}
    first, second = (api.post("/namespaces", topology=topology) for _ in range(2))
    frozen, running = (ControlClient(api.port, one["name"]) for one in (first, second))
    stopped = frozen.post("/clock/freeze")
    assert stopped["is_frozen"]
    assert not running.get("/clock")["is_frozen"]
    with ExitStack() as clients:
        for one in (first, second):
            send(one["connection_string"], "orders", "hello")
            client = ServiceBusClient.from_connection_string(one["connection_string"])
            receiver = clients.enter_context(client).get_queue_receiver("orders")
            assert clients.enter_context(receiver).receive_messages(max_wait_time=5)
        api.post("/clock/advance", seconds=6)
        assert stopped["now_ms"] == frozen.get("/clock")["now_ms"]
        assert 1 == frozen.get("/entity", entity="orders")["counts"]["locked"]
        assert 0 == running.get("/entity", entity="orders")["counts"]["locked"]
        frozen.post("/clock/advance", milliseconds=5_001)
        frozen.post("/wait", conditions=[{"entity": "orders", "state": "active", "equals": 1}])
        assert stopped["now_ms"] + 5_001 == frozen.get("/clock")["now_ms"]
        resumed = frozen.post("/clock/resume")
        assert 0 <= resumed["now_ms"] - stopped["now_ms"] - 5_001 < 5_000
        assert not resumed["is_frozen"]
    for one in (first, second):
        api.request("DELETE", f"/namespaces/{one['name']}")


def test_the_clock_of_a_namespace_is_set(api: ControlClient):
    """To a later time only."""
    created = api.post("/namespaces")
    inside = ControlClient(api.port, created["name"])
    set_to = inside.post("/clock/set", time="2050-01-02T03:04:05Z")
    assert set_to["now"].startswith("2050-01-02T03:04:05")
    assert "2050" > api.get("/clock")["now"]
    refused = inside.refused("POST", "/clock/set", {"time": "2049-01-02T03:04:05Z"})
    assert (400, "time") == (refused.status, refused.error["field"])
    api.request("DELETE", f"/namespaces/{created['name']}")


def test_a_restored_namespace_stays_frozen(api: ControlClient):
    created = api.post("/namespaces")
    inside = ControlClient(api.port, created["name"])
    inside.post("/clock/freeze")
    inside.post("/snapshots", name="s", ephemeral=True)
    inside.post("/snapshots/s/restore")
    assert inside.get("/clock")["is_frozen"]
    api.request("DELETE", f"/namespaces/{created['name']}")


def test_namespaces_are_kept_over_a_restart_unless_they_are_ephemeral(tmp_path: Path):
    """With their entities, keys and messages."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(storage=storage) as broker:
        api = ControlClient(broker.http_port)
        kept = api.post("/namespaces", name="kept", topology=TOPOLOGY)
        gone = api.post("/namespaces", name="gone", topology=TOPOLOGY, ephemeral=True)
        deleted = api.post("/namespaces", name="deleted", topology=TOPOLOGY)
        for one in (kept, gone, deleted):
            send(one["connection_string"], "orders", *(f"{number}" for number in range(5)))
        api.request("DELETE", "/namespaces/deleted")
        broker.restart()
        names = [one["name"] for one in api.get("/namespaces")["namespaces"]]
        assert ["sbemulatorns", "kept"] == names
        shown = api.get("/namespaces/kept")
        assert (kept["key"], 5) == (shown["key"], shown["messages"])
        assert ["0", "1", "2"] == receive(kept["connection_string"], "orders", 3)
        again = api.post("/namespaces", name="gone", topology=TOPOLOGY)
        assert [] == receive(again["connection_string"], "orders", wait_s=0.3)
        send(again["connection_string"], "orders", "new")
        broker.restart()
        assert ["new"] == receive(again["connection_string"], "orders", 1)
        assert ["3", "4"] == receive(kept["connection_string"], "orders", 2)


def test_a_host_name_selects_a_namespace(api: ControlClient, broker: BrokerProcess):
    """For clients that can name the host in the open frame. No key of the namespace is needed in development."""
    created = api.post("/namespaces", name="by-host", topology=TOPOLOGY)
    for hostname in ("by-host.localhost", "by-host"):
        connection = BlockingConnection(
            f"127.0.0.1:{broker.amqp_port}",
            timeout=10,
            virtual_host=hostname,
            allowed_mechs="ANONYMOUS",
        )
        connection.create_sender("orders").send(Message(body=hostname))
        connection.close()
    assert 2 == api.get("/namespaces/by-host")["messages"]
    # The name and key of the rule in SASL PLAIN select it as well.
    connection = BlockingConnection(
        f"127.0.0.1:{broker.amqp_port}",
        timeout=10,
        user=created["key_name"],
        password=created["key"],
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
    )
    receiver = connection.create_receiver("orders", credit=2)
    assert ["by-host.localhost", "by-host"] == [receiver.receive(10).body for _ in range(2)]
    connection.close()
    api.request("DELETE", "/namespaces/by-host")


def test_namespaces_and_their_keys_are_exported_without_snapshots(tmp_path: Path):
    """From a running broker and from its store: the file declares them."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(storage=storage) as broker:
        api = ControlClient(broker.http_port)
        created = api.post("/namespaces", name="exported", topology=TOPOLOGY)
        ControlClient(broker.http_port, "exported").post("/snapshots", name="s")
        connection = http.client.HTTPConnection("127.0.0.1", broker.http_port)
        connection.request("GET", "/$peeklock/topology?form=yaml")
        document = json.loads(connection.getresponse().read())["document"]
        connection.close()
    store = SqliteStore(tmp_path / "peeklock.db")
    stored = topology_export.of_store(store)
    assert ["exported"] == [name for name in document["namespaces"] if name != "sbemulatorns"]
    assert {"sbemulatorns", "exported"} == set(stored.namespaces)
    rule = document["namespaces"]["exported"]["authorization_rules"]["exported"]
    assert (
        created["key"]
        == rule["primary_key"]
        == stored.authorization_rules["exported"][0].primary_key
    )
    assert {"orders", "events", "events/Subscriptions/red"} == set(stored.namespaces["exported"])


def test_in_strict_authorization_a_namespace_belongs_to_its_key():
    """Only the broker's own key creates and lists namespaces. The key of one deletes it, and no other."""
    environment = {"PEEKLOCK_AUTHORIZATION": "strict", "PEEKLOCK_CONTROL_API": "on"}
    with BrokerProcess(environment=environment) as broker:
        port = broker.http_port
        root = ControlClient(port, token=root_token())
        first, second = (root.post("/namespaces", topology=TOPOLOGY) for _ in range(2))

        def token_of(created: dict[str, Any]) -> str:
            resource = f"sb://127.0.0.1:{port}/"
            return sas.make(resource, created["key_name"], created["key"], 1 << 33)

        owner = ControlClient(port, token=token_of(first))
        for method, path in (("POST", "/namespaces"), ("GET", "/namespaces")):
            assert 401 == owner.refused(method, path, {} if method == "POST" else None).status
        for path in ("", "/snapshots", "/clock"):
            assert 401 == owner.refused("GET", f"/namespaces/{second['name']}{path}").status
        assert 401 == owner.refused("DELETE", f"/namespaces/{second['name']}").status
        for one in (first, second):
            send(one["connection_string"], "orders", one["name"])
            assert [one["name"]] == receive(one["connection_string"], "orders", 1)
        assert first["name"] == owner.get(f"/namespaces/{first['name']}")["name"]
        assert 200 == owner.request("DELETE", f"/namespaces/{first['name']}").status
        with pytest.raises(ServiceBusAuthenticationError):
            send(first["connection_string"], "orders", "x")
