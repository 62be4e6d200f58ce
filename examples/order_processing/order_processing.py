"""An application that processes orders: what the tests beside it test.

Orders arrive in the queue `orders`. An order that is paid goes to the topic `paid-orders`. The shipments of each customer
are packed in order, in sessions of the queue `shipments`. A reminder is scheduled for a week later.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

REMIND_AFTER = timedelta(days=7)
RECEIVE_WAIT_S = 0.1


class PaymentFailed(Exception):
    """The bank did not answer. Another attempt may succeed."""


@asynccontextmanager
async def in_parallel(*handlers):
    """Opens and closes senders and receivers at the same time. Each has a connection of its own to set up."""
    await asyncio.gather(*(one.__aenter__() for one in handlers))
    try:
        yield
    finally:
        await asyncio.gather(*(one.close() for one in handlers))


class OrderProcessor:
    """Takes orders one after the other until it is told to stop."""

    def __init__(self, client: ServiceBusClient, pay) -> None:
        self._client = client
        self._pay = pay
        self.paid = set()
        """The ids of orders that are paid. A real application keeps them in its database."""
        self.lost_locks = 0
        self._is_stopping = False

    def stop(self) -> None:
        """Finish the order that is being processed, and end."""
        self._is_stopping = True

    async def run(self) -> None:
        """Process orders until `stop` is called."""
        receiver = self._client.get_queue_receiver("orders", prefetch_count=1)
        sender = self._client.get_topic_sender("paid-orders")
        async with in_parallel(receiver, sender):
            while not self._is_stopping:
                for message in await receiver.receive_messages(max_wait_time=RECEIVE_WAIT_S):
                    await self._process(message, receiver, sender)

    async def _process(self, message, receiver, sender) -> None:
        try:
            order = json.loads(str(message))
            order_id, amount = order["id"], order["amount"]
        except (ValueError, KeyError) as error:
            await receiver.dead_letter_message(
                message, reason="InvalidOrder", error_description=repr(error)
            )
            return
        try:
            if order_id not in self.paid:  # a second delivery must not take the money again
                await self._pay(order_id, amount)
                self.paid.add(order_id)
            await sender.send_messages(
                ServiceBusMessage(str(message), message_id=order_id, subject="paid")
            )
            await receiver.complete_message(message)
        except PaymentFailed:
            await receiver.abandon_message(message)
        except MessageLockLostError:
            self.lost_locks += 1  # somebody else has it now, or will have it
        except ServiceBusError:
            pass  # the order comes again


async def place_order(client: ServiceBusClient, order) -> None:
    """Send an order. Its id is the message id, so the queue drops a second one of the same order."""
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(json.dumps(order), message_id=order["id"]))


async def remind(client: ServiceBusClient, order_id: str, now: datetime) -> int:
    """Schedule a reminder for a week later. Returns the number with which it can be cancelled."""
    async with client.get_queue_sender("reminders") as sender:
        (number,) = await sender.schedule_messages(ServiceBusMessage(order_id), now + REMIND_AFTER)
        return number


async def pack_shipments(client: ServiceBusClient, count: int) -> list:
    """Pack so many parcels of one customer, the next that has some. Returns what the customer got in total.

    The state of the session has what was packed before, so another packer can take over.
    """
    async with client.get_queue_receiver(
        "shipments", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5, prefetch_count=count
    ) as receiver:
        state = await receiver.session.get_state()
        packed = json.loads(state) if state else []
        for message in await receiver.receive_messages(max_message_count=count):
            packed.append(str(message))
            await receiver.session.set_state(json.dumps(packed))
            await receiver.complete_message(message)
        return packed
