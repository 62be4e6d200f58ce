"""A test that uses the fixtures."""

from azure.servicebus import ServiceBusClient, ServiceBusMessage


def test_an_order_is_received_once(broker, queue):
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("order 1"))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            receiver.complete_message(message)
    assert str(message) == "order 1"
