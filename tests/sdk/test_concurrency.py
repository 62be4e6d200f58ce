"""One client used by many threads or tasks at once: the Python SDK writes delivery ids out of order
then, and some of them twice."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from azure.servicebus import AutoLockRenewer, ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer as AsyncAutoLockRenewer
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from tests.sdk.support import WAIT_S, nothing, receive, send

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver as AsyncServiceBusReceiver

    from tests.sdk.conftest import Live

THREADS = 20


async def receive_async(
    receiver: AsyncServiceBusReceiver, count: int
) -> list[ServiceBusReceivedMessage]:
    received: list[ServiceBusReceivedMessage] = []
    while len(received) < count:
        more = await receiver.receive_messages(count - len(received), max_wait_time=WAIT_S)
        assert more, f"only {len(received)} of {count} messages came"
        received += more
    return received


def an_hour_from_now() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def test_ten_messages_are_renewed_and_completed_at_once_by_threads(live: Live):
    queue = live.queue()
    send(live, queue, *map(str, range(10)))
    failures: list[object] = []
    with live.client() as client, client.get_queue_receiver(queue) as receiver:
        messages = receive(receiver, 10)
        with AutoLockRenewer(max_workers=10) as renewer, ThreadPoolExecutor(10) as pool:
            for message in messages:
                renewer.register(
                    receiver,
                    message,
                    on_lock_renew_failure=lambda *failure: failures.append(failure),
                )
            for future in [pool.submit(receiver.renew_message_lock, each) for each in messages]:
                future.result()
        for message in messages:
            receiver.complete_message(message)
        assert [] == failures
        assert nothing(receiver)


def test_messages_are_scheduled_by_many_threads_at_once(live: Live):
    queue = live.queue()
    with (
        live.client() as client,
        client.get_queue_sender(queue) as sender,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        sender.send_messages(ServiceBusMessage("first"))
        when = an_hour_from_now()
        futures = [
            pool.submit(sender.schedule_messages, ServiceBusMessage(str(number)), when)
            for number in range(20)
        ]
        numbers = [number for future in futures for number in future.result()]

    assert 20 == len(set(numbers))


def test_three_hundred_locks_are_renewed_at_once_by_threads(live: Live):
    queue = live.queue()
    send(live, queue, *map(str, range(10)))
    with (
        live.client() as client,
        client.get_queue_receiver(queue) as receiver,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        messages = receive(receiver, 10)
        renewals = [
            pool.submit(receiver.renew_message_lock, messages[number % 10]) for number in range(300)
        ]
        assert 300 == len([renewal.result() for renewal in renewals])
        for message in messages:
            receiver.complete_message(message)
        assert nothing(receiver)


def test_tasks_renew_schedule_and_send_at_once(live: Live):
    """The same with the asynchronous client, all through one session: 300 renewals, 20 schedules,
    and messages large enough to be cut into frames."""
    queue = live.queue()
    send(live, queue, *map(str, range(10)))

    async def use() -> None:
        async with AsyncServiceBusClient.from_connection_string(live.connection_string) as client:
            async with client.get_queue_receiver(queue) as receiver:
                messages = await receive_async(receiver, 10)
                async with AsyncAutoLockRenewer() as renewer:
                    for message in messages:
                        renewer.register(receiver, message)
                    renewals = await asyncio.gather(
                        *(receiver.renew_message_lock(messages[n % 10]) for n in range(300))
                    )
                assert 300 == len(renewals)
                await asyncio.gather(*map(receiver.complete_message, messages))
            async with client.get_queue_sender(queue) as sender:
                when = an_hour_from_now()
                scheduled = await asyncio.gather(
                    *(
                        sender.schedule_messages(ServiceBusMessage(str(number)), when)
                        for number in range(20)
                    )
                )
                assert 20 == len({number for numbers in scheduled for number in numbers})
                bodies = [bytes([number]) * 100_000 for number in range(10)]
                for body in bodies:
                    await sender.send_messages(ServiceBusMessage(body))
            async with client.get_queue_receiver(queue) as receiver:
                received = await receive_async(receiver, 10)
                assert bodies == [b"".join(message.body) for message in received]
                await asyncio.gather(*map(receiver.complete_message, received))

    asyncio.run(use())
