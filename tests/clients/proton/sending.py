"""Sending, and what becomes of a message before anybody receives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proton import Message, symbol, timestamp
from proton.utils import LinkDetached

from tests.clients.proton.moves import (
    Manager,
    Refused,
    body,
    connect,
    expect_nothing,
    listen,
    receive,
    refusal,
    send,
    send_or_raise,
    sequence_number,
    settle,
    take,
    text,
)
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker

MEBIBYTE = 1 << 20


def send_one(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "one")
        assert ["one"] == take(listen(connection, queue), 1)


def send_many(broker: Broker) -> None:
    queue, texts = broker.queue(), [str(number) for number in range(500)]
    with connect(broker) as connection:
        sender = connection.create_sender(queue)
        deliveries = []
        for one in texts:
            connection.wait(lambda: sender.link.credit > 0, msg="credit")
            deliveries.append(sender.link.send(text(one)))
        connection.wait(lambda: all(one.settled for one in deliveries), msg="outcomes")
        assert texts == take(listen(connection, queue), len(texts))


def send_1mb(broker: Broker) -> None:
    queue = broker.queue(MaxMessageSizeInKilobytes=4096)
    content = bytes(range(256)) * 4096
    with connect(broker) as connection:
        send(connection, queue, Message(body=content, inferred=True))
        receiver = listen(connection, queue)
        ((message, delivery),) = receive(receiver, 1)
        assert content == bytes(message.body)
        settle(receiver, delivery)


def _at(broker: Broker, *, seconds: int) -> timestamp:
    return timestamp(int(broker.now().timestamp() * 1000) + seconds * 1000)


def _later(broker: Broker, one: str) -> Any:
    when = {symbol("x-opt-scheduled-enqueue-time"): _at(broker, seconds=3600)}
    return text(one, annotations=when, id=one)


def _schedule(manager: Manager, *messages: Message) -> Any:
    entries = [{"message-id": one.id, "message": one.encode()} for one in messages]
    return manager.ask("com.microsoft:schedule-message", {"messages": entries})["sequence-numbers"]


def schedule(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        manager = Manager(connection, queue)
        numbers = _schedule(manager, _later(broker, "a"), _later(broker, "b"))
        send(connection, queue, _later(broker, "c"))
        receiver = listen(connection, queue)
        expect_nothing(receiver)
        peeked = manager.peek()
        expect(["a", "b", "c"], [body(one) for one in peeked], "what waits")
        expect(list(numbers.elements), [sequence_number(one) for one in peeked[:2]], "numbers")
        broker.advance(seconds=3601)
        assert ["a", "b", "c"] == take(receiver, 3)


def cancel_scheduled(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        manager = Manager(connection, queue)
        numbers = _schedule(manager, _later(broker, "a"), _later(broker, "b"))
        numbers.elements = numbers.elements[:1]
        manager.ask("com.microsoft:cancel-scheduled-message", {"sequence-numbers": numbers})
        broker.advance(seconds=3601)
        receiver = listen(connection, queue)
        assert ["b"] == take(receiver, 1)
        expect_nothing(receiver)


def duplicate_detection(broker: Broker) -> None:
    queue = broker.queue(
        RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1M"
    )
    with connect(broker) as connection:
        send(connection, queue, text("first", id="same"), text("second", id="same"))
        send(connection, queue, text("other", id="other"))
        receiver = listen(connection, queue)
        assert ["first", "other"] == take(receiver, 2)
        broker.advance(seconds=61)
        send(connection, queue, text("later", id="same"))
        assert ["later"] == take(receiver, 1)


def time_to_live(broker: Broker) -> None:
    queue = broker.queue(DeadLetteringOnMessageExpiration=True)
    with connect(broker) as connection:
        send(connection, queue, text("stale", ttl=10), "fresh")
        broker.advance(seconds=11)
        assert ["fresh"] == take(listen(connection, queue), 1)
        dead = listen(connection, f"{queue}/$DeadLetterQueue")
        ((message, delivery),) = receive(dead, 1)
        expect("stale", body(message), "what expired")
        expect("TTLExpiredException", message.properties["DeadLetterReason"], "reason")
        settle(dead, delivery)


def forwarding(broker: Broker) -> None:
    last, graveyard = broker.queue(), broker.queue()
    first = broker.queue(ForwardTo=last)
    failing = broker.queue(ForwardDeadLetteredMessagesTo=graveyard)
    with connect(broker) as connection:
        send(connection, first, "passed on")
        assert ["passed on"] == take(listen(connection, last), 1)
        send(connection, failing, "bad")
        receiver = connection.create_receiver(failing, credit=1)
        receiver.receive()
        receiver.reject()
        ((message, _),) = receive(listen(connection, graveyard), 1)
        expect("bad", body(message), "dead letter")
        expect(failing, message.annotations[symbol("x-opt-deadletter-source")], "source")


def error_not_found(broker: Broker) -> None:
    with connect(broker) as connection:
        for make in (connection.create_sender, connection.create_receiver):
            try:
                make(broker.name("nowhere"))
                raise AssertionError("a link to nowhere")
            except LinkDetached as error:
                expect("amqp:not-found", refusal(error), "condition")
        send(connection, broker.queue(), "the connection still works")


def error_quota(broker: Broker) -> None:
    queue, block = broker.queue(MaxSizeInMegabytes=1), text("x" * 200_000)
    with connect(broker) as connection:
        sender = connection.create_sender(queue)
        try:
            for _ in range(10):
                send_or_raise(connection, sender, block)
            raise AssertionError("a full queue takes more")
        except Refused as error:
            expect("amqp:resource-limit-exceeded", refusal(error), "condition")
        take(listen(connection, queue), 2)
        send_or_raise(connection, sender, block)


def error_too_large(broker: Broker) -> None:
    queue = broker.queue(MaxMessageSizeInKilobytes=1024)
    with connect(broker) as connection:
        sender = connection.create_sender(queue)
        expect(MEBIBYTE, sender.link.remote_max_message_size, "what the link says")
        try:
            send_or_raise(connection, sender, text("x" * 2 * MEBIBYTE))
            raise AssertionError("too large a message was taken")
        except Refused as error:
            expect("amqp:link:message-size-exceeded", refusal(error), "condition")
        send_or_raise(connection, sender, text("small"))
        assert ["small"] == take(listen(connection, queue), 1)
