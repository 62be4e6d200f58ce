"""The entities of each test's namespace, the application in it, and a bank that the tests control."""

import asyncio
import ssl
from contextlib import asynccontextmanager

import pytest
from azure.servicebus.aio import ServiceBusClient
from order_processing import OrderProcessor, PaymentFailed

TOPOLOGY = """
queues:
  orders:
    lock_duration: PT30S
    max_delivery_count: 3
    requires_duplicate_detection: true
    duplicate_detection_history_time_window: PT10M
  shipments:
    requires_session: true
    lock_duration: PT30S
  reminders:
topics:
  paid-orders:
    requires_duplicate_detection: true
    subscriptions:
      billing:
"""

CLIENT_OPTIONS = {
    # The SDK backs off after an error, for 0.8 seconds at first unless it is told otherwise.
    "retry_backoff_factor": 0.02,
    # The SDK reads the certificates of all authorities for each connection, although these connections are not encrypted.
    "ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
}


LINK_OPTIONS = {
    # A task keeps an idle connection alive. It looks once a second whether it should end, and `close` waits for it. No
    # test is idle for long, so none needs it. (A receiver whose `prefetch_count` is 0 has it in any case.)
    "keep_alive": 0,
    # A receiver looks so often whether its time is over, and before it closes. 0.2 seconds unless it is told otherwise.
    "socket_timeout": 0.05,
}


class QuickClient(ServiceBusClient):
    """The client of the SDK, whose senders and receivers do not wait longer than tests need."""

    def get_queue_sender(self, queue_name, **options):
        return super().get_queue_sender(queue_name, **LINK_OPTIONS, **options)

    def get_topic_sender(self, topic_name, **options):
        return super().get_topic_sender(topic_name, **LINK_OPTIONS, **options)

    def get_queue_receiver(self, queue_name, **options):
        return super().get_queue_receiver(queue_name, **LINK_OPTIONS, **options)


@pytest.fixture
def peeklock_topology():
    return TOPOLOGY


class Bank:
    """Takes the money, unless the test says otherwise."""

    def __init__(self) -> None:
        self.taken = []
        self.failures = 0
        """So many payments fail, from the next on."""
        self.meanwhile = None
        """Called once, during a payment."""

    async def pay(self, order_id, amount) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        if self.failures > 0:
            self.failures -= 1
            raise PaymentFailed(order_id)
        self.taken.append((order_id, amount))


@pytest.fixture
def bank():
    return Bank()


@pytest.fixture
def connect(peeklock):
    """Makes clients of the stock SDK for the namespace of the test."""

    def new_client(**options):
        return QuickClient.from_connection_string(
            peeklock.connection_string, **CLIENT_OPTIONS, **options
        )

    return new_client


@pytest.fixture
def running(connect, bank):
    """Makes blocks in which the application runs, as `async with` has them."""

    @asynccontextmanager
    async def run():
        async with connect() as client:
            processor = OrderProcessor(client, bank.pay)
            task = asyncio.get_running_loop().create_task(processor.run())
            try:
                yield processor
            finally:
                processor.stop()
                await asyncio.wait({task}, timeout=1)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    return run
