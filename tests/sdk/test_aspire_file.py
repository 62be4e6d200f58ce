"""A broker started with a file as Aspire writes it, used through the stock SDK."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from tests.config.files.test_emulator_reader import ASPIRE
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    document = json.loads(ASPIRE)
    (namespace,) = document["UserConfig"]["Namespaces"]
    namespace["Queues"].append({"Name": "onward", "Properties": {"ForwardTo": "later"}})
    with BrokerProcess(config=document) as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        yield client


def send(client: ServiceBusClient, queue: str, text: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(text))


def test_a_rule_without_a_filter_takes_every_message(client: ServiceBusClient) -> None:
    """Once, although two rules of the subscription do."""
    with client.get_topic_sender("topic1") as sender:
        sender.send_messages(ServiceBusMessage("anything"))
    with client.get_subscription_receiver("topic1", "sub1") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        receiver.complete_message(message)
        assert [] == receiver.receive_messages(max_wait_time=1)
    assert "anything" == str(message)


def test_dead_letters_stay_until_their_target_exists(
    client: ServiceBusClient, broker: BrokerProcess
) -> None:
    """The queue `errors` is in no file; when it is created, they go there."""
    send(client, "queue1", "broken")
    with client.get_queue_receiver("queue1") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        receiver.dead_letter_message(message, reason="Broken")
    with client.get_queue_receiver("queue1", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (peeked,) = receiver.peek_messages()
    assert ("broken", "Broken") == (str(peeked), peeked.dead_letter_reason)
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=10)
    connection.request("PUT", "/errors?api-version=2021-05", QUEUE)
    assert 201 == connection.getresponse().status
    connection.close()
    with client.get_queue_receiver("errors") as receiver:
        (moved,) = receiver.receive_messages(max_wait_time=5)
        receiver.complete_message(moved)
    assert ("broken", "queue1") == (str(moved), moved.dead_letter_source)


def test_messages_for_a_missing_target_are_dead_lettered(client: ServiceBusClient) -> None:
    """They are in the dead-letter queue of the entity they were sent to, with the reason."""
    send(client, "onward", "lost")
    found = []
    for sub_queue in (ServiceBusSubQueue.DEAD_LETTER, ServiceBusSubQueue.TRANSFER_DEAD_LETTER):
        with client.get_queue_receiver("onward", sub_queue=sub_queue) as receiver:
            found += receiver.peek_messages()
    (message,) = found
    assert "lost" == str(message)
    assert "later" in str(message.dead_letter_error_description)
