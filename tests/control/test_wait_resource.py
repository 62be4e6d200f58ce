"""A wait is answered when its conditions hold, and after its time with what was seen last."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusMessage

from tests.control.client import ControlClient
from tests.support.server import BrokerProcess

SOON_S = 5.0
"""How long an answer may take on a busy machine. Waits have a minute, so a wait that nothing wakes fails."""


@pytest.fixture(autouse=True)
def reset(api):
    api.post("/reset")


@pytest.fixture
def waits(api):
    """Begins waits in threads."""
    with ThreadPoolExecutor(20) as pool:

        def begin(*conditions, client: ControlClient = api):
            running = pool.submit(
                client.request, "POST", "/wait", {"conditions": list(conditions), "timeout_s": 60}
            )
            with pytest.raises(TimeoutError):
                running.result(0.2)
            return running

        yield begin


def answered(running):
    began_s = time.monotonic()
    answer = running.result(SOON_S)
    assert 200 == answer.status, answer
    assert time.monotonic() - began_s < SOON_S
    return answer.content["seen"]


def send(api, count: int = 1, entity: str = "orders", **properties) -> None:
    messages = [{"body": str(n), **properties} for n in range(count)]
    api.post("/messages", entity=entity, messages=messages)


def test_conditions_that_hold_are_answered_at_once(api):
    send(api, 2)
    found = api.post("/wait", conditions=[{"entity": "orders", "equals": 2}], timeout_s=0)
    assert [{"holds": True, "count": 2, "messages": []}] == found["seen"]
    assert found["waited_s"] < SOON_S


def test_a_wait_ends_when_a_message_arrives(api, sdk, waits):
    running = waits({"entity": "orders"})
    sdk.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    assert 1 == answered(running)[0]["count"]


def test_a_wait_for_a_dead_letter_with_a_reason(api, sdk, waits):
    send(api, 2)
    running = waits({"entity": "orders", "state": "dead_lettered", "filter": "reason = 'Bad'"})
    receiver = sdk.get_queue_receiver("orders")
    first, second = receiver.receive_messages(max_message_count=2, max_wait_time=5)
    receiver.dead_letter_message(first, reason="Worse")
    with pytest.raises(TimeoutError):
        running.result(0.3)
    receiver.dead_letter_message(second, reason="Bad")
    [seen] = answered(running)
    [message] = seen["messages"]
    assert ("1", "Bad", "dead_letter") == (
        message["body"],
        message["dead_letter"]["reason"],
        message["sub_queue"],
    )


def test_a_wait_until_everything_is_settled(api, sdk, waits):
    send(api, 2)
    send(api, 1, "events")
    for_all, for_one = waits({"is": "settled"}), waits({"entity": "orders", "is": "settled"})
    receiver = sdk.get_queue_receiver("orders")
    first, second = receiver.receive_messages(max_message_count=2, max_wait_time=5)
    receiver.complete_message(first)
    with pytest.raises(TimeoutError):
        for_one.result(0.3)
    receiver.complete_message(second)
    answered(for_one)
    with pytest.raises(TimeoutError):
        for_all.result(0.3)
    topic = sdk.get_subscription_receiver("events", "audit", receive_mode="receiveanddelete")
    assert topic.receive_messages(max_wait_time=5)
    answered(for_all)


def test_a_wait_until_no_lock_is_held(api, sdk, waits):
    send(api)
    send(api, 1, "carts", session_id="s")
    receiver = sdk.get_queue_receiver("orders")
    [message] = receiver.receive_messages(max_wait_time=5)
    holder = sdk.get_queue_receiver("carts", session_id="s")
    with holder:
        holder.receive_messages(max_wait_time=5)
        running, of_session = (
            waits({"is": "unlocked"}),
            waits({"entity": "carts", "is": "unlocked"}),
        )
        receiver.abandon_message(message)
        with pytest.raises(TimeoutError):
            running.result(0.3)
    answered(of_session)
    answered(running)


def test_a_held_session_without_messages_is_a_lock(api, sdk, waits):
    with sdk.get_queue_receiver("carts", session_id="s") as receiver:
        receiver.session.get_state()
        running = waits({"entity": "carts", "is": "unlocked"})
    answered(running)


def test_a_lock_that_expires_ends_a_wait(api, sdk, waits):
    send(api, 1, "short")
    sdk.get_queue_receiver("short").receive_messages(max_wait_time=5)
    running = waits({"entity": "short", "state": "active"})
    api.post("/clock/advance", seconds=6)
    answered(running)


def test_a_change_of_a_message_that_keeps_all_counts_ends_a_wait(api, sdk, waits):
    """The delivery fails and the message is locked again in the same turn."""
    send(api)
    receiver = sdk.get_queue_receiver("orders", prefetch_count=5)
    with receiver:
        [message] = receiver.receive_messages(max_wait_time=5)
        running = waits({"entity": "orders", "filter": "sys.DeliveryCount = 1"})
        receiver.abandon_message(message)
        answered(running)


def test_all_conditions_must_hold_together(api, waits):
    running = waits({"entity": "orders", "equals": 1}, {"entity": "retries", "equals": 1})
    send(api)
    with pytest.raises(TimeoutError):
        running.result(0.3)
    send(api, 1, "retries")
    assert [True, True] == [one["holds"] for one in answered(running)]


def test_waits_on_sessions_states_and_purges(api, waits):
    send(api, 3, "carts", session_id="a")
    send(api, 1, "carts", session_id="b")
    of_session = waits({"entity": "carts", "session": "b", "equals": 0})
    empty = waits({"entity": "carts", "is": "empty"})
    api.post("/messages/delete", entity="carts", session="b")
    answered(of_session)
    api.post("/purge", entity="carts")
    answered(empty)


def test_many_wait_at_once(api, waits):
    running = [waits({"entity": "orders", "at_least": number}) for number in range(1, 6)]
    send(api, 5)
    assert [5] * 5 == [answered(one)[0]["count"] for one in running]


def test_a_wait_that_times_out_says_what_was_seen_last(api):
    send(api, 2)
    answer = api.refused(
        "POST",
        "/wait",
        {
            "conditions": [
                {"entity": "orders", "at_least": 2},
                {"entity": "orders", "filter": "sys.SequenceNumber > 0", "at_most": 0},
            ],
            "timeout_s": 0.3,
        },
    )
    assert (408, "wait_timed_out", "conditions[1]") == (
        answer.status,
        answer.error["code"],
        answer.error["field"],
    )
    first, second = answer.content["seen"]
    assert (True, 2) == (first["holds"], first["count"])
    assert (False, 1, "0") == (second["holds"], second["count"], second["messages"][0]["body"])


def test_a_long_search_ends_with_the_time_of_the_wait(api):
    """What was not looked at in time does not hold."""
    for _ in range(4):
        send(api, 5000)
    began_s = time.monotonic()
    answer = api.refused(
        "POST",
        "/wait",
        {
            "conditions": [{"entity": "orders", "filter": "a LIKE '%b%' OR c = 1"}] * 40,
            "timeout_s": 0,
        },
    )
    assert 408 == answer.status
    assert time.monotonic() - began_s < SOON_S
    assert 40 == len(answer.content["seen"])


def test_an_entity_that_is_deleted_ends_a_wait(api, admin, waits):
    admin.create_queue("brief")
    running = waits({"entity": "brief"})
    admin.delete_queue("brief")
    answer = running.result(SOON_S)
    assert (404, "entity_not_found") == (answer.status, answer.error["code"])


def test_a_namespace_that_is_deleted_or_restored_ends_a_wait(api, broker, waits):
    api.post("/namespaces", name="brief", topology={"queues": {"orders": {}}})
    brief = ControlClient(broker.http_port, "brief")
    send(brief)
    brief.post("/snapshots", name="one")
    brief.post("/purge", entity="orders")
    running = waits({"entity": "orders"}, client=brief)
    brief.post("/snapshots/one/restore")
    answered(running)
    running = waits({"entity": "orders", "at_least": 2}, client=brief)
    assert 200 == api.request("DELETE", "/namespaces/brief").status
    answer = running.result(SOON_S)
    assert (404, "namespace_not_found") == (answer.status, answer.error["code"])


def test_a_broker_that_stops_answers_its_waits():
    """The client reads a sentence instead of a closed connection, and the stop does not take longer."""
    with BrokerProcess(testing_api=False) as stopping, ThreadPoolExecutor(1) as pool:
        client = ControlClient(stopping.http_port)
        client.get("/entities")  # the first request loads the API
        body = {"conditions": [{"entity": "queue.1"}], "timeout_s": 60}
        running = pool.submit(client.request, "POST", "/wait", body)
        with pytest.raises(TimeoutError):
            running.result(0.3)
        stopping.terminate()
        answer = running.result(SOON_S)
        assert (503, "server_busy") == (answer.status, answer.error["code"])
        assert "The broker is stopping." == answer.error["message"]


def test_a_wait_does_not_see_another_namespace(api, broker, waits):
    other = ControlClient(broker.http_port, "team-b")
    running = waits({"entity": "orders"}, client=other)
    send(api)
    with pytest.raises(TimeoutError):
        running.result(0.3)
    send(other)
    answered(running)
    other.post("/reset")


@pytest.mark.parametrize(
    ("conditions", "status", "code", "field"),
    [
        ([], 400, "invalid_field", "conditions"),
        ([{}], 400, "invalid_field", "conditions[0]"),
        ([{"entity": "nobody"}], 404, "entity_not_found", "conditions[0].entity"),
        (
            [{"is": "empty"}, {"entity": "nobody", "state": "dead_lettered"}],
            404,
            "entity_not_found",
            "conditions[1].entity",
        ),
        ([{"entity": "nobody", "is": "empty"}], 404, "entity_not_found", "conditions[0].entity"),
        ([{"entity": "nobody", "filter": "1=1"}], 404, "entity_not_found", "conditions[0].entity"),
        (
            [{"entity": "orders", "filter": "a ="}],
            400,
            "invalid_expression",
            "conditions[0].filter",
        ),
        ([{"entity": "orders", "is": "happy"}], 400, "invalid_field", "conditions[0].is"),
        ([{"entity": "orders", "is": "empty", "equals": 1}], 400, "invalid_field", "conditions[0]"),
        ([{"entity": "orders", "equals": 1, "at_most": 1}], 400, "invalid_field", "conditions[0]"),
        ([{"entity": "orders", "atleast": 1}], 400, "unknown_field", "conditions[0].atleast"),
        ([{"entity": "orders", "equals": "1"}], 400, "invalid_field", "conditions[0].equals"),
    ],
)
def test_a_wrong_condition_is_refused(api, conditions, status, code, field):
    answer = api.refused("POST", "/wait", {"conditions": conditions, "timeout_s": 0})
    assert (status, code, field) == (answer.status, answer.error["code"], answer.error["field"])
