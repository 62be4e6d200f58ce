"""A broker in a container for a test run, with Testcontainers for Python.

    pip install testcontainers pytest azure-servicebus
    pytest examples/testcontainers_python.py

`make image` builds the image. It logs the same line as the official emulator when it is ready.
"""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import wait_for_logs

IMAGE = "peeklock:latest"
READY = "Emulator Service is Successfully Up!"
AMQP_PORT, HTTP_PORT = 5672, 5300


@pytest.fixture(scope="session")
def connection_string():
    """Start one broker for the whole run. Docker picks the ports."""
    container = DockerContainer(IMAGE).with_exposed_ports(AMQP_PORT, HTTP_PORT)
    with container.with_env("PEEKLOCK_STORAGE", "memory:") as broker:
        wait_for_logs(broker, READY, timeout=30)
        host, port = broker.get_container_host_ip(), broker.get_exposed_port(AMQP_PORT)
        yield (
            f"Endpoint=sb://{host}:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )


def test_a_message_comes_back(connection_string):
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender("queue.1") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver("queue.1") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            receiver.complete_message(message)
    assert str(message) == "hello"
