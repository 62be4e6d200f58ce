"""The history of messages through the stock client: every transition, found by id, number, session or expression."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from tests.control.client import BASE, ControlClient
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPOLOGY = {
    "queues": {
        "orders": {"lock_duration": "PT1M", "max_delivery_count": 2},
        "carts": {"requires_session": True},
        "short": {"dead_lettering_on_message_expiration": True},
        "once": {"requires_duplicate_detection": True},
    },
    "topics": {
        "events": {
            "subscriptions": {
                "red": {
                    "rules": {
                        "blue": {"sql_filter": "color = 'blue'"},
                        "scarlet": {
                            "sql_filter": "color = 'red'",
                            "action": "SET shade = 'dark'",
                        },
                    },
                    "forward_to": "orders",
                },
            },
        },
    },
}


class Space:
    """A namespace on demand: its control API, and the stock client."""

    def __init__(self, broker: BrokerProcess) -> None:
        made = ControlClient(broker.http_port).post("/namespaces", topology=TOPOLOGY)
        self.name = made["name"]
        self.api = ControlClient(broker.http_port, self.name)
        self.port = broker.http_port
        self.connection_string = made["connection_string"]
        self.key_name = made["key_name"]
        self.client = ServiceBusClient.from_connection_string(self.connection_string)

    def send(self, entity: str, *messages: ServiceBusMessage) -> None:
        sender = (
            self.client.get_topic_sender if entity == "events" else self.client.get_queue_sender
        )
        with sender(entity) as link:
            link.send_messages(list(messages))

    def history(self, **query: Any) -> list[dict[str, Any]]:
        answer = self.api.get("/history", **query)
        assert answer["recording"]
        assert answer["next"] is None
        found: list[dict[str, Any]] = answer["transitions"]
        return found

    def events(self, **query: Any) -> list[str]:
        return [one["event"] for one in self.history(**query)]

    @contextmanager
    def stream(self, **query: Any) -> Iterator[Callable[[], dict[str, Any]]]:
        """Yields a function that returns the next event of the stream."""
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", self.port))
            target = f"{BASE}/namespaces/{self.name}/history/stream?{urlencode(query)}"
            connection.sendall(f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            lines = connection.makefile("rb")
            while lines.readline().strip() != b": the stream is open":
                pass

            def following() -> dict[str, Any]:
                for line in lines:
                    if line.startswith(b"data: "):
                        found: dict[str, Any] = json.loads(line[6:])
                        return found
                raise EOFError

            yield following


@pytest.fixture
def space(broker: BrokerProcess) -> Iterator[Space]:
    made = Space(broker)
    with made.client:
        yield made
    ControlClient(broker.http_port).request("DELETE", f"/namespaces/{made.name}")


def message(message_id: str, **more: Any) -> ServiceBusMessage:
    return ServiceBusMessage("x", message_id=message_id, **more)


# --- what is recorded ------------------------------------------------------------------------------


def test_a_message_is_sent_locked_and_settled(space):
    """Each transition says who caused it, and a lock until when it lasts."""
    space.send("orders", message("a"))
    with space.client.get_queue_receiver("orders") as receiver:
        (first,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.abandon_message(first)
        (again,) = receiver.receive_messages(1, max_wait_time=5)
        renewed = receiver.renew_message_lock(again)
        receiver.complete_message(again)
    found = space.history(message_id="a")
    assert ["sent", "locked", "abandoned", "locked", "lock_renewed", "completed"] == [
        one["event"] for one in found
    ]
    assert [0, 0, 1, 1, 1, 1] == [one["delivery_count"] for one in found]
    assert {("orders", None, 1)} == {
        (one["entity"], one["sub_queue"], one["sequence_number"]) for one in found
    }
    assert list(range(found[0]["number"], found[0]["number"] + 6)) == [
        one["number"] for one in found
    ]
    assert space.key_name == found[0]["client"]["key_name"]
    sender, receiver_id = (found[at]["client"]["connection"] for at in (0, 1))
    assert sender != receiver_id
    assert [receiver_id] * 5 == [one["client"]["connection"] for one in found[1:]]
    assert found[1]["client"]["container_id"].startswith("SBReceiver-")
    locked_at, until = (
        dt.datetime.fromisoformat(found[1][name]) for name in ("time", "locked_until")
    )
    assert dt.timedelta(minutes=1) == until - locked_at
    assert renewed.isoformat(timespec="milliseconds") == found[4]["locked_until"].replace(
        "Z", "+00:00"
    )
    assert found[5]["locked_until"] is None


def test_a_message_id_shows_the_whole_life_across_entities(space):
    """Copied by a rule, forwarded, dead-lettered and resubmitted: a new number each time, and `to` says which."""
    space.send("events", message("a", application_properties={"color": "red"}))
    with space.client.get_queue_receiver("orders") as receiver:
        for _ in range(2):
            (one,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.abandon_message(one)
    space.api.post("/resubmit", entity="orders")
    with space.client.get_queue_receiver("orders") as receiver:
        (one,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(one)
    found = space.history(message_id="a")
    assert [
        ("sent", "events", None, 1, None),
        ("matched", "events", None, 1, ("events/Subscriptions/red", None, 1)),
        ("forwarded", "events/Subscriptions/red", None, 1, ("orders", None, 1)),
        ("locked", "orders", None, 1, None),
        ("abandoned", "orders", None, 1, None),
        ("locked", "orders", None, 1, None),
        ("abandoned", "orders", None, 1, None),
        ("dead_lettered", "orders", None, 1, ("orders", "dead_letter", 1)),
        ("resubmitted", "orders", "dead_letter", 1, ("orders", None, 2)),
        ("locked", "orders", None, 2, None),
        ("completed", "orders", None, 2, None),
    ] == [
        (
            one["event"],
            one["entity"],
            one["sub_queue"],
            one["sequence_number"],
            one["to"] and tuple(one["to"].values()),
        )
        for one in found
    ]
    assert "scarlet" == found[1]["rule"]
    assert ["MaxDeliveryCountExceeded"] == [one["reason"] for one in found if one["reason"]]
    assert found[2]["client"] is None  # the broker forwards
    assert found[8]["client"] is None  # no AMQP client asked for it


def test_times_have_their_own_transitions(space):
    """A schedule, an expired lock and an expired message happen by the clock of the namespace."""
    clock = dt.datetime.fromisoformat(space.api.get("/clock")["now"])
    with space.client.get_queue_sender("orders") as sender:
        (kept, cancelled) = sender.schedule_messages(
            [message("a"), message("b")], clock + dt.timedelta(hours=1)
        )
        sender.cancel_scheduled_messages(cancelled)
    assert kept == 1
    space.api.post("/clock/advance", seconds=3600)
    with space.client.get_queue_receiver("orders") as receiver:
        (one,) = receiver.receive_messages(1, max_wait_time=5)
        space.api.post("/clock/advance", seconds=60)
        assert one.sequence_number == 3
    space.api.post("/wait", conditions=[{"entity": "orders", "filter": "sys.DeliveryCount > 0"}])
    found = space.history(message_id="a")
    assert ["scheduled", "activated", "locked", "lock_expired"] == [
        one["event"] for one in found[:4]
    ]
    assert {"entity": "orders", "sub_queue": None, "sequence_number": 3} == found[1]["to"]
    assert found[2]["client"] == found[3]["client"]
    assert found[3]["time"] == found[2]["locked_until"]
    assert ["scheduled", "deleted"] == space.events(message_id="b")
    space.send("short", message("c", time_to_live=dt.timedelta(seconds=10)))
    space.api.post("/clock/advance", seconds=10)
    space.api.post(
        "/wait", conditions=[{"entity": "short", "sub_queue": "dead_letter", "at_least": 1}]
    )
    assert ["sent", "expired", "dead_lettered"] == space.events(message_id="c")


def test_messages_are_deferred_received_released_and_dropped(space):
    """Sessions, duplicates, receive-and-delete and topics without a match."""
    for _ in range(2):
        space.send("once", message("a"))
    with space.client.get_queue_receiver(
        "once", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        assert receiver.receive_messages(1, max_wait_time=5)
    found = space.history(message_id="a")
    assert ["sent", "deduplicated", "received"] == [one["event"] for one in found]
    assert [1, None, 1] == [one["sequence_number"] for one in found]
    space.send("events", message("b", application_properties={"color": "green"}))
    assert ["sent", "unmatched"] == space.events(message_id="b")
    space.send("carts", message("c", session_id="One"), message("d", session_id="two"))
    with space.client.get_queue_receiver("carts", session_id="One") as receiver:
        (one,) = receiver.receive_messages(1, max_wait_time=5)
        until = receiver.session.locked_until_utc
        receiver.defer_message(one)
        (again,) = receiver.receive_deferred_messages([one.sequence_number])
        assert again.message_id == "c"
    space.api.post("/wait", conditions=[{"is": "unlocked"}])
    found = space.history(session="one")
    assert ["sent", "locked", "deferred", "locked", "released"] == [one["event"] for one in found]
    assert {"One"} == {one["session_id"] for one in found}
    assert until.isoformat(timespec="milliseconds") == found[1]["locked_until"].replace(
        "Z", "+00:00"
    )
    assert ["sent"] == space.events(message_id="d")


# --- how it is found -------------------------------------------------------------------------------


def test_transitions_are_found_by_entity_number_and_expression(space):
    """The expression is about the message, also as a rule changed it, and about the transition."""
    space.send("events", message("a", application_properties={"color": "red"}))
    space.send("orders", message("b", application_properties={"color": "red"}))
    with space.client.get_queue_receiver("orders") as receiver:
        for one in receiver.receive_messages(2, max_wait_time=5):
            receiver.dead_letter_message(
                one, reason="Bad", error_description=f"no {one.message_id}"
            )
    assert ["sent", "matched"] == space.events(entity="EVENTS")
    assert ["matched", "forwarded"] == space.events(entity="events/subscriptions/red")
    assert ["dead_lettered"] * 2 == space.events(entity="orders/$DeadLetterQueue")
    assert ["dead_lettered"] * 2 == space.events(entity="orders", sub_queue="dead_letter")
    assert ["forwarded", "sent", "locked", "locked"] == [
        event
        for event in space.events(entity="orders", sub_queue="main")
        if event != "dead_lettered"
    ]
    assert ["sent", "locked", "dead_lettered"] == space.events(entity="orders", sequence_number=2)
    assert ["forwarded", "locked", "dead_lettered"] == space.events(
        filter="shade = 'dark' AND event <> 'matched'"
    )
    (one,) = space.history(filter="event = 'dead_lettered' AND description = 'no b'")
    assert ("b", "Bad") == (one["message_id"], one["reason"])
    assert ["dead_lettered"] * 2 == space.events(filter="reason = 'Bad' AND sys.DeliveryCount = 0")
    assert [] == space.events(filter="color = 'blue'")


def test_pages_follow_one_another(space):
    space.send("orders", *[message(f"m{number}") for number in range(25)])
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = space.api.get("/history", after=after, limit=10, entity="orders")
        assert 25 == page["last"]
        seen += [one["message_id"] for one in page["transitions"]]
        after = page["next"]
    assert [f"m{number}" for number in range(25)] == seen
    assert [] == space.history(after=25)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"sequence_number": "x"}, "sequence_number"),
        ({"sub_queue": "none"}, "sub_queue"),
        ({"filter": "color ="}, "filter"),
        ({"filter": "sys.Nothing = 1"}, "filter"),
        ({"entity": "orders/$deadletterqueue", "sub_queue": "dead_letter"}, "sub_queue"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_queries_are_refused(api, query, field):
    for path in ("/history", "/history/stream"):
        if path == "/history/stream" and field == "limit":
            continue
        answer = api.refused("GET", path, **query)
        assert (400, field) == (answer.status, answer.error["field"])


def test_the_request_to_record_is_checked(api):
    for body in ({}, {"recording": "yes"}, {"recording": True, "more": 1}):
        assert 400 == api.refused("PUT", "/history", body).status


# --- when it is recorded ---------------------------------------------------------------------------


def test_declared_namespaces_are_recorded_on_demand(api, sdk):
    """What was recorded stays when recording ends."""
    assert not api.get("/history")["recording"]
    with sdk.get_queue_sender("retries") as sender:
        sender.send_messages(message("before"))
        assert {"recording": True} == api.request("PUT", "/history", {"recording": True}).content
        sender.send_messages(message("recorded"))
        assert {"recording": False} == api.request("PUT", "/history", {"recording": False}).content
        sender.send_messages(message("after"))
    answer = api.get("/history", entity="retries")
    assert not answer["recording"]
    assert ["recorded"] == [one["message_id"] for one in answer["transitions"]]
    api.request("PUT", "/history", {"recording": True})
    with sdk.get_queue_receiver("retries") as receiver:
        for one in receiver.receive_messages(3, max_wait_time=5):
            receiver.complete_message(one)
    api.request("PUT", "/history", {"recording": False})
    # Messages that were sent while nothing was recorded have their ids, too.
    ids = [
        one["message_id"]
        for one in api.get("/history", entity="retries")["transitions"]
        if one["event"] == "completed"
    ]
    assert ["after", "before", "recorded"] == sorted(ids)


def test_the_history_outlives_a_purge_a_reset_and_a_restored_snapshot(space):
    """A namespace goes on with its history, whatever happens to its messages."""
    space.send("orders", message("a"), message("b"))
    space.api.post("/snapshots", name="two")
    space.api.post("/purge", entity="orders")
    assert ["sent", "deleted"] == space.events(message_id="a")
    space.api.post("/reset")
    space.send("orders", message("c"))
    space.api.post("/snapshots/two/restore")
    with space.client.get_queue_receiver("orders") as receiver:
        for one in receiver.receive_messages(2, max_wait_time=10):
            receiver.complete_message(one)
    assert ["sent", "deleted", "locked", "completed"] == space.events(message_id="a")
    assert ["sent"] == space.events(message_id="c")


def test_the_history_ends_with_its_namespace(broker, space):
    """A stream of it ends, and a namespace of the same name begins anew."""
    space.send("orders", message("a"))
    with space.stream() as following:
        answer = ControlClient(broker.http_port).request("DELETE", f"/namespaces/{space.name}")
        assert 200 == answer.status
        with pytest.raises(EOFError):
            following()
    assert 404 == space.api.refused("GET", "/history").status
    ControlClient(broker.http_port).post("/namespaces", name=space.name)
    assert [] == space.history()


def test_only_the_last_transitions_are_kept():
    """A setting says how many, and records all namespaces. A stream says what it missed."""
    config: dict[str, Any] = {"queues": {"orders": {}}}
    with BrokerProcess(config=config, environment={"PEEKLOCK_HISTORY": "50"}) as broker:
        api = ControlClient(broker.http_port)
        with ServiceBusClient.from_connection_string(broker.connection_string) as client:
            with client.get_queue_sender("orders") as sender:
                for start in range(0, 200, 20):
                    sender.send_messages([message(f"m{n}") for n in range(start, start + 20)])
        answer = api.get("/history", limit=1000)
        assert [f"m{number}" for number in range(150, 200)] == [
            one["message_id"] for one in answer["transitions"]
        ]
        assert (151, 200) == (answer["transitions"][0]["number"], answer["last"])
        connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=20)
        connection.request("GET", f"{BASE}/history/stream?after=100")
        lines = connection.getresponse()
        text = b"".join(lines.readline() for _ in range(6)).decode()
        connection.close()
        assert (
            'event: dropped\ndata: {"count": 50}\n\nid: 151\n'.splitlines() == text.splitlines()[2:]
        )


def test_nothing_is_recorded_with_history_0():
    with BrokerProcess(environment={"PEEKLOCK_HISTORY": "0"}) as broker:
        api = ControlClient(broker.http_port)
        answer = api.refused("PUT", "/history", {"recording": True})
        assert (409, "history_off") == (answer.status, answer.error["code"])
        assert not api.get("/history")["recording"]


# --- the stream ------------------------------------------------------------------------------------


def test_a_stream_follows_what_happens(space):
    """It has the same events and the same filters."""
    space.send("orders", message("before"))
    with space.stream(filter="color = 'red'") as red, space.stream(after=0) as everything:
        space.send(
            "orders",
            message("a", application_properties={"color": "green"}),
            message("b", application_properties={"color": "red"}),
        )
        with space.client.get_queue_receiver("orders") as receiver:
            for one in receiver.receive_messages(3, max_wait_time=5):
                receiver.complete_message(one)
        streamed = [red() for _ in range(3)]
        assert space.history(filter="color = 'red'") == streamed
        assert space.history() == [everything() for _ in range(9)]


def test_a_client_that_does_not_read_slows_nobody(space):
    """Its events stay in the history, and are not kept for it."""
    with space.stream():
        for _ in range(5):
            space.api.post("/messages", entity="orders", messages=[{"body": "x"}] * 1000)
        assert 5_000 == space.api.get("/history", limit=1)["last"]
