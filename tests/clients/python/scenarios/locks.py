"""Locks that are renewed, and locks that are lost."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


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
