"""Receiving, settling and locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proton import Condition, Data, Delivery, int32, symbol, timestamp, uint
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container

from tests.clients.proton.moves import (
    Manager,
    Refused,
    array,
    body,
    connect,
    decoded,
    expect_nothing,
    listen,
    receive,
    refusal,
    send,
    sequence_number,
    settle,
    take,
)
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from proton import Event

    from tests.clients.python.trial import Broker


def receive_no_prefetch(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "a", "b", "c")
        receiver = listen(connection, queue)
        assert ["a", "b"] == take(receiver, 2)
        assert ["c"] == take(receiver, 1)
        expect_nothing(receiver)


def receive_prefetch(broker: Broker) -> None:
    queue, texts = broker.queue(), [str(number) for number in range(200)]
    with connect(broker) as connection:
        send(connection, queue, *texts)
        receiver = connection.create_receiver(queue, credit=50)
        found = []
        for _ in texts:
            found.append(body(receiver.receive()))
            receiver.accept()
        assert texts == found


def processor(broker: Broker) -> None:
    """The library's event loop, with credit and accepting left to it."""
    queue, texts = broker.queue(), [str(number) for number in range(50)]
    found: list[str] = []

    class Consumer(MessagingHandler):
        """Takes what comes until it has everything."""

        def __init__(self) -> None:
            super().__init__(prefetch=10, auto_accept=True)

        def on_start(self, event: Event) -> None:
            connection = event.container.connect(
                f"amqp://{broker.host}:{broker.amqp_port}",
                user="RootManageSharedAccessKey",
                password="SAS_KEY_VALUE",
                allow_insecure_mechs=True,
                allowed_mechs="PLAIN",
            )
            event.container.create_receiver(connection, queue)

        def on_message(self, event: Any) -> None:
            found.append(body(event.message))
            if len(found) == len(texts):
                self.accept(event.delivery)
                event.receiver.close()
                event.connection.close()

    with connect(broker) as connection:
        send(connection, queue, *texts)
        Container(Consumer()).run()
        expect(texts, found, "what came")
        expect_nothing(listen(connection, queue))


def complete(broker: Broker) -> None:
    queue = broker.queue(LockDuration="PT5S")
    with connect(broker) as connection:
        send(connection, queue, "a", "b")
        receiver = listen(connection, queue)
        assert ["a", "b"] == take(receiver, 2)
        broker.advance(seconds=6)
        expect_nothing(receiver)


def abandon_with_properties(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "a", "b")
        receiver = listen(connection, queue)
        ((message, delivery),) = receive(receiver, 1)
        assert 0 == message.delivery_count
        settle(receiver, delivery, Delivery.MODIFIED, annotations={symbol("tried"): "once"})
        ((message, delivery),) = receive(receiver, 1)
        expect(("a", 1), (body(message), message.delivery_count), "what comes next")
        expect("once", message.properties["tried"], "property")
        settle(receiver, delivery)
        assert ["b"] == take(receiver, 1)


def _fetch(manager: Manager, number: int) -> tuple[Any, Any]:
    """A deferred message and its lock token."""
    answer = manager.ask(
        "com.microsoft:receive-by-sequence-number",
        {"sequence-numbers": array(Data.LONG, number), "receiver-settle-mode": uint(1)},
    )
    (entry,) = answer["messages"]
    return decoded(entry["message"]), entry["lock-token"]


def _deferred(broker: Broker, connection: Any, queue: str) -> int:
    """A message that is deferred; its number."""
    send(connection, queue, "later", "now")
    receiver = listen(connection, queue)
    ((message, delivery),) = receive(receiver, 1)
    settle(receiver, delivery, Delivery.MODIFIED, undeliverable=True)
    assert ["now"] == take(receiver, 1)
    expect_nothing(receiver)
    return sequence_number(message)


def _complete(manager: Manager, token: Any) -> None:
    manager.ask(
        "com.microsoft:update-disposition",
        {"disposition-status": "completed", "lock-tokens": array(Data.UUID, token)},
    )


def defer_and_fetch(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        number, manager = _deferred(broker, connection, queue), Manager(connection, queue)
        message, token = _fetch(manager, number)
        expect("later", body(message), "what was deferred")
        _complete(manager, token)
        expect([], manager.peek(), "what is left")


def dead_letter_and_read_back(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "bad")
        receiver = listen(connection, queue)
        ((_, delivery),) = receive(receiver, 1)
        info: Any = {
            symbol("DeadLetterReason"): "why",
            symbol("DeadLetterErrorDescription"): "in more words",
        }
        condition = Condition("com.microsoft:dead-letter", info=info)
        settle(receiver, delivery, Delivery.REJECTED, condition=condition)
        expect_nothing(receiver)
        dead = listen(connection, f"{queue}/$DeadLetterQueue")
        ((message, delivery),) = receive(dead, 1)
        expect("bad", body(message), "body")
        expect("why", message.properties["DeadLetterReason"], "reason")
        expect("in more words", message.properties["DeadLetterErrorDescription"], "description")
        settle(dead, delivery)


def receive_and_delete(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "a", "b")
        receiver = connection.create_receiver(queue, credit=2, options=AtMostOnce())
        assert ["a", "b"] == [body(receiver.receive()) for _ in range(2)]
        receiver.close()
        expect_nothing(listen(connection, queue))


def peek(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "a", "b", "c")
        manager = Manager(connection, queue)
        peeked = manager.peek()
        expect(["a", "b", "c"], [body(one) for one in peeked], "all")
        rest = manager.peek(from_number=sequence_number(peeked[1]))
        expect(["b", "c"], [body(one) for one in rest], "from the second on")
        assert ["a", "b", "c"] == take(listen(connection, queue), 3)
        expect([], manager.peek(), "what is left")


def renew_lock(broker: Broker) -> str:
    queue = broker.queue(LockDuration="PT10S")
    with connect(broker) as connection:
        send(connection, queue, "mine")
        receiver, manager = listen(connection, queue), Manager(connection, queue)
        ((message, delivery),) = receive(receiver, 1)
        token = message.instructions[symbol("x-opt-lock-token")]
        for _ in range(3):
            broker.advance(seconds=8)
            answer = manager.ask(
                "com.microsoft:renew-lock", {"lock-tokens": array(Data.UUID, token)}
            )
            (until_ms,) = answer["expirations"].elements
            left_ms = until_ms - broker.now().timestamp() * 1000
            assert 0 < left_ms <= 10_000, left_ms
        settle(receiver, delivery)
    return "token from the delivery annotations: the library shows no tag that is not text"


def lock_lost(broker: Broker) -> None:
    queue = broker.queue(LockDuration="PT5S")
    with connect(broker) as connection:
        send(connection, queue, "slow")
        receiver = listen(connection, queue)
        ((_, delivery),) = receive(receiver, 1)
        broker.advance(seconds=6)
        try:
            settle(receiver, delivery)
            raise AssertionError("completed after the lock was lost")
        except Refused as error:
            expect("com.microsoft:message-lock-lost", refusal(error), "condition")
        assert ["slow"] == take(listen(connection, queue), 1)


def purge_empty(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        manager = Manager(connection, queue)
        later_ms = int(broker.now().timestamp() * 1000) + 60_000
        purge = {"message-count": int32(10), "enqueued-time-utc": timestamp(later_ms)}
        expect(0, _deleted(manager, purge), "messages deleted in an empty queue")
        send(connection, queue, "a", "b")
        expect(2, _deleted(manager, purge), "messages deleted")
        expect(0, _deleted(manager, purge), "messages deleted afterwards")


def _deleted(manager: Manager, which: dict[str, Any]) -> int:
    answer = manager.ask("com.microsoft:batch-delete-messages", which)
    return int(answer["message-count"]) if answer else 0


def backup_settlement(broker: Broker) -> None:
    """First the link is closed, then a whole connection."""
    queue, key = broker.queue(), symbol("x-opt-lock-token")
    with connect(broker) as connection:
        send(connection, queue, "of a link", "of a connection")
        receiver = listen(connection, queue)
        ((of_link, _),) = receive(receiver, 1)
        receiver.close()
        with connect(broker) as other:
            ((of_connection, _),) = receive(listen(other, queue), 1)
            tokens = [one.instructions[key] for one in (of_link, of_connection)]
        expect_nothing(listen(connection, queue))
        manager = Manager(connection, queue)
        manager.ask(
            "com.microsoft:update-disposition",
            {"disposition-status": "completed", "lock-tokens": array(Data.UUID, *tokens)},
        )
        expect([], manager.peek(), "what is left")
