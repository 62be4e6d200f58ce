"""The lock duration of entities that are created without one is a setting."""

from __future__ import annotations

import http.client

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.app.runtime.test_undeclared_entities import QUEUE, put_queue
from tests.support.server import BrokerProcess


def test_entities_created_without_a_lock_duration_get_the_default():
    """Over HTTP as by first use."""
    settings = {"PEEKLOCK_DEFAULT_LOCK_DURATION": "45s", "PEEKLOCK_CREATE_ON_FIRST_USE": "true"}
    with BrokerProcess(environment=settings) as broker:
        assert "<LockDuration>PT45S</LockDuration>" in put_queue(broker, "made")
        topic = QUEUE.replace("QueueDescription", "TopicDescription")
        subscription = QUEUE.replace("QueueDescription", "SubscriptionDescription")
        connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=10)
        for path, body in (("new", topic), ("new/Subscriptions/s", subscription)):
            connection.request("PUT", f"/{path}?api-version=2021-05", body)
            content = connection.getresponse().read().decode()
        assert "<LockDuration>PT45S</LockDuration>" in content
        connection.close()
        with (
            ServiceBusClient.from_connection_string(broker.connection_string) as client,
            client.get_queue_sender("first-used") as sender,
        ):
            sender.send_messages(ServiceBusMessage("hello"))
        _, shown = broker.request("GET", "/first-used?api-version=2021-05")
        assert b"<LockDuration>PT45S</LockDuration>" in shown
        _, shown = broker.request("GET", "/queue.1?api-version=2021-05")
        assert b"<LockDuration>PT1M</LockDuration>" in shown
