"""Faults of connections, attaches, tokens and requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from protocol.codec import Array, ArrayCode, Int, Timestamp
from protocol.faults.conditions import SERVER_BUSY
from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.occurrence import Nth
from tests.protocol.amqp.faults.faulty_clients import FaultyBroker, bodies, frames, send
from tests.support import amqp_frames
from tests.support.memory_broker import ROOT_KEY, ROOT_NAME, MemoryClient, error_of
from tests.support.message_sections import APPLICATION_PROPERTIES, PROPERTIES, VALUE, section

TWO_NAMESPACES = "namespaces: {team-a: {queues: {orders: }}, team-b: {queues: {orders: }}}"


def names(client: MemoryClient) -> list[str]:
    client.say_and_read_all()
    return [one.name for one in client.heard]


# --- connect and open ----------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [Operation.CONNECT, Operation.OPEN])
def test_a_client_that_gets_no_answer_gets_nothing(operation):
    broker = FaultyBroker()
    broker.fault(operation, FaultKind.NO_ANSWER)
    client = broker.connect()
    assert [] == names(client)
    client.say(amqp_frames.attach_sender("link", 0, "orders"))
    assert [] == names(client)


@pytest.mark.parametrize("operation", [Operation.CONNECT, Operation.OPEN])
def test_a_delayed_client_goes_on_where_it_was(operation):
    broker = FaultyBroker()
    broker.fault(operation, FaultKind.DELAY, seconds=2.0)
    client = broker.connect()
    client.say(amqp_frames.attach_sender("link", 0, "orders"))
    assert [] == names(client)
    broker.pass_delays()
    assert ["open", "begin", "attach", "flow"] == names(client)


def test_a_client_that_is_let_wait_cannot_fill_the_memory():
    broker = FaultyBroker()
    broker.fault(Operation.CONNECT, FaultKind.NO_ANSWER)
    client = broker.connect()
    for _ in range(17):
        client.write(b"x" * 65_536)
    assert client.is_dropped


def test_an_open_is_refused():
    broker = FaultyBroker()
    broker.fault(Operation.OPEN, FaultKind.REFUSE, condition="com.microsoft:timeout")
    client = broker.connect()
    assert "open" == names(client)[0]
    assert error_of(frames(client, "close")[0]).startswith("com.microsoft:timeout")


@pytest.mark.parametrize("operation", [Operation.CONNECT, Operation.OPEN])
def test_a_connection_is_dropped(operation):
    broker = FaultyBroker()
    broker.fault(operation, FaultKind.DROP_CONNECTION, Nth(1))
    client = broker.connect()
    assert client.is_dropped
    assert [] == names(client)
    assert ["open", "begin"] == names(broker.connect())


def test_an_open_counts_when_the_namespace_is_known():
    """By the host name, or else by the first link."""
    broker = FaultyBroker(TWO_NAMESPACES)
    rule = broker.fault(Operation.OPEN, FaultKind.DROP_CONNECTION)
    assert "team-a" == broker.namespace
    assert not broker.connect("team-b.localhost").is_dropped
    assert broker.connect("team-a.localhost").is_dropped
    client = broker.connect("localhost")
    client.authenticate("orders", ROOT_NAME, ROOT_KEY)
    assert 1 == rule.matched, "this key is one of all namespaces"
    client.say(amqp_frames.attach_sender("link", 7, "orders"))
    assert client.is_dropped
    assert (2, 2) == (rule.matched, rule.hits)


def test_a_connection_that_was_open_before_the_rule_is_not_opened_again():
    broker = FaultyBroker()
    client = broker.connect()
    broker.fault(Operation.OPEN, FaultKind.DROP_CONNECTION)
    assert client.attach_sender("orders") is None
    assert 202 == client.authenticate("orders", ROOT_NAME, ROOT_KEY)[0]
    assert not client.is_dropped


# --- attach --------------------------------------------------------------------------------------


def test_an_attach_is_refused_and_only_links_to_entities_count():
    broker = FaultyBroker()
    rule = broker.fault(Operation.ATTACH, FaultKind.SERVER_BUSY)
    client = broker.connect()
    assert 202 == client.authenticate("orders", ROOT_NAME, ROOT_KEY)[0]
    assert 0 == rule.matched
    assert str(client.attach_sender("orders")).startswith(SERVER_BUSY)
    assert str(client.attach_receiver("orders")).startswith(SERVER_BUSY)
    assert (2, 2) == (rule.matched, rule.hits)


def test_a_delayed_attach_gets_the_credit_that_came_meanwhile():
    broker = FaultyBroker()
    send(broker.sender(), b"a")
    broker.fault(Operation.ATTACH, FaultKind.DELAY, seconds=2.0)
    client = broker.connect()
    client.attach_receiver("orders")
    client.say(amqp_frames.flow(1, handle=client.last_handle))
    assert [] == bodies(client)
    broker.pass_delays()
    client.say_and_read_all()
    assert [b"a"] == bodies(client)


def test_a_delayed_attach_of_a_link_that_has_ended_is_not_done():
    broker = FaultyBroker()
    broker.fault(Operation.ATTACH, FaultKind.DELAY, seconds=2.0)
    client = broker.connect()
    client.attach_sender("orders")
    client.say(amqp_frames.detach(client.last_handle))
    broker.pass_delays()
    assert 0 == client.connection.link_count


@pytest.mark.parametrize(("is_after", "attaches"), [(False, 0), (True, 1)])
def test_a_connection_is_dropped_before_or_after_an_attach(is_after, attaches):
    broker = FaultyBroker()
    broker.fault(Operation.ATTACH, FaultKind.DROP_CONNECTION, is_after=is_after)
    client = broker.connect()
    client.attach_sender("orders")
    assert client.is_dropped
    assert attaches == len(frames(client, "attach"))


def test_an_expired_token_refuses_an_attach_and_must_be_put_again():
    broker = FaultyBroker(authorization="strict")
    broker.fault(Operation.ATTACH, FaultKind.EXPIRE_TOKEN, Nth(1))
    client = broker.connect()
    assert 202 == client.authenticate("orders", ROOT_NAME, ROOT_KEY)[0]
    assert "ExpiredToken" in str(client.attach_sender("orders"))
    assert str(client.attach_sender("orders")).startswith("amqp:unauthorized-access")
    assert 202 == client.authenticate("orders", ROOT_NAME, ROOT_KEY)[0]
    assert client.attach_sender("orders") is None


# --- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "action", "status", "words"),
    [
        (FaultKind.SERVER_BUSY, {}, 503, "50009"),
        (FaultKind.REFUSE, {"condition": "amqp:not-found"}, 404, "could not be found"),
        (FaultKind.EXPIRE_TOKEN, {}, 401, "ExpiredToken"),
    ],
)
def test_put_token_is_refused(kind, action, status, words):
    broker = FaultyBroker()
    rule = broker.fault(Operation.PUT_TOKEN, kind, Nth(1), **action)
    client = broker.connect()
    given = client.authenticate("orders", ROOT_NAME, ROOT_KEY)
    assert status == given[0]
    assert words in given[1]
    assert 202 == client.authenticate("orders", ROOT_NAME, ROOT_KEY)[0]
    assert 401 == client.authenticate("orders", ROOT_NAME, "wrong")[0]
    assert (2, 1) == (rule.matched, rule.hits), "a wrong token is refused anyway"


def request(client: MemoryClient, operation: str, body: dict[str, Any]) -> None:
    """Send a request without waiting for the answer."""
    handle = client.reach("orders/$management")
    message = (
        section(PROPERTIES, ["id"])
        + section(APPLICATION_PROPERTIES, {"operation": f"com.microsoft:{operation}"})
        + section(VALUE, body)
    )
    client.heard.clear()
    client.say(amqp_frames.transfer(client.next_delivery(), message, handle=handle))
    client.say_and_read_all()


PEEK: dict[str, object] = {"from-sequence-number": Int(0), "message-count": Int(1)}


def test_a_delayed_request_is_answered_later():
    broker = FaultyBroker()
    broker.fault(Operation.MANAGEMENT, FaultKind.DELAY, seconds=2.0)
    client = broker.connect()
    request(client, "peek-message", PEEK)
    assert [] == frames(client, "transfer")
    broker.pass_delays()
    assert "transfer" in names(client)


@pytest.mark.parametrize(("is_after", "left"), [(False, [b"a"]), (True, [])])
@pytest.mark.parametrize("kind", [FaultKind.NO_ANSWER, FaultKind.DROP_CONNECTION])
def test_a_request_without_answer_has_its_effect_or_not(kind, is_after, left):
    broker = FaultyBroker()
    send(broker.sender(), b"a")
    broker.fault(Operation.MANAGEMENT, kind, is_after=is_after)
    client = broker.connect()
    later = broker.clock.now_ms() + 1000
    body = {"message-count": Int(1), "enqueued-time-utc": Timestamp(later)}
    request(client, "batch-delete-messages", body)
    assert [] == frames(client, "transfer")
    assert client.is_dropped is (kind is FaultKind.DROP_CONNECTION)
    assert left == broker.stored()


def test_a_detached_management_link_can_be_attached_again():
    broker = FaultyBroker()
    broker.fault(Operation.MANAGEMENT, FaultKind.DETACH, Nth(1))
    client = broker.connect()
    request(client, "peek-message", PEEK)
    assert error_of(frames(client, "detach")[0]).startswith("amqp:link:detach-forced")
    client._nodes.clear()
    assert 204 == client.manage("orders", "com.microsoft:peek-message", PEEK)[0]


def test_a_lock_is_lost_before_it_is_renewed_and_other_requests_do_not_count():
    broker = FaultyBroker()
    send(broker.sender(), b"a")
    rule = broker.fault(Operation.MANAGEMENT, FaultKind.LOSE_LOCK)
    client = broker.receiver(credit=1)
    [transfer] = frames(client, "transfer")
    token = UUID(bytes_le=bytes(transfer[2]))
    assert 200 == client.manage("orders", "com.microsoft:peek-message", PEEK)[0]
    assert 0 == rule.matched
    body: dict[str, object] = {"lock-tokens": Array(ArrayCode.UUID, [token])}
    answer = client.manage("orders", "com.microsoft:renew-lock", body)
    assert (410, "com.microsoft:message-lock-lost") == answer
    assert (1, 1) == (rule.matched, rule.hits)


def test_delayed_work_that_fails_because_of_a_bug_ends_the_connection(monkeypatch):
    """The client would wait for its answer for ever."""
    broker = FaultyBroker()
    broker.fault(Operation.ATTACH, FaultKind.DELAY, seconds=2.0)
    client = broker.connect()
    client.say(amqp_frames.attach_sender("link", 0, "orders"))

    def attach(*_: object) -> None:
        raise ValueError("an injected bug")

    monkeypatch.setattr(client.connection, "attach", attach)
    with capture_logs() as logs:
        broker.pass_delays()
    assert client.is_dropped
    assert ["connection.broken"] == [line["event"] for line in logs if line["log_level"] == "error"]
