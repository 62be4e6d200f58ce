"""A config file that declares another kind of entity than the store has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.support.server import BrokerFailed, BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

AS_QUEUE: dict[str, Any] = {"queues": {"orders": {}}}
AS_TOPIC: dict[str, Any] = {"topics": {"orders": {"subscriptions": {"audit": {}}}}}


def send(broker: BrokerProcess, name: str) -> None:
    """A queue and a topic have the same senders."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender(name) as sender,
    ):
        sender.send_messages(ServiceBusMessage("kept"))


def receive_one(broker: BrokerProcess, *names: str) -> str:
    """Completes a message of a queue, or of a subscription."""
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        receiver = (
            client.get_queue_receiver(*names)
            if len(names) == 1
            else client.get_subscription_receiver(*names)
        )
        with receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
            return str(message)


def test_an_empty_entity_of_another_kind_is_replaced(tmp_path: Path) -> None:
    """The broker starts with what the file declares, also the next time."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(config=AS_QUEUE, storage=storage) as broker:
        send(broker, "orders")
        assert "kept" == receive_one(broker, "orders")
    with BrokerProcess(config=AS_TOPIC, storage=storage) as broker:
        send(broker, "orders")
        broker.restart()
        assert "kept" == receive_one(broker, "orders", "audit")


def test_an_entity_with_messages_keeps_its_kind(tmp_path: Path) -> None:
    """The start is refused as a mistake of the config file: exit code 2, nothing changed."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(config=AS_QUEUE, storage=storage) as broker:
        send(broker, "orders")
    with (
        pytest.raises(BrokerFailed) as refused,
        BrokerProcess(config=AS_TOPIC, storage=storage),
    ):
        pass
    text = str(refused.value)
    for words in ("ended with 2", "the topic 'orders'", "has a queue", "1 message", "another name"):
        assert words in text
    assert "Traceback" not in text
    with BrokerProcess(config=AS_QUEUE, storage=storage) as broker:
        assert "kept" == receive_one(broker, "orders")


def test_a_topic_whose_name_is_longer_in_lower_case_is_declared_and_restored(
    tmp_path: Path,
) -> None:
    """With its subscriptions."""
    config: dict[str, Any] = {"topics": {"İx": {"subscriptions": {"s": {}}}}}
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(config=config, storage=storage) as broker:
        send(broker, "İx")
        broker.restart()
        assert "kept" == receive_one(broker, "İx", "s")
