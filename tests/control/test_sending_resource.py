"""Messages are sent in bulk from JSON."""

from __future__ import annotations

from datetime import timedelta

import pytest


@pytest.fixture(autouse=True)
def purged(api):
    yield
    for entity in ("orders", "carts", "events"):
        api.post("/purge", entity=entity)


def test_messages_are_received_as_they_were_sent(api, sdk):
    sent = api.post(
        "/messages",
        entity="orders",
        messages=[
            {
                "body": {"id": 7},
                "message_id": "m-1",
                "correlation_id": "c",
                "subject": "created",
                "to": "there",
                "reply_to": "here",
                "reply_to_session_id": "r",
                "session_id": "s",
                "partition_key": "s",
                "time_to_live_s": 90.5,
                "application_properties": {
                    "color": "red",
                    "size": 3,
                    "ratio": 0.5,
                    "is_new": True,
                    "none": None,
                },
            },
            {"body": "text"},
            {"body": "aGVsbG8=", "body_format": "base64", "content_type": "x/y"},
            {"body": "quoted", "body_format": "json"},
        ],
    )
    assert 4 == sent["sent"] == len(sent["sequence_numbers"])
    receiver = sdk.get_queue_receiver("orders")
    first, text, binary, quoted = receiver.receive_messages(max_message_count=4, max_wait_time=5)
    assert sent["sequence_numbers"] == [
        one.sequence_number for one in (first, text, binary, quoted)
    ]
    assert ('{"id": 7}', "application/json") == (str(first), first.content_type)
    assert ("m-1", "c", "created", "there", "here", "r", "s", "s") == (
        first.message_id,
        first.correlation_id,
        first.subject,
        first.to,
        first.reply_to,
        first.reply_to_session_id,
        first.session_id,
        first.partition_key,
    )
    assert timedelta(seconds=90.5) == first.time_to_live
    assert {b"color": b"red", b"size": 3, b"ratio": 0.5, b"is_new": True, b"none": None} == (
        first.application_properties
    )
    assert ("text", "hello", "x/y", '"quoted"') == (
        str(text),
        str(binary),
        binary.content_type,
        str(quoted),
    )
    assert text.message_id


def test_many_messages_are_sent_in_parts(api):
    many = [{"body": str(number)} for number in range(1700)]
    sent = api.post("/messages", entity="orders", messages=many)
    assert list(range(1700)) == [
        number - sent["sequence_numbers"][0] for number in sent["sequence_numbers"]
    ]
    assert 1700 == api.get("/entity", entity="orders")["counts"]["active"]


def test_a_message_is_scheduled(api):
    now_ms = api.get("/clock")["now_ms"]
    api.post(
        "/messages",
        entity="orders",
        messages=[{"body": "later", "scheduled_for": "2126-02-03T04:05:06.789Z"}],
    )
    assert now_ms
    [shown] = api.get("/messages", entity="orders", state="scheduled")["messages"]
    assert "2126-02-03T04:05:06.789Z" == shown["scheduled_for"]


def test_a_message_can_live_for_longer_than_a_header_says(api, sdk):
    """The header of AMQP ends at 49 days."""
    message = {"body": "x", "time_to_live_s": 100 * 86400}
    api.post("/messages", entity="orders", messages=[message])
    [shown] = api.get("/messages", entity="orders")["messages"]
    assert 100 * 86_400_000 == shown["time_to_live_ms"]
    receiver = sdk.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    properties = received.raw_amqp_message.properties
    assert 100 * 86_400_000 == properties.absolute_expiry_time - properties.creation_time


def test_a_topic_gives_messages_to_matching_subscriptions(api):
    sent = api.post(
        "/messages",
        entity="events",
        messages=[{"application_properties": {"color": color}} for color in ("red", "blue")],
    )
    assert {"sent": 2, "sequence_numbers": []} == sent
    assert 1 == api.get("/entity", entity="events/subscriptions/red")["counts"]["active"]


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"entity": "nobody", "messages": [{}]}, 404, "entity_not_found", "entity"),
        ({"entity": "orders", "messages": []}, 400, "invalid_field", "messages"),
        ({"entity": "orders"}, 400, "missing_field", "messages"),
        (
            {"entity": "orders", "messages": [{}, {"Body": "x"}]},
            400,
            "unknown_field",
            "messages[1].Body",
        ),
        (
            {"entity": "orders", "messages": [{"message_id": 7}]},
            400,
            "invalid_field",
            "messages[0].message_id",
        ),
        (
            {"entity": "orders", "messages": [{}, {"scheduled_for": "soon"}]},
            400,
            "invalid_field",
            "messages[1].scheduled_for",
        ),
        (
            {"entity": "orders", "messages": [{}, {"body": "?", "body_format": "base64"}]},
            400,
            "invalid_field",
            "messages[1].body",
        ),
        (
            {"entity": "orders", "messages": [{"application_properties": {"a": [1]}}]},
            400,
            "invalid_field",
            "messages[0].application_properties.a",
        ),
        (
            b'{"entity": "orders", "messages": [{"body": {"a": NaN}}]}',
            400,
            "invalid_field",
            "messages[0].body",
        ),
        (
            b'{"entity": "orders", "messages": [{"body": "\\ud800"}]}',
            400,
            "invalid_json",
            None,
        ),
        ({"entity": "carts", "messages": [{"body": "x"}]}, 400, "not_allowed", None),
        (
            {"entity": "events/subscriptions/red", "messages": [{}]},
            400,
            "not_allowed",
            None,
        ),
        ({"entity": "orders/$deadletterqueue", "messages": [{}]}, 400, "not_allowed", None),
    ],
)
def test_a_wrong_message_is_refused_and_nothing_is_sent(api, body, status, code, field):
    answer = api.refused("POST", "/messages", body)
    assert (status, code, field) == (answer.status, answer.error["code"], answer.error["field"])
    assert 0 == api.get("/entity", entity="orders")["counts"]["active"]


def test_a_message_that_is_too_large_is_refused(api):
    answer = api.refused(
        "POST", "/messages", {"entity": "orders", "messages": [{"body": "x" * 3_000_000}]}
    )
    assert (403, "message_too_large") == (answer.status, answer.error["code"])
