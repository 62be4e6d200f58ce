"""Entities with their counts by state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage

from tests.control.client import ControlClient
from tests.support.server import BrokerProcess

COUNTS = ("active", "locked", "deferred", "scheduled", "dead_lettered")


def counts(api, entity: str) -> dict[str, int]:
    found = api.get("/entity", entity=entity)["counts"]
    return {name: found[name] for name in COUNTS if found[name]}


def test_entities_are_listed_in_pages_ordered_by_path(api):
    every = [one["path"] for one in api.get("/entities")["entities"]]
    assert sorted(every, key=str.lower) == every
    paged: list[str] = []
    after: str | None = ""
    while after is not None:
        page = api.get("/entities", limit=3, after=after)
        paged += [one["path"] for one in page["entities"]]
        after = page["next"]
    assert every == paged
    kinds = {kind: api.get("/entities", kind=kind)["entities"] for kind in ("queue", "topic")}
    assert ["events"] == [one["path"] for one in kinds["topic"]]
    assert "orders/eu" in [one["path"] for one in kinds["queue"]]


def test_more_entities_are_listed_than_one_turn_reads():
    with BrokerProcess(config={"queues": {f"q{number}": {} for number in range(130)}}) as broker:
        many = ControlClient(broker.http_port)
        every = many.get("/entities", limit=1000)
        assert ({f"q{number}" for number in range(130)}, None) == (
            {one["path"] for one in every["entities"]},
            every["next"],
        )
        assert every["entities"][:120] == many.get("/entities", limit=120)["entities"]
        page = many.get("/entities", limit=130)
        assert (130, None) == (len(page["entities"]), page["next"])


def test_an_entity_has_its_properties_in_the_names_of_the_config_file(api):
    found = api.get("/entity", entity="Orders")
    assert ("orders", "queue") == (found["path"], found["kind"])
    assert {"lock_duration": "PT1M", "max_delivery_count": 3} == found["properties"]
    red = api.get("/entity", entity="events/subscriptions/red")
    assert {"rules": {"red": {"sql_filter": "color = 'red'"}}} == red["properties"]


def test_one_entity_has_all_properties_as_sdks_name_them(api):
    """Also those that were not set."""
    found = {one["name"]: one for one in api.get("/entity", entity="orders")["all_properties"]}
    assert {
        "name": "lock_duration",
        "service_name": "LockDuration",
        "value": "PT1M",
        "is_default": False,
    } == found["lock_duration"]
    assert (3, False) == (
        found["max_delivery_count"]["value"],
        found["max_delivery_count"]["is_default"],
    )
    assert (None, "Active") == (found["forward_to"]["value"], found["status"]["value"])


def test_each_message_is_counted_in_one_state(api, sdk):
    sender = sdk.get_queue_sender("orders/eu")
    receiver = sdk.get_queue_receiver("orders/eu")
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(5)])
    later = datetime.now(UTC) + timedelta(days=400)
    sender.schedule_messages(ServiceBusMessage("later"), later)
    assert {"active": 5, "scheduled": 1} == counts(api, "orders/eu")
    first, second, third = receiver.receive_messages(max_message_count=3, max_wait_time=5)
    assert {"active": 2, "locked": 3, "scheduled": 1} == counts(api, "orders/eu")
    receiver.defer_message(first)
    receiver.dead_letter_message(second, reason="Bad")
    assert {"active": 2, "locked": 1, "deferred": 1, "scheduled": 1, "dead_lettered": 1} == counts(
        api, "orders/eu"
    )
    [again] = receiver.receive_deferred_messages(first.sequence_number)
    assert {"active": 2, "locked": 2, "scheduled": 1, "dead_lettered": 1} == counts(
        api, "orders/eu"
    )
    receiver.complete_message(again)
    receiver.complete_message(third)
    assert {"active": 2, "scheduled": 1, "dead_lettered": 1} == counts(api, "orders/eu")
    attached = api.get("/entity", entity="orders/eu")
    assert (1, 1) == (attached["receivers"], attached["senders"])


def test_held_sessions_are_counted(api, sdk):
    sdk.get_queue_sender("carts").send_messages(ServiceBusMessage("one", session_id="s"))
    with sdk.get_queue_receiver("carts", session_id="s") as receiver:
        assert 1 == api.get("/entity", entity="carts")["held_sessions"]
        for message in receiver.receive_messages(max_wait_time=5):
            receiver.complete_message(message)
    assert 0 == api.get("/entity", entity="carts")["held_sessions"]
