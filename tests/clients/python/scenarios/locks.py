"""Locks that are renewed, and locks that are lost."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer
from azure.servicebus.exceptions import MessageLockLostError

from tests.clients.python.scenarios.moves import (
    WAIT_S,
    connect,
    expect_nothing,
    receive,
    send,
    take,
)
from tests.clients.python.together import together
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from datetime import datetime

    from azure.servicebus import ServiceBusReceivedMessage

    from tests.clients.python.trial import Broker

CONCURRENT = 20


async def renew_lock(broker: Broker) -> None:
    queue = broker.queue(LockDuration="PT10S")
    async with connect(broker) as client:
        await send(client, queue, "mine")
        async with client.get_queue_receiver(queue) as receiver:
            (message,) = await receive(receiver, 1)
            for _ in range(3):
                broker.advance(seconds=8)
                until = await receiver.renew_message_lock(message)
                assert broker.now() < until <= broker.now() + timedelta(seconds=10)
            async with client.get_queue_receiver(queue) as other:
                await expect_nothing(other)
            await receiver.complete_message(message)
            await expect_nothing(receiver)


async def concurrent_management(broker: Broker) -> None:
    queue, due = broker.queue(LockDuration="PT30S"), broker.now() + timedelta(hours=1)
    texts = [str(number) for number in range(CONCURRENT)]
    async with connect(broker) as client:
        async with client.get_queue_sender(queue) as sender:
            numbers = await together(
                [partial(sender.schedule_messages, ServiceBusMessage(text), due) for text in texts]
            )
        expect(CONCURRENT, len({number for (number,) in numbers}), "sequence numbers")
        broker.advance(seconds=3601)
        async with client.get_queue_receiver(queue) as receiver:
            messages = await receive(receiver, CONCURRENT)
            expect(set(texts), {str(message) for message in messages}, "what was scheduled")
            broker.advance(seconds=20)
            await together([partial(receiver.renew_message_lock, message) for message in messages])
            broker.advance(seconds=20)
            for message in messages:
                await receiver.complete_message(message)
            expect([], await receiver.peek_messages(1), "what is left")


def _locked_until(message: ServiceBusReceivedMessage) -> datetime:
    assert message.locked_until_utc is not None
    return message.locked_until_utc


async def auto_renew_ten(broker: Broker) -> None:
    broker.restart()
    queue = broker.queue(LockDuration="PT5S")
    async with connect(broker) as client:
        await send(client, queue, *map(str, range(10)))
        async with client.get_queue_receiver(queue) as receiver, AutoLockRenewer() as renewer:
            messages = await receive(receiver, 10)
            first = max(_locked_until(message) for message in messages)
            for message in messages:
                renewer.register(receiver, message, max_lock_renewal_duration=60)
            deadline_s = time.monotonic() + WAIT_S
            wanted = first + timedelta(seconds=1)
            while any(_locked_until(message) < wanted for message in messages):
                assert time.monotonic() < deadline_s, "not all locks were renewed"
                await expect_nothing(receiver)
            broker.advance_to(first)
            for message in messages:
                await receiver.complete_message(message)
                assert message.auto_renew_error is None
            expect([], await receiver.peek_messages(1), "what is left")


async def backup_settlement(broker: Broker) -> None:
    """First the receiver is closed, then a whole connection."""
    queue = broker.queue()
    async with connect(broker) as client:
        await send(client, queue, "of a link", "of a connection")
        async with client.get_queue_receiver(queue) as receiver:
            (of_link,) = await receive(receiver, 1)
        async with connect(broker) as other, other.get_queue_receiver(queue) as receiver:
            (of_connection,) = await receive(receiver, 1)
        async with client.get_queue_receiver(queue) as receiver:
            await expect_nothing(receiver)
            await receiver.complete_message(of_link)
            await receiver.complete_message(of_connection)
            expect([], await receiver.peek_messages(1), "what is left")


async def auto_renew_lock(broker: Broker) -> None:
    """The renewer goes by its own clock, so the broker's must begin with the same time."""
    broker.restart()
    queue = broker.queue(LockDuration="PT5S")
    async with connect(broker) as client:
        await send(client, queue, "mine")
        async with client.get_queue_receiver(queue) as receiver, AutoLockRenewer() as renewer:
            (message,) = await receive(receiver, 1)
            first = message.locked_until_utc
            assert first is not None
            renewer.register(receiver, message, max_lock_renewal_duration=60)
            deadline_s = time.monotonic() + WAIT_S
            while (message.locked_until_utc or first) < first + timedelta(seconds=3):
                assert time.monotonic() < deadline_s, "the lock was not renewed"
                await expect_nothing(receiver)
            broker.advance_to(first)
            await receiver.complete_message(message)
            assert message.auto_renew_error is None


async def lock_lost(broker: Broker) -> None:
    queue = broker.queue(LockDuration="PT5S")
    async with connect(broker) as client:
        await send(client, queue, "slow")
        async with client.get_queue_receiver(queue) as receiver:
            (message,) = await receive(receiver, 1)
            broker.advance(seconds=6)
            try:
                await receiver.complete_message(message)
            except MessageLockLostError:
                pass
            else:
                raise AssertionError("completed after the lock was lost")
            try:
                await receiver.renew_message_lock(message)
            except MessageLockLostError:
                pass
            else:
                raise AssertionError("renewed after the lock was lost")
        async with client.get_queue_receiver(queue) as other:
            assert ["slow"] == await take(other, 1)
