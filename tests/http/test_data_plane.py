"""Messages over plain requests: send, receive, lock, settle."""

from __future__ import annotations

import itertools
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.contract.commands import GetEntity
from protocol.codec import Described, ULong, encode
from protocol.http.data_plane import rest_messages
from tests.http.client import Answer, entry, queue_entry, request
from tests.support.protocol_sources import read_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.http.harness import HttpHarness

_numbers = itertools.count(1)
BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


class QueueUnderTest:
    """A queue for one test, and the operations of a REST client on it."""

    def __init__(self, harness: HttpHarness, name: str) -> None:
        self.harness = harness
        self.name = name
        self._port = harness.port

    def send(self, body: bytes | str = b"", headers: dict[str, str] | None = None) -> Answer:
        return request(self._port, "POST", f"/{self.name}/messages", body, headers)

    def lock(self, timeout_s: int = 0) -> Answer:
        return request(self._port, "POST", f"/{self.name}/messages/head?timeout={timeout_s}")

    def take(self, timeout_s: int = 0, part: str = "") -> Answer:
        path = f"/{self.name}{part}/messages/head?timeout={timeout_s}"
        return request(self._port, "DELETE", path)

    def settle(self, method: str, locked: Answer) -> Answer:
        return request(self._port, method, urlsplit(locked.headers["Location"]).path)

    @property
    def active_count(self) -> int:
        view = self.harness.ask(lambda peer, mark: GetEntity(peer, mark, self.name))
        return int(view.active_count)

    def advance(self, seconds: int) -> None:
        body = json.dumps({"advance_ms": seconds * 1000})
        assert 200 == request(self._port, "POST", "/$peeklock/clock", body).status


@pytest.fixture
def make_queue(harness: HttpHarness) -> Callable[..., QueueUnderTest]:
    def make(elements: str = "") -> QueueUnderTest:
        name = f"queue-{next(_numbers)}"
        assert 201 == request(harness.port, "PUT", f"/{name}", queue_entry(elements)).status
        return QueueUnderTest(harness, name)

    return make


@pytest.fixture
def queue(make_queue: Callable[..., QueueUnderTest]) -> QueueUnderTest:
    return make_queue()


def broker_properties(answer: Answer) -> dict[str, object]:
    properties = json.loads(answer.headers["BrokerProperties"])
    assert isinstance(properties, dict)
    return properties


def test_a_message_sent_is_received_and_deleted(queue):
    """Body, content type, broker properties and custom properties come through; then it is gone."""
    sent = queue.send(
        "hällo".encode(),
        {
            "Content-Type": "text/plain; charset=utf-8",
            "BrokerProperties": json.dumps(
                {
                    "MessageId": "m1",
                    "CorrelationId": "c1",
                    "Label": "läbel",
                    "ReplyTo": "r",
                    "To": "t",
                    "ReplyToSessionId": "rs",
                    "PartitionKey": "p",
                    "TimeToLive": 90.5,
                }
            ),
            "Priority": '"High"',
            "Count": "3",
            "Ratio": "1.5",
            "Express": "true",
            "Plain": "just text",
        },
    )
    assert (201, b"") == (sent.status, sent.body)
    received = queue.take()
    assert 200 == received.status
    assert "hällo".encode() == received.body
    assert "text/plain; charset=utf-8" == received.headers["Content-Type"]
    properties = broker_properties(received)
    expected = {
        "MessageId": "m1",
        "CorrelationId": "c1",
        "Label": "läbel",
        "ReplyTo": "r",
        "To": "t",
        "ReplyToSessionId": "rs",
        "PartitionKey": "p",
        "TimeToLive": 90.5,
        "DeliveryCount": 1,
        "State": "Active",
        "SequenceNumber": 1,
        "EnqueuedSequenceNumber": 1,
    }
    assert expected.items() <= properties.items()
    assert "LockToken" not in properties
    assert str(properties["EnqueuedTimeUtc"]).endswith(" GMT")
    assert ('"High"', "3", "1.5", "true", '"just text"') == tuple(
        received.headers[name] for name in ("Priority", "Count", "Ratio", "Express", "Plain")
    )
    assert 204 == queue.take().status


def test_a_locked_message_is_completed_at_its_location(queue):
    """The answer is 201 with an absolute Location. No other client gets the message. DELETE there
    completes it, once."""
    queue.send(b"once", {"BrokerProperties": '{"MessageId": "id-1"}'})
    locked = queue.lock()
    assert (201, b"once") == (locked.status, locked.body)
    token = broker_properties(locked)["LockToken"]
    assert (
        f"http://127.0.0.1:{queue.harness.port}/{queue.name}/messages/id-1/{token}"
        == locked.headers["Location"]
    )
    assert "LockedUntilUtc" in broker_properties(locked)
    assert 204 == queue.lock().status
    assert 200 == queue.settle("DELETE", locked).status
    assert 404 == queue.settle("DELETE", locked).status
    assert 0 == queue.active_count


def test_an_unlocked_message_comes_again(queue):
    """PUT abandons: the same message, delivered once more."""
    queue.send(b"again")
    first = queue.lock()
    assert 200 == queue.settle("PUT", first).status
    second = queue.lock()
    assert (1, 2) == (
        broker_properties(first)["DeliveryCount"],
        broker_properties(second)["DeliveryCount"],
    )
    assert 404 == queue.settle("PUT", first).status


def test_a_lock_can_be_renewed_and_otherwise_ends(make_queue):
    """POST renews; without it the lock is lost when its time is up."""
    queue = make_queue("<LockDuration>PT30S</LockDuration>")
    queue.send(b"long work")
    locked = queue.lock()
    queue.advance(20)
    assert 200 == queue.settle("POST", locked).status
    queue.advance(20)
    assert 200 == queue.settle("POST", locked).status
    queue.advance(31)
    assert 404 == queue.settle("POST", locked).status
    assert 404 == queue.settle("DELETE", locked).status
    assert b"long work" == queue.take().body


def test_waiting_ends_when_a_message_comes(queue):
    """A receiver that waits gets what is sent meanwhile."""
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(queue.take, 20)
        queue.send(b"at last")
        assert b"at last" == waiting.result(20).body


def test_waiting_ends_without_a_message(queue):
    """204 after the time-out, and nothing is left behind that would take the next message."""
    assert 204 == queue.lock(1).status
    queue.send(b"later")
    assert b"later" == queue.lock().body


@pytest.mark.parametrize(
    ("given", "shown_days"),
    [(100 * 86400, 100), ("200.00:00:00", 200), (922337203685.4775, 2_900_000)],
)
def test_a_message_can_live_for_longer_than_a_header_says(queue, given, shown_days):
    """The header of AMQP ends at 49 days. What the service shows for unlimited ends in the year 9999."""
    queue.send(b"long", {"BrokerProperties": json.dumps({"TimeToLive": given})})
    shown_s = broker_properties(queue.take())["TimeToLive"]
    assert shown_days * 86400 == pytest.approx(shown_s, rel=0.01)


def test_a_dead_letter_can_be_fetched(make_queue):
    """The sub-queue is a part of the path."""
    queue = make_queue("<DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>")
    queue.send(b"too late", {"BrokerProperties": '{"TimeToLive": 5}'})
    queue.advance(6)
    assert 204 == queue.take().status
    dead = queue.take(part="/$DeadLetterQueue")
    assert (200, b"too late") == (dead.status, dead.body)
    assert '"TTLExpiredException"' == dead.headers["DeadLetterReason"]


def test_a_topic_is_sent_to_and_its_subscription_received_from(harness):
    """Both spellings of the path; the topic itself has nothing to receive."""
    for path, kind in {"t1": "Topic", "t1/Subscriptions/s1": "Subscription"}.items():
        assert (
            201 == request(harness.port, "PUT", f"/{path}", entry(f"<{kind}Description/>")).status
        )
    assert 201 == request(harness.port, "POST", "/t1/messages", b"news").status
    path = "/t1/subscriptions/s1/messages/head?timeout=0"
    received = request(harness.port, "DELETE", path)
    assert (200, b"news") == (received.status, received.body)
    assert 400 == request(harness.port, "DELETE", "/t1/messages/head?timeout=0").status


def test_a_message_can_be_scheduled(queue):
    """It appears when its time has come."""
    at = format_datetime(datetime.now(UTC) + timedelta(days=1000), usegmt=True)
    queue.send(b"later", {"BrokerProperties": json.dumps({"ScheduledEnqueueTimeUtc": at})})
    assert 204 == queue.take().status
    queue.advance(1001 * 24 * 3600)
    later = queue.take()
    assert b"later" == later.body
    assert at == broker_properties(later)["ScheduledEnqueueTimeUtc"]


def test_a_batch_is_sent_as_several_messages(queue):
    """Each with its own properties, in order."""
    batch = [
        {"Body": "first", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
        {"Body": "second", "UserProperties": {"Priority": "Low", "n": 1, "x": None}},
        {"Body": "third", "BrokerProperties": {"MessageId": "3", "ContentType": "text/plain"}},
    ]
    assert 201 == queue.send(json.dumps(batch), BATCH).status
    first, second, third = queue.take(), queue.take(), queue.take()
    assert [b"first", b"second", b"third"] == [first.body, second.body, third.body]
    assert ("M1", 40) == (broker_properties(first)["Label"], broker_properties(first)["TimeToLive"])
    assert ('"Low"', "1", "null") == tuple(second.headers[name] for name in ("Priority", "n", "x"))
    assert "text/plain" == third.headers["Content-Type"]


def test_a_batch_with_a_mistake_sends_nothing(queue):
    """All or nothing."""
    batch = [{"Body": "fine"}, {"Body": 7}]
    answer = queue.send(json.dumps(batch), BATCH)
    assert 400 == answer.status
    assert b"message 2" in answer.body
    assert 0 == queue.active_count


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"BrokerProperties": "{"}, b""),
        ({"BrokerProperties": "[]"}, b""),
        ({"BrokerProperties": '{"MessageId": 7}'}, b""),
        ({"BrokerProperties": '{"MessageId": "\\ud800"}'}, b""),
        ({"BrokerProperties": '{"Unknown": "x"}'}, b""),
        ({"BrokerProperties": '{"TimeToLive": -1}'}, b""),
        ({"BrokerProperties": '{"TimeToLive": "soon"}'}, b""),
        ({"BrokerProperties": '{"TimeToLive": NaN}'}, b""),
        ({"BrokerProperties": '{"ScheduledEnqueueTimeUtc": "soon"}'}, b""),
        ({"BrokerProperties": '{"ScheduledEnqueueTimeUtc": 7}'}, b""),
        (BATCH, b""),
        (BATCH, b"{}"),
        (BATCH, b"[]"),
        (BATCH, b"[7]"),
        (BATCH, b'[{"Body": "x", "UserProperties": {"a": [1]}}]'),
        (BATCH, b'[{"Body": "x", "UserProperties": {"a": 1e999}, "BrokerProperties": 7}]'),
        (BATCH, b'[{"Body": "x", "UserProperties": {"a": 99999999999999999999999}}]'),
        (BATCH, b'[{"Body": "\\ud800"}]'),
        (BATCH, b"[" * 100_000),
        (BATCH, b"\xff"),
    ],
)
def test_a_send_that_makes_no_sense_is_refused(queue, headers, body):
    """400 with a sentence, and nothing is stored."""
    answer = queue.send(body, headers)
    assert 400 == answer.status
    assert b"SubCode=40000" in answer.body
    assert 0 == queue.active_count


def test_an_entity_that_does_not_exist_is_gone(harness):
    """The data plane says 410 where administration says 404."""
    for method, path in (
        ("POST", "/missing/messages"),
        ("POST", "/missing/messages/head?timeout=0"),
        ("DELETE", "/missing/subscriptions/s/messages/head?timeout=0"),
        ("DELETE", "/missing/messages/1/7e7ae4c5-4a7c-4f4b-8a8b-3d8a7b8a4c7b"),
    ):
        answer = request(harness.port, method, path)
        assert 410 == answer.status, path
        assert f"The messaging entity 'sb://127.0.0.1:{harness.port}/missing" in answer.text
        assert b"could not be found" in answer.body


@pytest.mark.parametrize("timeout", ["-1", "x", "1.5", "99999999999"])
def test_a_timeout_that_cannot_be_is_refused(harness, queue, timeout):
    """400 instead of waiting for who knows how long."""
    path = f"/{queue.name}/messages/head?timeout={timeout}"
    assert 400 == request(harness.port, "POST", path).status


def test_tokens_are_checked_for_the_right_claim(harness, queue):
    """Send to send, Listen for everything else, on a path below the entity's."""
    harness.authorized.clear()
    queue.send(b"x")
    queue.settle("PUT", queue.lock())
    queue.take()
    assert ["Send", "Listen", "Listen", "Listen"] == [claim for _, _, claim in harness.authorized]
    assert all(path.startswith(f"{queue.name}/messages") for _, path, _ in harness.authorized)
    harness.refuse_token = True
    try:
        assert 401 == queue.send(b"x").status
        assert 401 == queue.take().status
    finally:
        harness.refuse_token = False


def test_a_message_that_is_too_large_is_refused(make_queue):
    """403, as over AMQP."""
    queue = make_queue("<MaxMessageSizeInKilobytes>1</MaxMessageSizeInKilobytes>")
    assert 403 == queue.send(b"x" * 2000).status
    assert 403 == queue.send(b"x" * 1020).status  # with its properties it is more than 1024
    assert 201 == queue.send(b"x" * 500).status


def test_what_a_header_cannot_say_is_left_out(queue):
    """A property cannot forge a header of the answer, and no value can break out of its line."""
    headers = {
        "BrokerProperties": json.dumps({"Label": "a\r\nSet-Cookie: x=1"}),
        "Content-Type": "text/plain",
    }
    batch = [
        {
            "Body": "x",
            "BrokerProperties": {"ContentType": "a\r\nb: c", "MessageId": "\r\nLocation: x"},
            "UserProperties": {
                "Set-Cookie": "x=1",
                "Content-Length": "0",
                "Transfer-Encoding": "chunked",
                "Sec-Thing": "1",
                "Location": "http://elsewhere",
                "two words": "1",
                "line\r\nbreak": "1",
                "": "1",
                "ok": "a\r\nb",
            },
        }
    ]
    assert 201 == queue.send(b"y", headers).status
    assert 201 == queue.send(json.dumps(batch), BATCH).status
    first, second = queue.lock(), queue.lock()
    assert (b"y", b"x") == (first.body, second.body)
    assert "a\r\nSet-Cookie: x=1" == broker_properties(first)["Label"]
    assert '"a\\r\\nb"' == second.headers["ok"]
    assert second.headers["Location"].startswith("http://127.0.0.1")
    allowed = {"brokerproperties", "content-type", "content-length", "date", "server", "location"}
    assert {"ok"} == {name.lower() for name in second.headers} - allowed
    assert "application/octet-stream" == second.headers["Content-Type"]
    assert 200 == queue.settle("DELETE", second).status


@pytest.mark.parametrize(
    ("sections", "body"),
    [
        ([(0x75, b"one "), (0x75, b"two")], b"one two"),
        ([(0x77, "tëxt")], "tëxt".encode()),
        ([(0x77, b"bytes")], b"bytes"),
        ([(0x77, None)], b""),
        ([(0x77, {"n": [1, None, True, 1.5, b"\x00"]})], b'{"n": [1, null, true, 1.5, "AA=="]}'),
        ([(0x76, [1]), (0x76, ["two"])], b'[1, "two"]'),
        ([(0x73, ["id"])], b""),
    ],
)
def test_what_an_amqp_client_sent_can_be_read(sections, body):
    """Bytes as they are, text as UTF-8, other values as JSON."""
    data = b"".join(encode(Described(ULong(code), value)) for code, value in sections)
    assert body == rest_messages.write(read_message(data), None, 0).body


def test_a_receiver_that_hangs_up_takes_nothing_with_it(queue):
    """The message it would have got goes to the next."""
    with socket.create_connection(("127.0.0.1", queue.harness.port)) as client:
        path = f"/{queue.name}/messages/head?timeout=60"
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert 204 == queue.lock(0).status  # by now the first one waits
    queue.send(b"kept")
    assert b"kept" == queue.lock(10).body


PROPERTY_NAMES = st.text(max_size=10)
PROPERTY_VALUES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    body=st.text(max_size=50),
    properties=st.dictionaries(PROPERTY_NAMES, PROPERTY_VALUES, max_size=4),
    label=st.text(max_size=20),
)
def test_any_sent_message_is_received_unchanged(queue, body, properties, label):
    """Any text as body, label and properties; never a failure, never a mangled body."""
    batch = [{"Body": body, "BrokerProperties": {"Label": label}, "UserProperties": properties}]
    assert 201 == queue.send(json.dumps(batch), BATCH).status
    received = queue.take()
    assert (200, body.encode()) == (received.status, received.body)
    assert label == broker_properties(received)["Label"]
