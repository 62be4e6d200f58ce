"""The entities of each test's namespace, the application in it, and a bank that the tests control."""

import asyncio
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
        return ServiceBusClient.from_connection_string(
            peeklock.connection_string, retry_backoff_factor=0.05, **options
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
