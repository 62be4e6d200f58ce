"""Messages are read by state, session and expression, with all properties, and nothing is disturbed."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import MessageLockLostError

from tests.control.client import ControlClient
from tests.control.conftest import CONFIG
from tests.support.server import BrokerProcess


def numbers(page) -> list[int]:
    return [one["sequence_number"] for one in page["messages"]]


@pytest.fixture
def purged(api):
    """Empties the queue that a test has used."""
    yield
    api.post("/purge", entity="orders")


def test_a_message_is_shown_with_all_its_properties(api, sdk, purged):
    sdk.get_queue_sender("orders").send_messages(
        ServiceBusMessage(
            '{"id": 7}',
            message_id="m-1",
            correlation_id="c-1",
            subject="created",
            content_type="application/json",
            reply_to="answers",
            reply_to_session_id="r",
            to="somewhere",
            session_id="s-1",
            partition_key="s-1",
            time_to_live=timedelta(hours=1),
            application_properties={
                "color": "red",
                "size": 3,
                "ratio": 0.5,
            },
        )
    )
    [shown] = api.get("/messages", entity="orders")["messages"]
    expected = {
        "message_id": "m-1",
        "correlation_id": "c-1",
        "subject": "created",
        "content_type": "application/json",
        "reply_to": "answers",
        "reply_to_session_id": "r",
        "to": "somewhere",
        "session_id": "s-1",
        "partition_key": "s-1",
        "time_to_live_ms": 3_600_000,
        "state": "active",
        "sub_queue": "main",
        "delivery_count": 0,
        "lock": None,
        "dead_letter": None,
        "body": {"id": 7},
        "body_format": "json",
        "body_type": "data",
    }
    assert expected == {name: shown[name] for name in expected}
    properties = shown["application_properties"]
    assert {"color": "red", "size": 3, "ratio": 0.5} == properties
    enqueued = datetime.fromisoformat(shown["enqueued_at"])
    assert timedelta(hours=1) == datetime.fromisoformat(shown["expires_at"]) - enqueued
    alone = api.get("/message", entity="orders", sequence_number=shown["sequence_number"])
    types = alone.pop("types")
    assert shown == alone
    assert {"color": "string", "size": "int", "ratio": "double"} == types["application_properties"]
    assert ("string", "symbol") == (
        types["properties"]["message_id"],
        types["properties"]["content_type"],
    )
    assert {"body": "data"} == types["body"]


@pytest.mark.parametrize(
    ("sent", "content_type", "asked", "body", "body_format"),
    [
        ("hello", None, "auto", "hello", "text"),
        ("hello", "application/json", "auto", "hello", "text"),
        ("[1]", "application/json", "text", "[1]", "text"),
        ("[1]", None, "auto", "[1]", "text"),
        ("[1]", None, "json", [1], "json"),
        (b"\xff\x00", None, "auto", "/wA=", "base64"),
        (b"\xff\x00", None, "json", "/wA=", "base64"),
        ("hello", None, "base64", "aGVsbG8=", "base64"),
        ("[NaN]", "application/json", "auto", "[NaN]", "text"),
        ("[1e999]", "application/json", "auto", "[1e999]", "text"),
        ('"\\ud800"', "application/json", "auto", "\ud800", "json"),
        ("hello", None, "none", None, "none"),
    ],
)
def test_a_body_is_text_json_or_base64(
    api, sdk, purged, sent, content_type, asked, body, body_format
):
    sdk.get_queue_sender("orders").send_messages(ServiceBusMessage(sent, content_type=content_type))
    [shown] = api.get("/messages", entity="orders", body=asked)["messages"]
    assert (body, body_format) == (shown["body"], shown["body_format"])
    if asked == "base64":
        assert b"hello" == b64decode(shown["body"])


def test_values_and_sequences_are_shown_as_json(api, sdk, purged):
    sender = sdk.get_queue_sender("orders")
    sender.send_messages(AmqpAnnotatedMessage(value_body={"a": [1, b"\xff"], b"k": 2}))
    sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1, "two"]]))
    assert AmqpMessageBodyType.VALUE
    value, sequence = api.get("/messages", entity="orders")["messages"]
    assert ({"a": [1, "/w=="], "aw==": 2}, "json", "value") == (
        value["body"],
        value["body_format"],
        value["body_type"],
    )
    assert ([1, "two"], "sequence") == (sequence["body"], sequence["body_type"])


def test_messages_are_selected_by_state(api, sdk, purged):
    sender, receiver = sdk.get_queue_sender("orders"), sdk.get_queue_receiver("orders")
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(4)])
    [scheduled] = sender.schedule_messages(
        ServiceBusMessage("later"), datetime.now(UTC) + timedelta(days=300)
    )
    deferred, dead, locked = receiver.receive_messages(max_message_count=3, max_wait_time=5)
    receiver.defer_message(deferred)
    receiver.dead_letter_message(dead, reason="Bad", error_description="very bad")
    by_state = {
        state: api.get("/messages", entity="orders", state=state)["messages"]
        for state in ("active", "locked", "deferred", "scheduled", "dead_lettered")
    }
    assert [1] * 5 == [len(messages) for messages in by_state.values()]
    assert deferred.sequence_number == by_state["deferred"][0]["sequence_number"]
    assert scheduled == by_state["scheduled"][0]["sequence_number"]
    assert by_state["scheduled"][0]["scheduled_for"] is not None
    assert {"reason": "Bad", "description": "very bad", "source": None} == by_state[
        "dead_lettered"
    ][0]["dead_letter"]
    for query in (
        {"entity": "orders", "sub_queue": "dead_letter"},
        {"entity": "orders/$deadletterqueue"},
        {"entity": "orders/$DeadLetterQueue", "state": "dead_lettered"},
    ):
        assert by_state["dead_lettered"] == api.get("/messages", **query)["messages"]
    lock = by_state["locked"][0]["lock"]
    assert str(locked.lock_token) == lock["token"]
    until = datetime.fromisoformat(lock["until"])
    assert abs(until - locked.locked_until_utc) < timedelta(seconds=1)
    [connection] = [
        one
        for one in api.get("/connections")["connections"]
        if one["id"] == lock["holder"]["connection_id"]
    ]
    assert lock["holder"]["container_id"] == connection["container_id"]
    assert lock["holder"]["link"] in [link["name"] for link in connection["links"]]
    receiver.complete_message(locked)
    sender.cancel_scheduled_messages(scheduled)
    [again] = receiver.receive_deferred_messages(deferred.sequence_number)
    receiver.complete_message(again)


def test_looking_disturbs_nothing(api, sdk, purged):
    """The message is delivered afterwards for the first time, and the entity was not used by the look."""
    sdk.get_queue_sender("orders").send_messages(ServiceBusMessage("once"))
    before = api.get("/entity", entity="orders")
    for _ in range(3):
        api.get("/messages", entity="orders", filter="sys.DeliveryCount = 0")
    assert before == api.get("/entity", entity="orders")
    [message] = sdk.get_queue_receiver("orders").receive_messages(max_wait_time=5)
    assert 0 == message.delivery_count


def test_messages_are_selected_by_expression(api, sdk, purged):
    sender, receiver = sdk.get_queue_sender("orders"), sdk.get_queue_receiver("orders")
    sender.send_messages(
        [
            ServiceBusMessage(
                "x",
                message_id=f"m{number}",
                subject="even" if number % 2 == 0 else "odd",
                application_properties={"number": number, "reason": "mine"}
                if number == 3
                else {"number": number},
            )
            for number in range(6)
        ]
    )

    def found(expression, **query):
        page = api.get("/messages", entity="orders", filter=expression, **query)
        return [one["message_id"] for one in page["messages"]]

    assert ["m4", "m5"] == found("number > 3")
    assert ["m0", "m2", "m4"] == found("sys.Label = 'even'")
    assert ["m1"] == found("sys.MessageId LIKE '%1' OR user.number = 17")
    assert [] == found("nothing = 1")
    assert ["m3"] == found("reason = 'mine'")
    for message in receiver.receive_messages(max_message_count=2, max_wait_time=5):
        receiver.dead_letter_message(message, reason="Bad", error_description="so")
    assert ["m1"] == found("reason = 'Bad' AND number = 1", state="dead_lettered")
    assert ["m0", "m1"] == found("DeadLetterReason = 'Bad'", sub_queue="dead_letter")
    assert ["m0"] == found("description = 'so'", sub_queue="dead_letter", limit=1)


def test_messages_come_in_pages(api, sdk, purged):
    sender = sdk.get_queue_sender("orders")
    sender.send_messages(
        [ServiceBusMessage("x", application_properties={"n": number}) for number in range(500)]
    )
    for query in ({}, {"filter": "n >= 0"}, {"state": "active"}):
        seen: list[int] = []
        after: int | None = 0
        while after is not None:
            page = api.get("/messages", entity="orders", limit=130, after=after, **query)
            assert len(page["messages"]) <= 130
            seen += numbers(page)
            after = page["next"]
        assert len(seen) == 500
        assert sorted(set(seen)) == seen
    assert 10 == len(api.get("/messages", entity="orders", filter="n >= 490")["messages"])


def test_messages_of_a_session_and_of_a_subscription(api, sdk):
    sdk.get_queue_sender("carts").send_messages(
        [ServiceBusMessage(text, session_id=text[0]) for text in ("a1", "b1", "a2")]
    )
    shown = api.get("/messages", entity="carts", session="A")["messages"]
    assert ["a1", "a2"] == [one["body"] for one in shown]
    sdk.get_topic_sender("events").send_messages(
        [
            ServiceBusMessage(color, application_properties={"color": color})
            for color in ("red", "blue")
        ]
    )
    for path in ("events/subscriptions/red", "Events/Subscriptions/RED"):
        [red] = api.get("/messages", entity=path)["messages"]
        assert "red" == red["body"]
    assert 2 == len(api.get("/messages", entity="events/subscriptions/audit")["messages"])
    assert [] == api.get("/messages", entity="events")["messages"]


@pytest.mark.parametrize(
    ("query", "status", "code", "field"),
    [
        ({"entity": "nobody"}, 404, "entity_not_found", "entity"),
        ({"entity": "orders", "filter": "color = "}, 400, "invalid_expression", "filter"),
        ({"entity": "orders", "filter": ""}, 400, "invalid_expression", "filter"),
        ({"entity": "orders", "filter": "sys.Nothing = 1"}, 400, "invalid_expression", "filter"),
        ({"entity": "orders", "filter": "a" * 5000}, 400, "invalid_field", "filter"),
        ({"entity": "orders", "state": "gone"}, 400, "invalid_field", "state"),
        ({"entity": "orders", "sub_queue": "dlq"}, 400, "invalid_field", "sub_queue"),
        ({"entity": "orders", "after": -1}, 400, "invalid_field", "after"),
        ({"entity": "orders", "limit": 5000}, 400, "invalid_field", "limit"),
        (
            {"entity": "orders/$deadletterqueue", "sub_queue": "dead_letter"},
            400,
            "invalid_field",
            "sub_queue",
        ),
    ],
)
def test_a_wrong_query_is_refused(api, query, status, code, field):
    answer = api.refused("GET", "/messages", **query)
    assert (status, code, field) == (answer.status, answer.error["code"], answer.error["field"])


def test_a_wrong_expression_is_refused_with_its_position(api):
    answer = api.refused("GET", "/messages", entity="orders", filter="color = 'red' AND AND")
    assert "line 1, column 19" in answer.error["message"]


def test_the_longest_expression_fits_into_the_address(api, sdk, purged):
    """Characters of other alphabets take six bytes or more there."""
    sdk.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    text = "sys.Label IS NULL OR a = '{}'"
    expression = text.format("語" * (4096 - len(text) + 2))
    assert 4096 == len(expression)
    assert 1 == len(api.get("/messages", entity="orders", filter=expression)["messages"])


def test_an_unknown_message_is_not_found(api):
    answer = api.refused("GET", "/message", entity="orders", sequence_number=999_999)
    assert (404, "message_not_found") == (answer.status, answer.error["code"])


def test_sessions_have_holders_and_states(api, sdk):
    sdk.get_queue_sender("carts").send_messages(
        [ServiceBusMessage("x", session_id=name) for name in ("one", "two")]
    )
    with sdk.get_queue_receiver("carts", session_id="one") as receiver:
        receiver.session.set_state("half done")
        receiver.receive_messages(max_wait_time=5)
        found = api.get("/sessions", entity="carts")
        by_id = {one["session_id"]: one for one in found["sessions"]}
        one, two = by_id["one"], by_id["two"]
        assert ("half done", "text", 1, 1) == (
            one["state"],
            one["state_format"],
            one["messages"],
            one["locked"],
        )
        assert one["lock"]["holder"]["link"]
        assert (None, None, 1) == (two["state"], two["lock"], two["messages"])
        links = [link for c in api.get("/connections")["connections"] for link in c["links"]]
        assert "one" in [link["session_id"] for link in links]
    answer = api.refused("GET", "/sessions", entity="orders")
    assert 400 == answer.status


def test_sessions_come_in_pages(api, sdk):
    sdk.get_queue_sender("carts").send_messages(
        [ServiceBusMessage("x", session_id=f"p{number}") for number in range(7)]
    )
    seen = sessions_in_pages(api, limit=3)
    assert sorted(set(seen)) == seen
    assert {f"p{number}" for number in range(7)} <= set(seen)


def sessions_in_pages(api, **query) -> list[str]:
    """Returns the ids of all sessions."""
    page = api.get("/sessions", entity="carts", **query)
    seen = [one["session_id"] for one in page["sessions"]]
    while page["next"] is not None:
        page = api.get("/sessions", entity="carts", after=page["next"], **query)
        seen += [one["session_id"] for one in page["sessions"]]
    return seen


def test_a_session_without_a_name_is_listed(api):
    """An empty session id is one, too."""
    messages = [{"session_id": name} for name in ("", "named")]
    api.post("/messages", entity="carts", messages=messages)
    assert {"", "named"} <= set(sessions_in_pages(api))
    assert {"", "named"} <= set(sessions_in_pages(api, limit=1))


def test_a_page_of_sessions_ends_before_their_states_are_too_large(api, sdk):
    """Other clients would wait while they are written."""
    names = [f"large-{number}" for number in range(9)]
    for name in names:
        with sdk.get_queue_receiver("carts", session_id=name) as receiver:
            receiver.session.set_state(b"x" * 1_000_000)
    page = api.get("/sessions", entity="carts", after="large")
    assert names[:8] == [one["session_id"] for one in page["sessions"]]
    assert names[7] == page["next"]
    assert set(names) <= set(sessions_in_pages(api))


def test_a_connection_shows_its_links_and_its_last_error(api, sdk, broker):
    receiver = sdk.get_queue_receiver("retries", prefetch_count=5)
    with receiver:
        sdk.get_queue_sender("retries").send_messages(ServiceBusMessage("x"))
        [message] = receiver.receive_messages(max_wait_time=5)
        connections = api.get("/connections")["connections"]
        assert {"127.0.0.1"} == {one["client"].rpartition(":")[0] for one in connections}
        links = [
            (link["role"], link["address"], link["unsettled"], link["deliveries"])
            for one in connections
            for link in one["links"]
        ]
        assert ("receiver", "retries", 1, 1) in links
        receiver.complete_message(message)
    assert [] == ControlClient(broker.http_port, "team-b").get("/connections")["connections"]


def test_a_connection_shows_the_last_error_that_it_was_sent(api, sdk):
    sdk.get_queue_sender("retries").send_messages(ServiceBusMessage("x"))
    receiver = sdk.get_queue_receiver("retries")
    [message] = receiver.receive_messages(max_wait_time=5)
    api.post("/locks/expire", entity="retries")
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(message)
    errors = [one["last_error"] for one in api.get("/connections")["connections"]]
    [error] = [one for one in errors if one is not None]
    assert "com.microsoft:message-lock-lost" == error["condition"]
    assert "TrackingId" in error["message"]
    api.post("/purge", entity="retries")


def test_bodies_that_only_the_store_has_are_read_from_it(tmp_path):
    """With little memory for bodies, and with packed messages."""
    environment = {"PEEKLOCK_PAYLOAD_MEMORY": "1KiB"}
    storage = f"sqlite:///{tmp_path / 'paged.db'}"
    with BrokerProcess(config=CONFIG, storage=storage, environment=environment) as broker:
        from azure.servicebus import ServiceBusClient

        with ServiceBusClient.from_connection_string(broker.connection_string) as sdk:
            sender = sdk.get_queue_sender("orders")
            for start in range(0, 1000, 500):
                sender.send_messages(
                    [
                        ServiceBusMessage(f"{n} {'x' * 50}", application_properties={"n": n})
                        for n in range(start, start + 500)
                    ]
                )
            api = ControlClient(broker.http_port)
            page = api.get("/messages", entity="orders", limit=1000)
            assert [str(n) for n in range(1000)] == [
                one["body"].partition(" ")[0] for one in page["messages"]
            ]
            [found] = api.get("/messages", entity="orders", filter="n = 777")["messages"]
            assert found["body"].startswith("777 ")
            [message] = sdk.get_queue_receiver("orders").receive_messages(max_wait_time=5)
            assert str(message).startswith("0 ")


def test_packed_scheduled_messages_are_shown_cancelled_and_delivered(tmp_path):
    """Also after a restart. With little memory for bodies, blocks of scheduled messages are packed."""
    storage = f"sqlite:///{tmp_path / 'paged.db'}"
    with BrokerProcess(
        config=CONFIG,
        storage=storage,
        environment={"PEEKLOCK_PAYLOAD_MEMORY": "1KiB"},
        testing_api=True,
    ) as broker:
        from azure.servicebus import ServiceBusClient

        due = datetime.now(UTC) + timedelta(hours=1)
        with ServiceBusClient.from_connection_string(broker.connection_string) as sdk:
            scheduled = sdk.get_queue_sender("orders").schedule_messages(
                [ServiceBusMessage(f"{n}") for n in range(500)], due
            )
        broker.restart()
        api = ControlClient(broker.http_port)
        shown = api.get("/messages", entity="orders", state="scheduled", limit=1000)["messages"]
        assert scheduled == [one["sequence_number"] for one in shown]
        assert [] == api.get("/messages", entity="orders", state="active")["messages"]
        with ServiceBusClient.from_connection_string(broker.connection_string) as sdk:
            sdk.get_queue_sender("orders").cancel_scheduled_messages(scheduled[200])
            receiver = sdk.get_queue_receiver("orders", receive_mode="receiveanddelete")
            assert ["300"] == [
                str(one) for one in receiver.peek_messages(1, sequence_number=scheduled[300])
            ]
            broker.advance_clock(3_600_000)
            received: list[str] = []
            while len(received) < 499:
                received += map(str, receiver.receive_messages(499, max_wait_time=10))
            assert [f"{n}" for n in range(500) if n != 200] == received


def test_messages_are_found_by_a_text(api, sdk):
    """In the body, an id, a property or the reason of a dead letter, whatever the case of its letters."""
    api.post("/purge", entity="orders")
    messages = [
        {"body": "Grüße aus Köln", "message_id": "one"},
        {"body": {"city": "Paris"}, "application_properties": {"Country": "France"}},
        {"body": "nothing", "subject": "paris calling"},
    ]
    first, second, third = api.post("/messages", entity="orders", messages=messages)[
        "sequence_numbers"
    ]

    def found(text: str, **query: str) -> list[int]:
        listed = api.get("/messages", entity="orders", text=text, **query)["messages"]
        return [one["sequence_number"] for one in listed]

    assert [first] == found("Köln") == found("ONE")
    assert [second, third] == found("paris")
    assert [second] == found("france") == found("paris", filter="Country = 'France'")
    assert [] == found("london")
    api.post("/messages/dead-letter", entity="orders", sequence_numbers=[first], reason="Too Far")
    assert [1] == [
        len(
            api.get("/messages", entity="orders", sub_queue="dead_letter", text="too far")[
                "messages"
            ]
        )
    ]
