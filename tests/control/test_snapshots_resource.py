"""Snapshots: a namespace goes back to a named state, or another one begins with it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from tests.control.client import ControlClient
from tests.control.test_namespaces_resource import receive, send
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPOLOGY = {
    "queues": {
        "orders": {"lock_duration": "PT1M", "max_delivery_count": 3},
        "once": {"requires_duplicate_detection": True},
        "carts": {"requires_session": True},
    },
    "topics": {"events": {"subscriptions": {"a": {}, "b": {}}}},
}


class Space:
    """A namespace of a test."""

    def __init__(self, port: int, created: dict[str, Any]) -> None:
        self.name: str = created["name"]
        self.connection_string: str = created["connection_string"]
        self.api = ControlClient(port, self.name)

    def client(self, **options: Any) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string, **options)

    def counts(self, path: str = "orders") -> dict[str, Any]:
        return dict(self.api.get("/entity", entity=path)["counts"])


@pytest.fixture
def space(api: ControlClient) -> Iterator[Space]:
    created = api.post("/namespaces", topology=TOPOLOGY)
    yield Space(api.port, created)
    api.request("DELETE", f"/namespaces/{created['name']}")


@pytest.mark.parametrize("ephemeral", [False, True], ids=["kept", "ephemeral"])
def test_a_restored_namespace_has_its_entities_messages_and_numbers(space: Space, ephemeral: bool):
    """Whatever happened in between: completed, dead-lettered, sent and deleted."""
    with space.client() as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(f"{number}") for number in range(6)])
        with client.get_queue_receiver("orders") as receiver:
            messages = receiver.receive_messages(4, max_wait_time=5)
            receiver.complete_message(messages[0])
            receiver.abandon_message(messages[1])
            receiver.defer_message(messages[2])
            receiver.dead_letter_message(messages[3], reason="Bad", error_description="really")
    before = space.counts()
    taken = space.api.post("/snapshots", name="before", ephemeral=ephemeral)
    assert (6, 5) == (taken["entities"], taken["messages"])
    assert 4 == len(receive(space.connection_string, "orders", 10, 0.5)) + 1
    send(space.connection_string, "orders", "new")
    space.api.post("/snapshots", name="after", ephemeral=ephemeral)
    for _ in range(2):  # a snapshot can be restored again
        space.api.post("/snapshots/before/restore")
        assert before == space.counts()
    with space.client() as client:
        with client.get_queue_receiver("orders") as receiver:
            found = receiver.receive_messages(10, max_wait_time=1)
            found += receiver.receive_messages(10, max_wait_time=0.5)
            seen = [(str(m), m.sequence_number, m.delivery_count) for m in found]
            assert [("1", 2, 1), ("4", 5, 0), ("5", 6, 0)] == seen
            for one in found:  # a connection that is lost instead of closed would release them
                receiver.complete_message(one)
            (deferred,) = receiver.receive_deferred_messages([3])
            assert "2" == str(deferred)
        with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
            (dead,) = receiver.receive_messages(10, max_wait_time=1)
            assert ("3", "Bad") == (str(dead), dead.dead_letter_reason)
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("next"))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(10, max_wait_time=2)
            assert ("next", 7) == (str(message), message.sequence_number)
    space.api.post("/snapshots/after/restore")
    assert ["new"] == receive(space.connection_string, "orders", 1)


def test_locks_are_not_kept(space: Space):
    """A message that was locked when the snapshot was taken is available, with the count from before. The lock from
    before settles nothing."""
    send(space.connection_string, "orders", "locked")
    with space.client(retry_total=1) as client:
        receiver = client.get_queue_receiver("orders")
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        space.api.post("/snapshots", name="s")
        space.api.post("/snapshots/s/restore")
        assert 1 == space.counts()["active"]
        with pytest.raises(ServiceBusError):
            receiver.complete_message(message)
        (again,) = receiver.receive_messages(1, max_wait_time=5)
        assert ("locked", 0) == (str(again), again.delivery_count)
        receiver.complete_message(again)
    assert (0, 0) == (space.counts()["active"], space.counts()["locked"])


def test_connected_clients_come_back_to_the_restored_state(space: Space):
    """A sender and a receiver that keep running: their next calls work without a new client."""
    send(space.connection_string, "orders", "first")
    space.api.post("/snapshots", name="s")
    with space.client() as client:
        sender = client.get_queue_sender("orders")
        receiver = client.get_queue_receiver(
            "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        )
        assert ["first"] == [str(one) for one in receiver.receive_messages(1, max_wait_time=5)]
        sender.send_messages(ServiceBusMessage("lost"))
        space.api.post("/snapshots/s/restore")
        sender.send_messages(ServiceBusMessage("second"))
        found: list[str] = []
        while len(found) < 2:
            found += [str(one) for one in receiver.receive_messages(5, max_wait_time=5)]
        assert ["first", "second"] == found


def test_a_waiting_receiver_gets_the_messages_of_the_snapshot(space: Space):
    """It waits while the snapshot is restored."""
    send(space.connection_string, "orders", "there")
    space.api.post("/snapshots", name="s")
    assert ["there"] == receive(space.connection_string, "orders", 1)
    found: list[str] = []

    def wait() -> None:
        with space.client() as client, client.get_queue_receiver("orders") as receiver:
            found.extend(str(one) for one in receiver.receive_messages(1, max_wait_time=20))

    waiting = threading.Thread(target=wait)
    waiting.start()
    deadline_s = time.monotonic() + 10
    while not space.api.get("/entity", entity="orders")["receivers"]:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    space.api.post("/snapshots/s/restore")
    waiting.join(30)
    assert ["there"] == found


def test_sessions_duplicates_and_subscriptions_are_restored(space: Space):
    """Session states, the messages of sessions, seen message ids, and the copies of each subscription."""
    with space.client() as client:
        with client.get_queue_sender("once") as sender:
            sender.send_messages(ServiceBusMessage("a", message_id="1"))
        with client.get_queue_sender("carts") as sender:
            sender.send_messages(ServiceBusMessage("item", session_id="c1"))
        with client.get_queue_receiver("carts", session_id="c1") as receiver:
            receiver.session.set_state(b"open")
        with client.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage("news"))
        space.api.post("/snapshots", name="s")
        with client.get_queue_receiver("carts", session_id="c1") as receiver:
            receiver.session.set_state(b"closed")
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
        with client.get_subscription_receiver("events", "a") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
    space.api.post("/snapshots/s/restore")
    with space.client() as client:
        with client.get_queue_sender("once") as sender:
            sender.send_messages(ServiceBusMessage("again", message_id="1"))
        assert 1 == space.counts("once")["active"]
        with client.get_queue_receiver("carts", session_id="c1") as receiver:
            assert b"open" == bytes(receiver.session.get_state())
            assert ["item"] == [str(one) for one in receiver.receive_messages(1, max_wait_time=5)]
        for name in "ab":
            with client.get_subscription_receiver("events", name) as receiver:
                (message,) = receiver.receive_messages(1, max_wait_time=5)
                assert "news" == str(message)
                receiver.complete_message(message)


def test_a_namespace_can_begin_with_a_snapshot(api: ControlClient, space: Space):
    """The branch and the original do not see each other."""
    send(space.connection_string, "orders", "shared")
    space.api.post("/snapshots", name="s")
    origin = {"namespace": space.name, "snapshot": "s"}
    branches = [api.post("/namespaces", **{"from": origin}) for _ in range(2)]
    assert [1, 1] == [one["messages"] for one in branches]
    send(branches[0]["connection_string"], "orders", "only here")
    assert ["shared", "only here"] == receive(branches[0]["connection_string"], "orders", 2)
    assert ["shared"] == receive(branches[1]["connection_string"], "orders", 10, 0.5)
    assert ["shared"] == receive(space.connection_string, "orders", 10, 0.5)
    for one in branches:
        api.request("DELETE", f"/namespaces/{one['name']}")
    assert 1 == space.api.get("/snapshots/s")["messages"]


def test_the_clock_goes_back_with_the_namespace(space: Space):
    """By how much it was ahead, so that a schedule is as far away as it was."""
    space.api.post("/clock/advance", seconds=60)
    assert 60_000 == space.api.post("/snapshots", name="s")["clock_ahead_ms"]
    space.api.post("/clock/advance", seconds=3600)
    space.api.post("/snapshots/s/restore")
    assert 60_000 == space.api.get("/clock")["ahead_ms"]


def test_snapshots_are_listed_replaced_and_deleted(space: Space):
    """Each by its name."""
    assert {"snapshots": []} == space.api.get("/snapshots")
    space.api.post("/snapshots", name="b", ephemeral=True)
    space.api.post("/snapshots", name="a")
    send(space.connection_string, "orders", "x")
    answer = space.api.refused("POST", "/snapshots", {"name": "a"})
    assert (409, "snapshot_already_exists") == (answer.status, answer.error["code"])
    assert "name" == answer.error["field"]
    for name, ephemeral in (("a", True), ("b", False), ("a", False), ("a", False)):
        taken = space.api.post("/snapshots", name=name, ephemeral=ephemeral, replace=True)
        assert (1, ephemeral) == (taken["messages"], taken["ephemeral"])
    listed = space.api.get("/snapshots")["snapshots"]
    assert [("a", 1), ("b", 1)] == [(one["name"], one["messages"]) for one in listed]
    assert {"deleted": "a"} == space.api.request("DELETE", "/snapshots/a").content
    assert ["b"] == [one["name"] for one in space.api.get("/snapshots")["snapshots"]]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/snapshots/unknown/restore", {}, 404, "snapshot_not_found"),
        ("DELETE", "/snapshots/unknown", None, 404, "snapshot_not_found"),
        ("GET", "/snapshots/unknown", None, 404, "snapshot_not_found"),
        ("POST", "/snapshots", {}, 400, "missing_field"),
        ("POST", "/snapshots", {"name": "a/b"}, 400, "argument_error"),
        ("POST", "/snapshots", {"name": "a@b"}, 400, "argument_error"),
        ("POST", "/snapshots", {"name": ""}, 400, "invalid_field"),
        ("POST", "/snapshots", {"name": "a", "keep": True}, 400, "unknown_field"),
        ("POST", "/snapshots/s/restore", {"force": True}, 400, "unknown_field"),
    ],
)
def test_a_wrong_request_changes_nothing(space: Space, method, path, body, status, code):
    """And the refusal says why."""
    send(space.connection_string, "orders", "x")
    before = space.api.get("/entities")
    answer = space.api.refused(method, path, body)
    assert (status, code) == (answer.status, answer.error["code"])
    assert {"snapshots": []} == space.api.get("/snapshots")
    assert before == space.api.get("/entities")


def test_the_default_namespace_can_be_restored(api: ControlClient, broker: BrokerProcess):
    """Also with clients that show no key."""
    send(broker.connection_string, "retries", "kept")
    api.post("/snapshots", name="default-state")
    assert ["kept"] == receive(broker.connection_string, "retries", 1)
    api.post("/snapshots/default-state/restore")
    assert ["kept"] == receive(broker.connection_string, "retries", 1)
    assert api.get("/namespaces")["namespaces"][0]["is_default"]
    api.request("DELETE", "/snapshots/default-state")


def test_snapshots_are_kept_over_restarts_unless_they_are_ephemeral(tmp_path: Path):
    """And can be restored and branched from afterwards. What was deleted does not come back."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(storage=storage) as broker:
        api = ControlClient(broker.http_port)
        space = Space(broker.http_port, api.post("/namespaces", name="s1", topology=TOPOLOGY))
        send(space.connection_string, "orders", *(f"{number}" for number in range(5)))
        space.api.post("/snapshots", name="kept")
        space.api.post("/snapshots", name="in-memory", ephemeral=True)
        space.api.post("/snapshots", name="deleted")
        space.api.request("DELETE", "/snapshots/deleted")
        assert 5 == len(receive(space.connection_string, "orders", 5))
        broker.restart()
        listed = space.api.get("/snapshots")["snapshots"]
        assert [("kept", 5)] == [(one["name"], one["messages"]) for one in listed]
        space.api.post("/snapshots/kept/restore")
        broker.kill()
        broker.start()
        assert ["0", "1"] == receive(space.connection_string, "orders", 2)
        branch = api.post("/namespaces", **{"from": {"namespace": "s1", "snapshot": "kept"}})
        broker.restart()
        assert 5 == len(receive(branch["connection_string"], "orders", 5))
        assert ["2", "3", "4"] == receive(space.connection_string, "orders", 3)
        names = [one["name"] for one in api.get("/namespaces")["namespaces"]]
        assert ["sbemulatorns", branch["name"], "s1"] == names


def test_a_wait_sees_the_restored_state(space: Space):
    """It began before."""
    send(space.connection_string, "orders", "x", "y")
    space.api.post("/snapshots", name="s")
    assert 2 == len(receive(space.connection_string, "orders", 2))
    body = {"conditions": [{"entity": "orders", "equals": 2}], "timeout_s": 60}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(space.api.request, "POST", "/wait", body)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        space.api.post("/snapshots/s/restore")
        assert 200 == waiting.result(10).status


def test_a_created_namespace_is_reset_to_the_topology_that_it_was_created_with(
    api: ControlClient, space: Space
):
    """A branch is reset to the entities of its snapshot."""
    expected = [entity["path"] for entity in space.api.get("/entities")["entities"]]
    send(space.connection_string, "orders", "x")
    space.api.post("/snapshots", name="s")
    branch = api.post("/namespaces", **{"from": {"namespace": space.name, "snapshot": "s"}})
    for one in (space, Space(api.port, branch)):
        one.api.post("/reset")
        found = one.api.get("/entities")["entities"]
        assert expected == [entity["path"] for entity in found]
        assert {0} == {entity["counts"]["active"] for entity in found}
    api.request("DELETE", f"/namespaces/{branch['name']}")
