"""A bug of the broker with one peer: the client gets an error soon, and does not wait for an answer for ever."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.server import failing_answers
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = "queue.1"
SOON_S = 20.0
"""Far less than the time for which the SDK waits for an answer."""


@contextmanager
def failing_broker(peer: str, effect: str) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(environment={failing_answers.VARIABLE: f"{peer} {effect}"})
    broker.use_module(failing_answers.__name__)
    with broker:
        yield broker
        assert "effect.failed" in broker.log_text()
        assert broker.is_healthy()


def client_of(broker: BrokerProcess, retry_total: int) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        broker.connection_string, retry_total=retry_total, retry_backoff_factor=0.01
    )


def test_a_send_whose_answer_fails_ends_with_an_error():
    """The message is stored, as after a lost connection, and the next send works."""
    began_s = time.monotonic()
    with failing_broker("SendingLink", "SendAccepted") as broker, client_of(broker, 0) as client:
        with client.get_queue_sender(QUEUE) as sender, pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("a"))
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("b"))
        with client.get_queue_receiver(QUEUE) as receiver:
            assert ["a", "b"] == [str(message) for message in receiver.peek_messages(3)]
    assert time.monotonic() - began_s < SOON_S


def test_a_client_that_tries_again_does_not_notice():
    """SDKs connect again by themselves after this error."""
    with failing_broker("SendingLink", "SendAccepted") as broker, client_of(broker, 3) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("a"))


def test_a_message_whose_delivery_fails_is_delivered_again_at_once():
    """Nobody has got it, so its lock ends with the connection."""
    began_s = time.monotonic()
    with failing_broker("ReceivingLink", "Deliver") as broker, client_of(broker, 3) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("a"))
        with client.get_queue_receiver(QUEUE) as receiver:
            received = receiver.receive_messages(1, max_wait_time=5)
            received += [] if received else receiver.receive_messages(1, max_wait_time=5)
            (message,) = received
            receiver.complete_message(message)
        assert 1 == message.delivery_count
    assert time.monotonic() - began_s < SOON_S


def test_a_request_whose_answer_fails_ends_with_an_error():
    """Also one to the management node of an entity."""
    began_s = time.monotonic()
    with failing_broker("ManagementNode", "Reply") as broker, client_of(broker, 0) as client:
        with client.get_queue_receiver(QUEUE) as receiver, pytest.raises(ServiceBusError):
            receiver.peek_messages(1)
        with client.get_queue_receiver(QUEUE) as receiver:
            assert [] == receiver.peek_messages(1)
    assert time.monotonic() - began_s < SOON_S


def test_a_request_over_http_whose_answer_fails_ends_with_an_error():
    """The connection can be used for the next request."""
    with failing_broker("RequestPeer", "SendAccepted") as broker:
        path = f"/{QUEUE}/messages"
        assert 500 == broker.request("POST", path, "a", timeout_s=SOON_S)[0]
        assert 201 == broker.request("POST", path, "b", timeout_s=SOON_S)[0]
