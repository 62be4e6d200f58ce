"""Each kind of fault, as the stock Python SDK sees it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceResponseError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus import ServiceBusReceiveMode as Mode
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.control.client import ControlClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server import BrokerProcess

BUSY = {"kind": "server_busy"}
SHORT_S = 0.3
"""Longer than any operation takes on this machine."""


@pytest.fixture(autouse=True)
def reset(api: ControlClient) -> None:
    api.post("/reset")


@pytest.fixture
def impatient(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    """A client that does not try again."""
    with ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0) as client:
        yield client


@pytest.fixture
def patient(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    """A client that tries again at once."""
    with ServiceBusClient.from_connection_string(
        broker.connection_string, retry_backoff_factor=0.01, retry_mode="fixed"
    ) as client:
        yield client


def fault(api: ControlClient, operation: str, action: Any, **fields: Any) -> str:
    if isinstance(action, str):
        action = {"kind": action}
    name: str = api.post("/faults", operation=operation, action=action, **fields)["name"]
    return name


def counts(api: ControlClient, name: str) -> tuple[int, int]:
    found = api.get(f"/faults/{name}")
    return found["matched"], found["hits"]


def bodies(api: ControlClient, entity: str = "orders") -> list[str]:
    return [one["body"] for one in api.get("/messages", entity=entity)["messages"]]


def send(api: ControlClient, *messages: str, entity: str = "orders", **properties: Any) -> None:
    api.post("/messages", entity=entity, messages=[{"body": one, **properties} for one in messages])


def message(text: str, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(text, **properties)


# --- send ----------------------------------------------------------------------------------------


def test_a_send_is_refused_with_a_condition(api, impatient):
    conditions = {
        "com.microsoft:server-busy": ServiceBusServerBusyError,
        "amqp:resource-limit-exceeded": ServiceBusQuotaExceededError,
        "amqp:unauthorized-access": ServiceBusAuthorizationError,
        "com.microsoft:entity-disabled": MessagingEntityDisabledError,
        "com.microsoft:timeout": OperationTimeoutError,
        "amqp:not-found": MessagingEntityNotFoundError,
        "amqp:internal-error": ServiceBusError,
    }
    sender = impatient.get_queue_sender("orders")
    for condition, expected in conditions.items():
        action = {"kind": "refuse", "condition": condition, "description": "As a test wants it."}
        name = fault(api, "send", action, entity="orders", occurrence={"nth": 2})
        sender.send_messages(message("a"))
        with pytest.raises(expected, match="As a test wants it"):
            sender.send_messages(message("b"))
        sender.send_messages(message("c"))
        assert (3, 1) == counts(api, name)
    assert ["a", "c"] * len(conditions) == bodies(api)


def test_the_sdk_tries_again_while_the_broker_is_busy(api, patient):
    name = fault(api, "send", BUSY, occurrence={"first": 2})
    patient.get_queue_sender("orders").send_messages(message("a"))
    assert ["a"] == bodies(api)
    assert (3, 2) == counts(api, name)


def test_a_send_is_refused_by_an_expression_over_the_message(api, impatient):
    name = fault(api, "send", BUSY, filter="color = 'red'")
    sender = impatient.get_queue_sender("orders")
    sender.send_messages(message("blue", application_properties={"color": "blue"}))
    with pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(message("red", application_properties={"color": "red"}))
    with pytest.raises(ServiceBusServerBusyError):  # a batch is one operation
        sender.send_messages([message("x"), message("y", application_properties={"color": "red"})])
    assert ["blue"] == bodies(api)
    assert (2, 2) == counts(api, name)


def test_a_send_is_delayed(api, impatient):
    fault(api, "send", {"kind": "delay", "seconds": SHORT_S}, occurrence={"nth": 2})
    sender = impatient.get_queue_sender("orders")
    sender.send_messages(message("a"))
    began_s = time.monotonic()
    sender.send_messages(message("b"))
    assert time.monotonic() - began_s >= SHORT_S
    assert ["a", "b"] == bodies(api)


@pytest.mark.parametrize(("when", "stored"), [("before", []), ("after", ["a"])])
def test_a_send_is_never_answered(api, impatient, when, stored):
    fault(api, "send", {"kind": "no_answer", "when": when})
    with pytest.raises(OperationTimeoutError):
        impatient.get_queue_sender("orders").send_messages(message("a"), timeout=1)
    assert stored == bodies(api)


def test_a_sender_is_detached(api, impatient):
    """This SDK makes one exception of every detach, for a message that is not answered yet."""
    fault(api, "send", "detach", occurrence={"nth": 2})
    sender = impatient.get_queue_sender("orders")
    sender.send_messages(message("a"))
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(message("b"))
    sender.send_messages(message("c"))
    assert ["a", "c"] == bodies(api)


@pytest.mark.parametrize(("when", "stored"), [("before", ["a"]), ("after", ["a", "b"])])
def test_the_connection_is_dropped_before_or_after_a_send_is_stored(api, impatient, when, stored):
    fault(api, "send", {"kind": "drop_connection", "when": when}, occurrence={"nth": 2})
    sender = impatient.get_queue_sender("orders")
    sender.send_messages(message("a"))
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(message("b"))
    assert stored == bodies(api)
    sender.send_messages(message("c"))
    assert [*stored, "c"] == bodies(api)


def test_a_retry_after_a_lost_answer_sends_a_duplicate(api, patient):
    action = {"kind": "drop_connection", "when": "after"}
    name = fault(api, "send", action, occurrence={"nth": 1})
    patient.get_queue_sender("orders").send_messages(message("a", message_id="order-7"))
    assert ["a", "a"] == bodies(api)
    assert (2, 1) == counts(api, name)


def test_duplicate_detection_drops_the_retry_after_a_lost_answer(api, patient):
    action = {"kind": "drop_connection", "when": "after"}
    name = fault(api, "send", action, entity="once", occurrence={"nth": 1})
    patient.get_queue_sender("once").send_messages(message("a", message_id="order-7"))
    assert ["a"] == bodies(api, "once")
    assert (2, 1) == counts(api, name)


def test_the_token_of_a_sender_expires(api, impatient):
    """Its link is detached. The SDK puts a new token when it attaches again."""
    name = fault(api, "send", "expire_token", occurrence={"nth": 2})
    tokens = fault(api, "put_token", {"kind": "delay", "seconds": 0.01})
    sender = impatient.get_queue_sender("orders")
    sender.send_messages(message("a"))
    assert (1, 1) == counts(api, tokens)
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(message("b"))
    sender.send_messages(message("c"))
    assert ["a", "c"] == bodies(api)
    assert (3, 1) == counts(api, name)
    assert (2, 2) == counts(api, tokens)


# --- attach, open, connect, put_token ------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (BUSY, ServiceBusServerBusyError),
        ({"kind": "refuse", "condition": "amqp:not-found"}, MessagingEntityNotFoundError),
        ("expire_token", ServiceBusAuthorizationError),
        ({"kind": "drop_connection", "when": "before"}, ServiceBusConnectionError),
    ],
)
def test_an_attach_fails(api, impatient, action, expected):
    name = fault(api, "attach", action, entity="orders", occurrence={"first": 1})
    with pytest.raises(expected):
        impatient.get_queue_sender("orders").send_messages(message("a"))
    assert (1, 1) == counts(api, name)
    assert [] == bodies(api)
    impatient.get_queue_sender("orders").send_messages(message("b"))
    assert ["b"] == bodies(api)


def test_an_attach_is_delayed(api, impatient):
    fault(api, "attach", {"kind": "delay", "seconds": SHORT_S})
    began_s = time.monotonic()
    impatient.get_queue_sender("orders").send_messages(message("a"))
    assert time.monotonic() - began_s >= SHORT_S
    assert ["a"] == bodies(api)


def test_a_session_cannot_be_locked(api, impatient):
    send(api, "a", entity="carts", session_id="s1")
    action = {"kind": "refuse", "condition": "com.microsoft:session-cannot-be-locked"}
    fault(api, "attach", action, entity="carts")
    with pytest.raises(SessionCannotBeLockedError):
        impatient.get_queue_receiver("carts", session_id="s1").receive_messages(max_wait_time=1)


@pytest.mark.parametrize(
    ("operation", "action", "expected"),
    [
        # The SDK makes this of every error of a connection.
        ("open", BUSY, ServiceBusConnectionError),
        (
            "open",
            {"kind": "refuse", "condition": "amqp:connection:forced"},
            ServiceBusConnectionError,
        ),
        ("open", {"kind": "drop_connection"}, ServiceBusConnectionError),
        ("connect", {"kind": "drop_connection"}, ServiceBusConnectionError),
        ("put_token", BUSY, ServiceBusError),
        (
            "put_token",
            {"kind": "refuse", "condition": "amqp:not-found"},
            ServiceBusAuthenticationError,
        ),
        ("put_token", "expire_token", ServiceBusAuthenticationError),
        ("put_token", {"kind": "drop_connection"}, ServiceBusConnectionError),
    ],
)
def test_a_connection_cannot_be_made(api, impatient, operation, action, expected):
    name = fault(api, operation, action, occurrence={"first": 1})
    with pytest.raises(expected):
        impatient.get_queue_sender("orders").send_messages(message("a"))
    assert [] == bodies(api)
    impatient.get_queue_sender("orders").send_messages(message("b"))
    assert ["b"] == bodies(api)
    assert 1 == counts(api, name)[1]


@pytest.mark.parametrize("operation", ["connect", "open", "put_token"])
def test_a_connection_is_delayed(api, impatient, operation):
    fault(api, operation, {"kind": "delay", "seconds": SHORT_S}, occurrence={"first": 1})
    began_s = time.monotonic()
    impatient.get_queue_sender("orders").send_messages(message("a"))
    assert time.monotonic() - began_s >= SHORT_S
    assert ["a"] == bodies(api)


@pytest.mark.parametrize("operation", ["open", "put_token", "attach"])
def test_a_connection_is_never_answered(api, impatient, operation):
    """The SDK gives up at the time that its caller sets, and a later attempt succeeds."""
    name = fault(api, operation, "no_answer", occurrence={"first": 1})
    sender = impatient.get_queue_sender("orders")
    began_s = time.monotonic()
    with pytest.raises((OperationTimeoutError, ServiceBusConnectionError)):
        sender.send_messages(message("a"), timeout=1)
    assert time.monotonic() - began_s >= 1
    assert 1 == counts(api, name)[1]
    assert [] == bodies(api)
    sender.send_messages(message("b"), timeout=30)
    assert ["b"] == bodies(api)


NEVER_CONNECTED = """
import asyncio, sys
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

async def main():
    async with ServiceBusClient.from_connection_string(sys.argv[1], retry_total=0) as client:
        sender = client.get_queue_sender("orders")
        try:
            await sender.send_messages(ServiceBusMessage("a"), timeout=1)
        except Exception as error:
            print(type(error).__name__)
        await sender.send_messages(ServiceBusMessage("b"), timeout=30)

asyncio.run(main())
"""


def test_the_first_bytes_are_never_answered(api, broker):
    """The synchronous client waits for the first answer without a limit, until the broker ends the connection. The other
    one forgets the connection, so it has a process of its own."""
    name = fault(api, "connect", "no_answer", occurrence={"first": 1})
    printed = subprocess.run(
        [sys.executable, "-c", NEVER_CONNECTED, broker.connection_string],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    assert "OperationTimeoutError\n" == printed
    assert 1 == counts(api, name)[1]
    assert ["b"] == bodies(api)


def test_a_receiver_is_never_attached(api, impatient):
    """The call ends without a message, as it does on an empty queue. The message is not lost."""
    send(api, "a")
    name = fault(api, "attach", "no_answer", occurrence={"first": 1})
    receiver = impatient.get_queue_receiver("orders")
    try:
        first = receiver.receive_messages(max_wait_time=1)
    except OperationTimeoutError:
        first = []
    assert [] == first
    assert 1 == counts(api, name)[1]
    (second,) = receiver.receive_messages(max_wait_time=30)
    assert "a" == str(second)


def test_a_connection_of_a_namespace_fails_once_its_token_names_the_namespace(api, broker):
    """All clients use one host name, so the broker knows their namespace by the key."""
    created = api.post("/namespaces", name="faulty", topology={"queues": {"orders": {}}})
    name = fault(ControlClient(api.port, "faulty"), "open", "drop_connection")
    try:
        with (
            ServiceBusClient.from_connection_string(
                created["connection_string"], retry_total=0
            ) as client,
            pytest.raises(ServiceBusConnectionError),
        ):
            client.get_queue_sender("orders").send_messages(message("a"))
        with ServiceBusClient.from_connection_string(broker.connection_string) as other:
            other.get_queue_sender("orders").send_messages(message("b"))
        assert ["b"] == bodies(api)
        assert (1, 1) == counts(ControlClient(api.port, "faulty"), name)
    finally:
        assert 200 == api.request("DELETE", "/namespaces/faulty").status
    api.post("/namespaces", name="faulty")
    assert {"faults": []} == ControlClient(api.port, "faulty").get("/faults")
    api.request("DELETE", "/namespaces/faulty")


# --- deliver -------------------------------------------------------------------------------------


def test_a_delivery_is_delayed_and_the_order_is_kept(api, impatient):
    send(api, "a", "b", "c")
    fault(api, "deliver", {"kind": "delay", "seconds": SHORT_S}, occurrence={"nth": 2})
    receiver = impatient.get_queue_receiver("orders", prefetch_count=10)
    received: list[Any] = []
    began_s = time.monotonic()
    while len(received) < 3:
        received += receiver.receive_messages(max_message_count=3, max_wait_time=5)
    assert time.monotonic() - began_s >= SHORT_S
    assert ["a", "b", "c"] == [str(one) for one in received]
    for one in received:
        receiver.complete_message(one)
    assert [] == bodies(api)


def test_a_delivery_is_lost(api, impatient):
    """The message stays locked, and the receiver gets the next one in its place."""
    send(api, "a", "b")
    name = fault(api, "deliver", "no_answer", filter="sys.DeliveryCount = 0", occurrence={"nth": 1})
    receiver = impatient.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    assert "b" == str(received)
    receiver.complete_message(received)
    assert ["locked"] == [one["state"] for one in api.get("/messages", entity="orders")["messages"]]
    api.post("/locks/expire", entity="orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    assert "a" == str(received)
    assert (2, 1) == counts(api, name)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("detach", ServiceBusConnectionError),
        ({"kind": "detach", "condition": "amqp:not-found"}, MessagingEntityNotFoundError),
        ({"kind": "detach", "condition": "com.microsoft:server-busy"}, ServiceBusServerBusyError),
        ({"kind": "drop_connection"}, ServiceBusConnectionError),
        ("expire_token", ServiceBusAuthorizationError),
    ],
)
def test_a_receiver_ends_instead_of_a_delivery(api, impatient, action, expected):
    send(api, "a")
    name = fault(api, "deliver", action, occurrence={"first": 1})
    receiver = impatient.get_queue_receiver("orders")
    with pytest.raises(expected):
        receiver.receive_messages(max_wait_time=5)
    receiver = impatient.get_queue_receiver("orders")  # this SDK keeps a link that was too busy
    [received] = receiver.receive_messages(max_wait_time=5)
    assert "a" == str(received)
    receiver.complete_message(received)
    assert (2, 1) == counts(api, name)


def test_the_connection_is_dropped_after_a_delivery(api, impatient):
    """The lock ends with the connection, and the delivery counts as failed."""
    send(api, "a")
    fault(api, "deliver", {"kind": "drop_connection", "when": "after"}, occurrence={"nth": 1})
    receiver = impatient.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    with pytest.raises((MessageLockLostError, ServiceBusConnectionError)):
        receiver.complete_message(received)
    [received] = receiver.receive_messages(max_wait_time=5)
    assert ("a", 1) == (str(received), received.delivery_count)
    receiver.complete_message(received)


def test_a_lock_is_lost_after_the_delivery(api, impatient):
    send(api, "a")
    name = fault(api, "deliver", "lose_lock", occurrence={"nth": 1})
    receiver = impatient.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(received)
    [received] = receiver.receive_messages(max_wait_time=5)
    assert ("a", 1) == (str(received), received.delivery_count)
    receiver.complete_message(received)
    assert (2, 1) == counts(api, name)


def test_a_completed_message_is_delivered_again(api, impatient):
    send(api, "a", "b")
    name = fault(api, "deliver", "deliver_twice", filter="sys.SequenceNumber > 0")
    receiver = impatient.get_queue_receiver("orders")
    received: list[tuple[str, int]] = []
    for _ in range(4):
        [one] = receiver.receive_messages(max_wait_time=5)
        receiver.complete_message(one)
        received.append((str(one), one.delivery_count))
    assert {("a", 0), ("a", 1), ("b", 0), ("b", 1)} == set(received)
    assert (2, 2) == counts(api, name)
    assert [] == bodies(api)


def test_a_message_without_lock_is_delivered_twice(api, impatient):
    send(api, "a", "b")
    fault(api, "deliver", "deliver_twice", occurrence={"nth": 1})
    receiver = impatient.get_queue_receiver("orders", receive_mode=Mode.RECEIVE_AND_DELETE)
    received: list[str] = []
    for _ in range(3):
        received += map(str, receiver.receive_messages(max_wait_time=5))
    assert ["a", "a", "b"] == received


def test_a_session_is_closed_after_a_delivery(api, impatient):
    send(api, "a", "b", entity="carts", session_id="s1")
    fault(api, "deliver", "close_session", entity="carts", occurrence={"nth": 1})
    with impatient.get_queue_receiver("carts", session_id="s1") as receiver:
        [received] = receiver.receive_messages(max_wait_time=5)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(received)
    with impatient.get_queue_receiver("carts", session_id=NEXT_AVAILABLE_SESSION) as receiver:
        received = receiver.receive_messages(max_message_count=2, max_wait_time=5)
        assert ["a", "b"] == [str(one) for one in received]


# --- settle --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (BUSY, ServiceBusServerBusyError),
        ({"kind": "refuse", "condition": "com.microsoft:message-lock-lost"}, MessageLockLostError),
        ("lose_lock", MessageLockLostError),
    ],
)
def test_a_settlement_is_refused(api, impatient, action, expected):
    send(api, "a")
    name = fault(api, "settle", action, entity="orders", occurrence={"nth": 1})
    receiver = impatient.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    with pytest.raises(expected):
        receiver.complete_message(received)
    assert ["a"] == bodies(api)
    assert (1, 1) == counts(api, name)


def test_a_settlement_is_delayed(api, impatient):
    send(api, "a")
    fault(api, "settle", {"kind": "delay", "seconds": SHORT_S})
    receiver = impatient.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    began_s = time.monotonic()
    receiver.complete_message(received)
    assert time.monotonic() - began_s >= SHORT_S
    assert [] == bodies(api)


@pytest.mark.parametrize(("when", "left"), [("before", ["a"]), ("after", [])])
def test_the_connection_is_dropped_before_or_after_a_settlement(api, impatient, when, left):
    """The SDK settles on another link then. The message is still locked only if the first settlement had no effect."""
    send(api, "a")
    fault(api, "settle", {"kind": "drop_connection", "when": when}, occurrence={"nth": 1})
    receiver = impatient.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    with pytest.raises((MessageLockLostError, ServiceBusConnectionError)):
        receiver.complete_message(received)
    assert left == bodies(api)


def test_a_receiver_is_detached_when_it_settles(api, impatient):
    """Locks do not end with a link. The SDK settles by the lock token, on the management link."""
    send(api, "a")
    name = fault(api, "settle", "detach", occurrence={"nth": 1})
    receiver = impatient.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    receiver.complete_message(received)
    assert [] == bodies(api)
    assert (2, 1) == counts(api, name)


def test_a_settlement_fails_by_an_expression_over_the_message(api, impatient):
    name = fault(api, "settle", "lose_lock", filter="color = 'red'")
    send(api, "red", application_properties={"color": "red"})
    send(api, "blue", application_properties={"color": "blue"})
    receiver = impatient.get_queue_receiver("orders")
    red, blue = sorted(
        receiver.receive_messages(max_message_count=2, max_wait_time=5), key=str, reverse=True
    )
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(red)
    receiver.complete_message(blue)
    assert ["red"] == bodies(api)
    assert (1, 1) == counts(api, name)


def test_a_session_is_closed_when_its_message_is_settled(api, impatient):
    send(api, "a", entity="carts", session_id="s1")
    fault(api, "settle", "close_session", entity="carts")
    receiver = impatient.get_queue_receiver("carts", session_id="s1")
    [received] = receiver.receive_messages(max_wait_time=5)
    with pytest.raises(SessionLockLostError):
        receiver.complete_message(received)


# --- management and renewals ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (BUSY, ServiceBusServerBusyError),
        ("lose_lock", MessageLockLostError),
        ("detach", ServiceBusError),  # the SDK does not look at the error of a management link
        ({"kind": "drop_connection"}, ServiceBusConnectionError),
        ("expire_token", ServiceBusAuthorizationError),
    ],
)
def test_a_lock_is_not_renewed(api, impatient, action, expected):
    send(api, "a")
    name = fault(api, "renew", action, entity="orders", occurrence={"first": 1})
    receiver = impatient.get_queue_receiver("orders")
    [received] = receiver.receive_messages(max_wait_time=5)
    with pytest.raises(expected):
        receiver.renew_message_lock(received)
    assert (1, 1) == counts(api, name)


def test_a_session_is_closed_when_it_is_renewed(api, impatient):
    send(api, "a", entity="carts", session_id="s1")
    fault(api, "renew", "close_session")
    receiver = impatient.get_queue_receiver("carts", session_id="s1")
    receiver.receive_messages(max_wait_time=5)
    with pytest.raises(SessionLockLostError):
        receiver.session.renew_lock()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_request_is_never_answered(api, impatient, when):
    send(api, "a")
    action = {"kind": "no_answer", "when": when}
    name = fault(api, "management", action, management_operation="com.microsoft:peek-message")
    receiver = impatient.get_queue_receiver("orders")
    with pytest.raises(OperationTimeoutError):
        receiver.peek_messages(timeout=1)
    assert (1, 1) == counts(api, name)


def test_a_rule_of_one_management_operation_leaves_others(api, impatient):
    name = fault(api, "management", BUSY, management_operation="schedule-message", entity="orders")
    send(api, "a")
    receiver = impatient.get_queue_receiver("orders")
    assert ["a"] == [str(one) for one in receiver.peek_messages()]
    assert (0, 0) == counts(api, name)


# --- clients -------------------------------------------------------------------------------------


def test_a_rule_concerns_the_clients_of_one_key(api, impatient):
    fault(api, "send", BUSY, client={"key_name": "Another*"})
    impatient.get_queue_sender("orders").send_messages(message("a"))
    name = fault(api, "send", BUSY, client={"key_name": "RootManage*"})
    with pytest.raises(ServiceBusServerBusyError):
        impatient.get_queue_sender("orders").send_messages(message("b"))
    assert ["a"] == bodies(api)
    assert (1, 1) == counts(api, name)


def test_a_rule_concerns_one_container(api, impatient, patient):
    def containers() -> set[str]:
        return {one["container_id"] for one in api.get("/connections")["connections"]}

    others = containers()  # connections of earlier tests may still be closing
    sender = impatient.get_queue_sender("orders")
    sender.send_messages(message("a"))
    [container_id] = containers() - others
    fault(api, "send", BUSY, client={"container_id": container_id})
    patient.get_queue_sender("orders").send_messages(message("b"))
    with pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(message("c"))
    assert ["a", "b"] == bodies(api)


# --- administration ------------------------------------------------------------------------------


@pytest.fixture
def impatient_admin(broker, tls_folder) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        broker.admin_connection_string.replace("127.0.0.1", "localhost"),
        connection_verify=str(tls_folder / "ca.pem"),
        retry_total=0,
    ) as client:
        yield client


@pytest.mark.parametrize(
    ("action", "expected", "status"),
    [
        (BUSY, HttpResponseError, 503),
        ({"kind": "refuse", "condition": "amqp:not-found"}, HttpResponseError, 404),
        ("expire_token", ClientAuthenticationError, 401),
        ({"kind": "drop_connection", "when": "before"}, ServiceResponseError, None),
    ],
)
def test_an_administration_request_fails(api, impatient_admin, action, expected, status):
    name = fault(api, "administration", action, entity="new", occurrence={"nth": 1})
    with pytest.raises(expected) as raised:
        impatient_admin.create_queue("new")
    assert status == getattr(raised.value, "status_code", None)
    assert 404 == api.request("GET", "/entity", query={"entity": "new"}).status
    impatient_admin.create_queue("new")
    assert (2, 1) == counts(api, name)


def test_an_administration_request_is_answered_by_a_dropped_connection(api, impatient_admin):
    fault(api, "administration", {"kind": "drop_connection", "when": "after"}, entity="new")
    with pytest.raises(ServiceResponseError):
        impatient_admin.create_queue("new")
    assert 200 == api.request("GET", "/entity", query={"entity": "new"}).status


def test_an_administration_request_is_delayed(api, impatient_admin):
    fault(api, "administration", {"kind": "delay", "seconds": SHORT_S})
    began_s = time.monotonic()
    impatient_admin.get_queue("orders")
    assert time.monotonic() - began_s >= SHORT_S
