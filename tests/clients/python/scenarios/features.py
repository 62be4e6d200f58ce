"""Schedules, duplicates, expiry, forwarding."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from tests.clients.python.scenarios.moves import (
    bodies,
    connect,
    expect_nothing,
    receive,
    send,
    take,
)
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


async def schedule(broker: Broker) -> None:
    queue, due = broker.queue(), broker.now() + timedelta(hours=1)
    async with connect(broker) as client:
        async with client.get_queue_sender(queue) as sender:
            messages = [ServiceBusMessage("a"), ServiceBusMessage("b")]
            numbers = await sender.schedule_messages(messages, due)
            await sender.send_messages(ServiceBusMessage("c", scheduled_enqueue_time_utc=due))
        async with client.get_queue_receiver(queue) as receiver:
            await expect_nothing(receiver)
            peeked = await receiver.peek_messages(10)
            assert ["a", "b", "c"] == bodies(peeked)
            expect(ServiceBusMessageState.SCHEDULED, peeked[0].state, "state")
            expect(numbers, [message.sequence_number for message in peeked[:2]], "numbers")
            broker.advance(seconds=3601)
            assert ["a", "b", "c"] == await take(receiver, 3)


async def cancel_scheduled(broker: Broker) -> None:
    queue, due = broker.queue(), broker.now() + timedelta(hours=1)
    async with connect(broker) as client:
        async with client.get_queue_sender(queue) as sender:
            messages = [ServiceBusMessage("a"), ServiceBusMessage("b")]
            numbers = await sender.schedule_messages(messages, due)
            await sender.cancel_scheduled_messages(numbers[0])
        broker.advance(seconds=3601)
        async with client.get_queue_receiver(queue) as receiver:
            assert ["b"] == await take(receiver, 1)
            await expect_nothing(receiver)


async def duplicate_detection(broker: Broker) -> None:
    queue = broker.queue(
        RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1M"
    )
    async with connect(broker) as client:
        await send(client, queue, "first", message_id="same")
        await send(client, queue, "second", message_id="same")
        await send(client, queue, "other", message_id="other")
        async with client.get_queue_receiver(queue) as receiver:
            assert ["first", "other"] == await take(receiver, 2)
            broker.advance(seconds=61)
            await send(client, queue, "later", message_id="same")
            assert ["later"] == await take(receiver, 1)


async def time_to_live(broker: Broker) -> None:
    dropping = broker.queue()
    keeping = broker.queue(DeadLetteringOnMessageExpiration=True)
    async with connect(broker) as client:
        for queue in (dropping, keeping):
            await send(client, queue, "stale", time_to_live=timedelta(seconds=10))
            await send(client, queue, "fresh")
        broker.advance(seconds=11)
        for queue, expired in ((dropping, []), (keeping, ["stale"])):
            async with client.get_queue_receiver(queue) as receiver:
                assert ["fresh"] == await take(receiver, 1)
            async with client.get_queue_receiver(
                queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER
            ) as dead:
                peeked = await dead.peek_messages(5)
                expect(expired, bodies(peeked), "what was dead-lettered")
                expect(
                    ["TTLExpiredException"] * len(expired),
                    [message.dead_letter_reason for message in peeked],
                    "reasons",
                )


async def forwarding(broker: Broker) -> None:
    last, graveyard = broker.queue(), broker.queue()
    first = broker.queue(ForwardTo=last)
    failing = broker.queue(ForwardDeadLetteredMessagesTo=graveyard)
    async with connect(broker) as client:
        await send(client, first, "passed on")
        async with client.get_queue_receiver(last) as receiver:
            assert ["passed on"] == await take(receiver, 1)
        await send(client, failing, "bad")
        async with client.get_queue_receiver(failing) as receiver:
            (message,) = await receive(receiver, 1)
            await receiver.dead_letter_message(message, reason="why")
        async with client.get_queue_receiver(graveyard) as receiver:
            (dead,) = await receive(receiver, 1)
            expect(("bad", "why"), (str(dead), dead.dead_letter_reason), "dead letter")
            expect(failing, dead.dead_letter_source, "source")
            await receiver.complete_message(dead)


async def forwarding_round_trip(broker: Broker) -> None:
    last, first = broker.queue(), broker.name("forwarding")
    async with (
        ServiceBusAdministrationClient.from_connection_string(
            broker.admin_connection_string, connection_verify=broker.authority_file
        ) as admin,
        connect(broker) as client,
    ):
        await admin.create_queue(first, forward_to=last)
        read = await admin.get_queue(first)
        assert read.forward_to is not None
        assert read.forward_to.rstrip("/").endswith(f"/{last}"), read.forward_to
        await admin.update_queue(read)
        expect(read.forward_to, (await admin.get_queue(first)).forward_to, "written back")
        sent = {
            "message_id": "id",
            "correlation_id": "7",
            "subject": "order",
            "content_type": "text/plain",
            "reply_to": "answers",
            "to": "somewhere",
            "time_to_live": timedelta(hours=1),
            "partition_key": "key",
        }
        properties: dict[str | bytes, Any] = {"size": 5}
        await send(client, first, "passed on", application_properties=properties, **sent)
        async with client.get_queue_receiver(last) as receiver:
            (message,) = await receive(receiver, 1)
            expect("passed on", str(message), "body")
            expect(sent, {name: getattr(message, name) for name in sent}, "properties")
            expect({b"size": 5}, message.application_properties, "application properties")
            expect(1, message.enqueued_sequence_number, "sequence number where it was sent")
            expect(0, message.delivery_count, "delivery count")
            await receiver.complete_message(message)
