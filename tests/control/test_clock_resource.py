"""The clock: advance, set, freeze, resume."""

from __future__ import annotations

import time

from azure.servicebus import ServiceBusMessage


def test_the_clock_shows_its_time_and_how_far_it_is_ahead(api):
    first = api.get("/clock")
    moved = api.post("/clock/advance", seconds=1.5, milliseconds=500)
    assert 2000 == moved["ahead_ms"] - first["ahead_ms"]
    assert moved["now"].endswith("Z")
    assert not moved["is_frozen"]


def test_an_expired_lock_is_seen_after_the_clock_was_moved(api, sdk):
    sdk.get_queue_sender("short").send_messages(ServiceBusMessage("hello"))
    receiver = sdk.get_queue_receiver("short")
    [first] = receiver.receive_messages(max_wait_time=5)
    api.post("/clock/advance", seconds=6)
    [again] = receiver.receive_messages(max_wait_time=5)
    assert (first.sequence_number, 1) == (again.sequence_number, again.delivery_count)
    receiver.complete_message(again)


def test_the_clock_is_set_to_a_later_time(api):
    ahead = api.get("/clock")["now_ms"] + 3_600_000
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ahead // 1000))
    assert api.post("/clock/set", time=text)["now_ms"] // 1000 == ahead // 1000


def test_a_frozen_clock_stands_until_it_is_moved_or_resumed(api):
    frozen = api.post("/clock/freeze")
    try:
        assert frozen["is_frozen"]
        assert frozen["now_ms"] == api.post("/clock/freeze")["now_ms"]
        assert frozen["now_ms"] == api.get("/clock")["now_ms"]
        moved = api.post("/clock/advance", milliseconds=250)
        assert frozen["now_ms"] + 250 == moved["now_ms"] == api.get("/clock")["now_ms"]
    finally:
        resumed = api.post("/clock/resume")
    assert not resumed["is_frozen"]
    assert 0 <= resumed["now_ms"] - moved["now_ms"] < 5_000
    assert api.get("/clock")["now_ms"] >= resumed["now_ms"]


def test_a_lock_does_not_expire_while_the_clock_is_frozen(api, sdk):
    sdk.get_queue_sender("short").send_messages(ServiceBusMessage("hello"))
    receiver = sdk.get_queue_receiver("short")
    api.post("/clock/freeze")
    try:
        [message] = receiver.receive_messages(max_wait_time=5)
        api.post("/clock/advance", milliseconds=4_999)
        assert 1 == api.get("/entity", entity="short")["counts"]["locked"]
        api.post("/clock/advance", milliseconds=2)
        assert 0 == api.get("/entity", entity="short")["counts"]["locked"]
    finally:
        api.post("/clock/resume")
    [message] = receiver.receive_messages(max_wait_time=5)
    receiver.complete_message(message)


def test_a_clock_cannot_be_moved_to_a_time_that_cannot_be_written(api):
    """By one century after the other. The clock of a namespace, because the broker's cannot be moved back."""
    created = api.post("/namespaces", topology={})["name"]
    advance = f"/namespaces/{created}/clock/advance"
    for _ in range(78):
        assert api.post(advance, seconds=100 * 365 * 86_400)["now"] is not None
    answer = api.refused("POST", advance, {"seconds": 100 * 365 * 86_400})
    assert (400, "seconds") == (answer.status, answer.error["field"])
    answer = api.refused(
        "POST", f"/namespaces/{created}/clock/set", {"time": "9900-12-31T00:00:00Z"}
    )
    assert (400, "time") == (answer.status, answer.error["field"])
    assert "cannot be moved beyond" in answer.error["message"]
    assert api.get(f"/namespaces/{created}/clock")["now"].startswith("98")
    api.request("DELETE", f"/namespaces/{created}")


def test_a_request_that_takes_nothing_says_so(api):
    answer = api.refused("POST", "/clock/freeze", {"hard": True})
    assert "There is no field 'hard' here." == answer.error["message"]
