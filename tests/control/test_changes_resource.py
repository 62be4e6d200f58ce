"""Purge, delete, dead-letter, release, resubmit, expire locks, reset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from tests.control.client import ControlClient

STATES = ("active", "locked", "deferred", "scheduled", "dead_lettered")


def counts(api, entity: str = "orders") -> dict[str, int]:
    found = api.get("/entity", entity=entity)["counts"]
    return {name: found[name] for name in STATES if found[name]}


@pytest.fixture(autouse=True)
def reset(api):
    api.post("/reset")


def send(api, count: int, entity: str = "orders", **properties) -> list[int]:
    messages = [
        {"body": str(n), "application_properties": {"n": n}, **properties} for n in range(count)
    ]
    numbers: list[int] = api.post("/messages", entity=entity, messages=messages)["sequence_numbers"]
    return numbers


def messages_in_every_state(api, sdk):
    """Returns the receiver and a locked message. There are two active messages, and one in each other state."""
    send(api, 5)
    sdk.get_queue_sender("orders").schedule_messages(
        ServiceBusMessage("later"), datetime.now(UTC) + timedelta(days=300)
    )
    receiver = sdk.get_queue_receiver("orders")
    deferred, dead, locked = receiver.receive_messages(max_message_count=3, max_wait_time=5)
    receiver.defer_message(deferred)
    receiver.dead_letter_message(dead, reason="Bad")
    expected = {"active": 2, "locked": 1, "deferred": 1, "scheduled": 1, "dead_lettered": 1}
    assert expected == counts(api)
    return receiver, locked


# --- purge and delete ----------------------------------------------------------------------------


def test_a_purge_deletes_messages_in_every_state(api, sdk):
    receiver, locked = messages_in_every_state(api, sdk)
    assert {"count": 5} == api.post("/purge", entity="orders", sub_queue="main")
    assert {"dead_lettered": 1} == counts(api)
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(locked)
    assert {"count": 1} == api.post("/purge", entity="orders")
    assert {} == counts(api)
    send(api, 1)
    [message] = receiver.receive_messages(max_wait_time=5)
    receiver.complete_message(message)


def test_a_purge_of_a_topic_includes_its_subscriptions(api):
    send(api, 3, "events", subject="x")
    assert 3 == counts(api, "events/subscriptions/audit")["active"]
    assert {"count": 3} == api.post("/purge", entity="events")
    assert {} == counts(api, "events/subscriptions/audit")


def test_a_purge_of_many_messages_is_done_in_parts(api):
    for _ in range(3):
        send(api, 2000)
    assert {"count": 6000} == api.post("/purge", entity="orders")
    assert {} == counts(api)


def test_messages_are_deleted_by_number(api, sdk):
    receiver, locked = messages_in_every_state(api, sdk)
    every = [one["sequence_number"] for one in api.get("/messages", entity="orders")["messages"]]
    answer = api.refused(
        "POST", "/messages/delete", {"entity": "orders", "sequence_numbers": [*every, 999_999]}
    )
    assert (404, "message_not_found") == (answer.status, answer.error["code"])
    assert 5 == len(api.get("/messages", entity="orders")["messages"])
    assert {"count": 5} == api.post("/messages/delete", entity="orders", sequence_numbers=every)
    assert {"dead_lettered": 1} == counts(api)
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(locked)


def test_messages_are_deleted_by_expression(api):
    send(api, 1000)
    assert {"count": 10} == api.post("/messages/delete", entity="orders", filter="n < 10")
    assert {"count": 0} == api.post("/messages/delete", entity="orders", filter="n < 10")
    assert {"active": 990} == counts(api)
    assert {"count": 990} == api.post("/messages/delete", entity="orders", state="active")
    assert {} == counts(api)


def test_a_purge_does_not_delete_what_a_waiting_receiver_takes_later(api, sdk):
    """A receiver that waits with credit gets the next message after a purge."""
    receiver = sdk.get_queue_receiver("orders", prefetch_count=10)
    with receiver:
        send(api, 5)
        api.post("/purge", entity="orders")
        receiver.receive_messages(max_message_count=10, max_wait_time=1)
        send(api, 1, subject="new")
        subjects: list[str] = []
        while not subjects:
            subjects += [
                one.subject for one in receiver.receive_messages(max_wait_time=5) if one.subject
            ]
        assert ["new"] == subjects


# --- dead letters --------------------------------------------------------------------------------


def test_messages_are_dead_lettered_with_a_reason(api, sdk):
    receiver, locked = messages_in_every_state(api, sdk)
    done = api.post(
        "/messages/dead-letter",
        entity="orders",
        sequence_numbers=[locked.sequence_number],
        reason="Stuck",
        description="for an hour",
    )
    assert {"count": 1} == done
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(locked)
    assert {"count": 2} == api.post("/messages/dead-letter", entity="orders", state="active")
    assert {"count": 1} == api.post("/messages/dead-letter", entity="orders", state="deferred")
    dead = sdk.get_queue_receiver("orders", sub_queue="deadletter")
    reasons = [
        (one.dead_letter_reason, one.dead_letter_error_description)
        for one in dead.receive_messages(max_message_count=10, max_wait_time=5)
    ]
    assert ("Stuck", "for an hour") in reasons
    answer = api.refused(
        "POST",
        "/messages/dead-letter",
        {"entity": "orders", "state": "dead_lettered"},
    )
    assert (400, "not_allowed") == (answer.status, answer.error["code"])


def test_dead_letters_are_resubmitted_to_their_queue(api, sdk):
    send(api, 4, message_id=None)
    receiver = sdk.get_queue_receiver("orders")
    for message in receiver.receive_messages(max_message_count=3, max_wait_time=5):
        receiver.dead_letter_message(message, reason="Bad")
    for _ in range(3):
        [last] = receiver.receive_messages(max_wait_time=5)
        receiver.abandon_message(last)
    assert {"dead_lettered": 4} == counts(api)
    done = api.post("/resubmit", entity="orders", filter="reason = 'Bad' AND n > 0")
    assert {"count": 2} == done
    assert {"active": 2, "dead_lettered": 2} == counts(api)
    assert {"count": 2} == api.post("/resubmit", entity="orders")
    again = receiver.receive_messages(max_message_count=4, max_wait_time=5)
    assert ["1", "2", "0", "3"] == [str(one) for one in again]
    for message in again:
        assert (0, None) == (message.delivery_count, message.dead_letter_reason)
        assert b"DeadLetterReason" not in message.application_properties
        receiver.complete_message(message)
    assert {} == counts(api)


def test_dead_letters_are_resubmitted_to_another_entity(api):
    send(api, 3)
    api.post("/messages/dead-letter", entity="orders", state="active", reason="Bad")
    numbers = [
        one["sequence_number"]
        for one in api.get("/messages", entity="orders", state="dead_lettered")["messages"]
    ]
    assert {"count": 1} == api.post(
        "/resubmit", entity="orders", sequence_numbers=numbers[:1], to="retries"
    )
    assert {"active": 1} == counts(api, "retries")
    assert {"count": 2} == api.post("/resubmit", entity="orders", to="events")
    assert {"active": 2} == counts(api, "events/subscriptions/audit")
    answer = api.refused("POST", "/resubmit", {"entity": "orders", "to": "nobody"})
    assert "to" == answer.error["field"]
    assert (404, "entity_not_found") == (answer.status, answer.error["code"])


def test_a_dead_letter_of_a_subscription_goes_back_to_the_subscription(api):
    send(api, 1, "events")
    path = "events/subscriptions/audit"
    api.post("/messages/dead-letter", entity=path, state="active")
    assert {"dead_lettered": 1} == counts(api, path)
    assert {"count": 1} == api.post("/resubmit", entity=path)
    assert {"active": 1} == counts(api, path)


def test_dead_letters_of_a_session_queue_keep_their_session(api, sdk):
    send(api, 2, "carts", session_id="s")
    api.post("/messages/dead-letter", entity="carts", session="s")
    assert {"count": 2} == api.post("/resubmit", entity="carts")
    with sdk.get_queue_receiver("carts", session_id="s") as receiver:
        assert 2 == len(receiver.receive_messages(max_message_count=2, max_wait_time=5))
    send(api, 1)
    api.post("/messages/dead-letter", entity="orders", state="active")
    answer = api.refused("POST", "/resubmit", {"entity": "orders", "to": "carts"})
    assert (400, "not_allowed") == (answer.status, answer.error["code"])
    assert {"dead_lettered": 1} == counts(api)


def test_a_locked_dead_letter_is_not_resubmitted(api, sdk):
    send(api, 2)
    api.post("/messages/dead-letter", entity="orders", state="active")
    dead = sdk.get_queue_receiver("orders", sub_queue="deadletter")
    [message] = dead.receive_messages(max_wait_time=5)
    assert {"count": 1} == api.post("/resubmit", entity="orders")
    dead.complete_message(message)
    assert {"active": 1} == counts(api)


# --- locks ---------------------------------------------------------------------------------------


def test_a_released_message_is_received_again_without_a_failed_delivery(api, sdk):
    receiver, locked = messages_in_every_state(api, sdk)
    number = locked.sequence_number
    assert {"count": 1} == api.post("/messages/release", entity="orders", sequence_numbers=[number])
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(locked)
    [again] = receiver.receive_messages(max_wait_time=5)
    assert (number, 0) == (again.sequence_number, again.delivery_count)


def test_deferred_and_scheduled_messages_are_released(api, sdk):
    receiver, _ = messages_in_every_state(api, sdk)
    assert {"count": 1} == api.post("/messages/release", entity="orders", state="deferred")
    assert {"count": 1} == api.post("/messages/release", entity="orders", state="scheduled")
    assert {"active": 4, "locked": 1, "dead_lettered": 1} == counts(api)
    got = receiver.receive_messages(max_message_count=4, max_wait_time=5)
    assert ["0", "3", "4", "later"] == [str(one) for one in got]


def test_a_scheduled_message_of_a_topic_is_released(api):
    api.post(
        "/messages",
        entity="events",
        messages=[{"body": "x", "scheduled_for": "2126-01-01T00:00:00Z"}],
    )
    assert {"scheduled": 1} == counts(api, "events")
    assert {"count": 1} == api.post("/messages/release", entity="events", state="scheduled")
    assert {"active": 1} == counts(api, "events/subscriptions/audit")


def test_an_expired_lock_counts_as_a_failed_delivery(api, sdk):
    send(api, 3)
    receiver = sdk.get_queue_receiver("orders")
    first, second, third = receiver.receive_messages(max_message_count=3, max_wait_time=5)
    assert {"count": 1} == api.post(
        "/locks/expire", entity="orders", sequence_numbers=[first.sequence_number]
    )
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(first)
    receiver.complete_message(second)
    assert {"count": 1} == api.post("/locks/expire", entity="orders")
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(third)
    again = receiver.receive_messages(max_message_count=2, max_wait_time=5)
    assert [1, 1] == [one.delivery_count for one in again]
    answer = api.refused(
        "POST", "/locks/expire", {"entity": "orders", "sequence_numbers": [second.sequence_number]}
    )
    assert (404, "message_not_found") == (answer.status, answer.error["code"])


def test_the_lock_of_a_session_is_expired(api, sdk):
    send(api, 2, "carts", session_id="s")
    with sdk.get_queue_receiver("carts", session_id="s") as receiver:
        [message] = receiver.receive_messages(max_wait_time=5)
        assert {"count": 2} == api.post("/locks/expire", entity="carts", session="s")
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)
    with sdk.get_queue_receiver("carts", session_id="s") as receiver:
        assert 2 == len(receiver.receive_messages(max_message_count=2, max_wait_time=5))
    answer = api.refused("POST", "/locks/expire", {"entity": "carts", "session": "other"})
    assert 400 == answer.status


# --- reset ---------------------------------------------------------------------------------------


def test_a_reset_makes_the_namespace_as_declared(api, sdk, admin):
    before = api.get("/entities")
    receiver, locked = messages_in_every_state(api, sdk)
    send(api, 2, "carts", session_id="s")
    holder = sdk.get_queue_receiver("carts", session_id="s")
    holder.session.set_state("half")
    admin.create_queue("extra")
    admin.delete_queue("retries")
    orders = admin.get_queue("orders")
    orders.max_delivery_count = 7
    admin.update_queue(orders)
    admin.create_rule("events", "audit", "more")
    admin.delete_rule("events", "red", "red")
    assert api.post("/reset")["purged"] >= 6

    def shown(entities):
        return [(one["path"], one["properties"], one["counts"]) for one in entities["entities"]]

    assert shown(before) == shown(api.get("/entities"))
    assert {"sessions": [], "waiting_receivers": 0, "next": None} == api.get(
        "/sessions", entity="carts"
    )
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(locked)
    send(api, 1)
    [message] = receiver.receive_messages(max_wait_time=5)
    receiver.complete_message(message)


def test_a_reset_concerns_one_namespace(api, broker):
    other = ControlClient(broker.http_port, "team-b")
    other.post("/messages", entity="orders", messages=[{"body": "x"}])
    api.post("/reset")
    assert 1 == other.get("/entity", entity="orders")["counts"]["active"]
    assert {"purged": 1} == other.post("/reset")


def test_changes_are_durable(api, broker):
    """What was answered is there after a kill."""
    if broker.storage == "memory:":
        return
    send(api, 10)
    api.post("/messages/delete", entity="orders", filter="n = 0")
    api.post("/messages/dead-letter", entity="orders", filter="n = 1", reason="Bad")
    api.post("/messages/dead-letter", entity="orders", filter="n = 2", reason="Bad")
    api.post("/resubmit", entity="orders", filter="n = 2")
    before = (
        api.get("/messages", entity="orders"),
        api.get("/messages", entity="orders", state="dead_lettered"),
    )
    broker.kill()
    broker.start()
    after = (
        api.get("/messages", entity="orders"),
        api.get("/messages", entity="orders", state="dead_lettered"),
    )
    assert before == after
    assert {"active": 8, "dead_lettered": 1} == counts(api)


# --- wrong requests ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "field"),
    [
        ("/purge", {"entity": "nobody"}, 404, "entity_not_found", "entity"),
        ("/purge", {}, 400, "missing_field", "entity"),
        ("/purge", {"entity": "orders", "subqueue": "main"}, 400, "unknown_field", "subqueue"),
        ("/messages/delete", {"entity": "orders"}, 400, "invalid_request", None),
        (
            "/messages/delete",
            {"entity": "orders", "sequence_numbers": [1], "state": "active"},
            400,
            "invalid_request",
            None,
        ),
        (
            "/messages/delete",
            {"entity": "orders", "sequence_numbers": ["1"]},
            400,
            "invalid_field",
            "sequence_numbers[0]",
        ),
        (
            "/messages/delete",
            {"entity": "orders", "filter": "n ="},
            400,
            "invalid_expression",
            "filter",
        ),
        (
            "/messages/release",
            {"entity": "nobody", "state": "locked"},
            404,
            "entity_not_found",
            "entity",
        ),
        ("/resubmit", {"entity": "orders", "sub_queue": "main"}, 400, "argument_error", None),
        ("/resubmit", {"entity": "orders", "filter": "("}, 400, "invalid_expression", "filter"),
        ("/locks/expire", {"entity": "orders", "session": "s"}, 400, "not_allowed", None),
        ("/reset", {"all": True}, 400, "unknown_field", "all"),
    ],
)
def test_a_wrong_request_changes_nothing(api, path, body, status, code, field):
    send(api, 2)
    answer = api.refused("POST", path, body)
    assert (status, code, field) == (answer.status, answer.error["code"], answer.error["field"])
    assert {"active": 2} == counts(api)
