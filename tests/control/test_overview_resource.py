"""The overview: counts and rates of each entity, the oldest message, alerts, and the live stream of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError

from tests.control.client import ControlClient
from tests.control.events import events
from tests.http.client import queue_entry, request
from tests.support.server import BrokerProcess

LOOKS_MAX = 20


@pytest.fixture
def broker():
    """One of its own for each test: rates and alerts depend on what happened before."""
    config = {
        "queues": {
            "orders": {"max_delivery_count": 2, "lock_duration": "PT5S"},
            "carts": {"requires_session": True},
        },
        "topics": {
            "events": {
                "subscriptions": {"audit": {}, "red": {"rules": {"r": {"sql_filter": "1=0"}}}}
            }
        },
        "namespaces": {"team-b": {"queues": {"theirs": {}}}},
    }
    with BrokerProcess(config=config, testing_api=False) as running:
        yield running


def rows(answer) -> dict[str, Any]:
    return {one["path"]: one for one in answer["entities"]}


def test_every_entity_has_its_counts_and_its_oldest_message(api, sdk):
    before = datetime.now(UTC)
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    answer = api.get("/overview")
    assert "sbemulatorns" == answer["namespace"]
    found = rows(answer)
    assert {
        "orders",
        "carts",
        "events",
        "events/Subscriptions/audit",
        "events/Subscriptions/red",
    } == set(found)
    assert 2 == found["orders"]["counts"]["active"]
    assert before <= datetime.fromisoformat(found["orders"]["oldest_enqueued"]) <= datetime.now(UTC)
    assert (None, 0) == (found["orders"]["held_sessions"], found["carts"]["held_sessions"])
    assert None is found["events"]["oldest_enqueued"]


def test_a_stream_has_everything_first_and_then_what_changes(api, sdk, broker):
    """With rates: what arrived and what was delivered between two looks."""
    with events(broker.http_port, "/overview/stream") as stream:
        first = next(stream)
        assert first["is_first"]
        assert 5 == len(first["entities"])
        with sdk.get_topic_sender("events") as sender:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(50)])
        with sdk.get_subscription_receiver("events", "audit") as receiver:
            taken = receiver.receive_messages(50, max_wait_time=10)
        arrived, delivered, changed = 0.0, 0.0, set()
        for _ in range(LOOKS_MAX):
            event = next(stream)
            assert not event["is_first"]
            for one in event["rates"]:
                arrived += one["entities"].get("events", (0, 0))[0]
                delivered += one["entities"].get("events/Subscriptions/audit", (0, 0))[1]
            changed |= set(rows(event))
            if arrived and delivered:
                break
        # The rates are for each second, and samples are about a second apart.
        assert 25 <= arrived <= 60
        assert len(taken) / 2 <= delivered <= 60
        assert {"events", "events/Subscriptions/audit"} == changed


def test_a_rate_ends_when_nothing_arrives(api, broker):
    with events(broker.http_port, "/overview/stream") as stream:
        next(stream)
        api.post("/messages", entity="orders", messages=[{"body": "a"}])
        seen = []
        for _ in range(LOOKS_MAX):
            seen += [
                one["incoming_per_s"]
                for path, one in rows(next(stream)).items()
                if path == "orders"
            ]
            if len(seen) > 1:
                break
        assert (True, 0.0) == (seen[0] > 0, seen[1])


def test_new_and_deleted_entities_are_told(broker):
    with events(broker.http_port, "/overview/stream") as stream:
        next(stream)
        request(broker.http_port, "PUT", "/fresh?api-version=2021-05", queue_entry())
        assert any("fresh" in rows(next(stream)) for _ in range(LOOKS_MAX))
        request(broker.http_port, "DELETE", "/fresh?api-version=2021-05")
        assert any("fresh" in next(stream)["removed"] for _ in range(LOOKS_MAX))


def test_each_namespace_has_its_own_overview(broker):
    answer = ControlClient(broker.http_port, "team-b").get("/overview")
    assert ("team-b", {"theirs"}) == (answer["namespace"], set(rows(answer)))


def test_alerts_name_growing_dead_letters(api, sdk, broker):
    api.get("/overview")
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a"))
    with sdk.get_queue_receiver("orders") as receiver:
        receiver.dead_letter_message(receiver.receive_messages(max_wait_time=10)[0], reason="Bad")
    alerts = alerts_after(broker, "dead_letters_growing")
    assert ["orders has 1 new dead letter, 1 in all."] == [one["message"] for one in alerts]


def test_alerts_name_locks_that_expire_soon(api, sdk, broker):
    api.post("/clock/freeze")
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a"))
    with sdk.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(max_wait_time=10)
        api.post("/clock/advance", seconds=4.2)
        alerts = alerts_after(broker, "locks_expiring")
        assert ["1 lock of orders expires within seconds."] == [one["message"] for one in alerts]


def test_alerts_name_clients_that_fail(api, sdk, broker):
    """The client is still connected, and was refused something."""
    api.get("/overview")
    with sdk.get_queue_receiver("orders") as receiver, sdk.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a"))
        (message,) = receiver.receive_messages(max_wait_time=10)
        api.post("/locks/expire", entity="orders")
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        (failing,) = alerts_after(broker, "client_failing")
        (refused,) = alerts_after(broker, "operations_refused")
    assert "lock" in failing["message"]
    assert ("orders", "orders has refused 1 operation in the last five minutes.") == (
        refused["entity"],
        refused["message"],
    )


def alerts_after(broker: BrokerProcess, kind: str) -> list[dict[str, Any]]:
    """Returns the alerts of a kind, which come with one of the next looks."""
    with events(broker.http_port, "/overview/stream") as stream:
        for _ in range(LOOKS_MAX):
            found = [one for one in next(stream)["alerts"] if one["kind"] == kind]
            if found:
                return found
    return []


def test_thousands_of_entities_are_sent_in_parts():
    config: dict[str, Any] = {"queues": {f"q{number}": {} for number in range(1200)}}
    with BrokerProcess(config=config, testing_api=False) as many:
        with events(many.http_port, "/overview/stream") as stream:
            parts = [next(stream) for _ in range(3)]
        assert [500, 500, 200] == [len(one["entities"]) for one in parts]
        assert [True, False, False] == [one["is_first"] for one in parts]


def test_a_stream_ends_with_its_namespace(api, broker):
    api.post("/namespaces", name="short-lived")
    with events(broker.http_port, "/namespaces/short-lived/overview/stream") as stream:
        next(stream)
        api.request("DELETE", "/namespaces/short-lived")
        for _ in range(LOOKS_MAX):
            if next(stream, None) is None:
                return
    raise AssertionError("the stream goes on")


def test_the_broker_stops_although_a_stream_is_open(broker):
    with events(broker.http_port, "/overview/stream") as stream:
        next(stream)
        assert 0 == broker.terminate()
