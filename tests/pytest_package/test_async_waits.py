"""Waits in an event loop: the code under test goes on meanwhile, and a wait that is cancelled ends."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from pytest_peeklock import (
    BrokerNotReachable,
    Peeklock,
    PeeklockError,
    WaitTimedOut,
    condition,
    settled,
)
from tests.support.event_server import event_server
from tests.support.server import free_ports


async def test_the_test_sends_while_it_waits(peeklock):
    async with (
        ServiceBusClient.from_connection_string(peeklock.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        waiting = asyncio.gather(peeklock.aio.wait_for("orders", at_least=2))
        await sender.send_messages(ServiceBusMessage("one"))
        await sender.send_messages(ServiceBusMessage("two"))
        ((first, second),) = await waiting
    assert ("one", "two") == (first["body"], second["body"])


async def test_a_wait_times_out(peeklock):
    with pytest.raises(WaitTimedOut, match="0 seen"):
        await peeklock.aio.wait_until(condition("orders", at_least=1), timeout_s=0.01)


async def test_a_wait_is_refused(peeklock):
    with pytest.raises(PeeklockError, match="orderz"):
        await peeklock.aio.wait_for("orderz")


async def test_a_cancelled_wait_ends_at_once(peeklock):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await peeklock.aio.wait_for("orders", timeout_s=60)


async def test_everything_is_settled_at_the_end_of_a_block(peeklock):
    async with peeklock.aio.expecting(settled("orders")) as seen:
        peeklock.send("orders", "one")
        peeklock.purge_entity("orders")
    assert [0] == [one["count"] for one in seen]
    await peeklock.aio.wait_until_settled()
    await peeklock.aio.wait_until_empty("orders")
    await peeklock.aio.wait_until_unlocked()


async def test_a_broker_that_is_not_there():
    (port,) = free_ports(1)
    with pytest.raises(BrokerNotReachable, match="does not answer"):
        await Peeklock(f"http://127.0.0.1:{port}").aio.wait_until_settled()


async def test_an_event_may_be_long_and_the_number_of_dropped_ones_is_none():
    """The overview of many entities is one line."""
    text = "x" * (1 << 20)
    events = f'event: dropped\ndata: {{"count": 3}}\n\ndata: {{"text": "{text}"}}\n\n'
    with event_server(events.encode()) as url:
        found = [one async for one in Peeklock(url).aio.stream("/overview/stream")]
    assert [{"text": text}] == found
