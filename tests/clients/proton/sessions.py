"""Sessions: accepted by name and as they come, held, renewed, lost, and their state."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from proton import Data, Delivery, uint
from proton.utils import LinkDetached

from tests.clients.proton.moves import (
    NEXT_AVAILABLE,
    Manager,
    Refused,
    Session,
    array,
    body,
    connect,
    expect_nothing,
    listen,
    receive,
    refusal,
    send,
    sequence_number,
    session_of,
    settle,
    take,
    text,
)
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from tests.clients.python.trial import Broker


def _in_session(session_id: str, *texts: str) -> list[Any]:
    return [text(one, group_id=session_id) for one in texts]


def session_named(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    with connect(broker) as connection:
        send(connection, queue, *_in_session("one", "a", "b", "c"), *_in_session("two", "x"))
        receiver = listen(connection, queue, Session("one"))
        expect("one", session_of(receiver), "session")
        assert ["a", "b", "c"] == take(receiver, 3)
        expect_nothing(receiver)


def session_next_available(broker: Broker) -> None:
    queue, found = broker.queue(RequiresSession=True), {}
    with connect(broker) as connection:
        send(connection, queue, *_in_session("one", "a", "b"), *_in_session("two", "x", "y"))
        for _ in range(2):
            receiver = listen(connection, queue, Session(NEXT_AVAILABLE))
            found[session_of(receiver)] = take(receiver, 2)
            receiver.close()
    expect({"one": ["a", "b"], "two": ["x", "y"]}, found, "sessions")


def session_two_holders(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    with connect(broker) as connection:
        one = listen(connection, queue, Session("one"))
        two = listen(connection, queue, Session("two"))
        send(connection, queue, *_in_session("two", "x", "y"), *_in_session("one", "a", "b"))
        assert ["a", "b"] == take(one, 2)
        assert ["x", "y"] == take(two, 2)


def session_state(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    get, put = "com.microsoft:get-session-state", "com.microsoft:set-session-state"
    with connect(broker) as connection:
        listen(connection, queue, Session("one"))
        manager, which = Manager(connection, queue), {"session-id": "one"}
        assert manager.ask(get, which)["session-state"] is None
        manager.ask(put, {**which, "session-state": b"halfway"})
        expect(b"halfway", manager.ask(get, which)["session-state"], "state")
        manager.ask(put, {**which, "session-state": None})
        assert manager.ask(get, which)["session-state"] is None


def session_renew(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True, LockDuration="PT10S")
    with connect(broker) as connection:
        send(connection, queue, *_in_session("one", "mine"))
        receiver, manager = listen(connection, queue, Session("one")), Manager(connection, queue)
        ((_, delivery),) = receive(receiver, 1)
        for _ in range(3):
            broker.advance(seconds=8)
            answer = manager.ask("com.microsoft:renew-session-lock", {"session-id": "one"})
            left_ms = answer["expiration"] - broker.now().timestamp() * 1000
            assert 0 < left_ms <= 10_000, left_ms
        settle(receiver, delivery)


def session_lock_lost(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True, LockDuration="PT5S")
    with connect(broker) as connection:
        send(connection, queue, *_in_session("one", "slow"))
        receiver = listen(connection, queue, Session("one"))
        ((_, delivery),) = receive(receiver, 1)
        broker.advance(seconds=6)
        try:
            settle(receiver, delivery)
            raise AssertionError("completed after the session was lost")
        except (Refused, LinkDetached) as error:
            expect("com.microsoft:session-lock-lost", refusal(error), "condition")
    with connect(broker) as connection:
        other = listen(connection, queue, Session("one"))
        ((message, delivery),) = receive(other, 1)
        expect(("slow", 1), (body(message), message.delivery_count), "what the next holder gets")
        settle(other, delivery)


def session_none_available(broker: Broker) -> None:
    queue, began_s = broker.queue(RequiresSession=True), time.monotonic()
    with connect(broker) as connection:
        try:
            listen(connection, queue, Session(NEXT_AVAILABLE, wait_ms=1000))
            raise AssertionError("there was a session")
        except LinkDetached as error:
            expect("com.microsoft:timeout", refusal(error), "condition")
    assert 0.9 < time.monotonic() - began_s < 5


def error_session_held(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    with connect(broker) as connection:
        holder = listen(connection, queue, Session("one"))
        try:
            listen(connection, queue, Session("one"))
            raise AssertionError("two hold the session")
        except LinkDetached as error:
            expect("com.microsoft:session-cannot-be-locked", refusal(error), "condition")
        holder.close()
        listen(connection, queue, Session("one"))


def session_id_case(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True)
    get, put = "com.microsoft:get-session-state", "com.microsoft:set-session-state"
    with connect(broker) as connection:
        for session_id, one in (("Order", "a"), ("ORDER", "b"), ("order", "c")):
            send(connection, queue, *_in_session(session_id, one))
        receiver, manager = listen(connection, queue, Session("oRDER")), Manager(connection, queue)
        expect("order", session_of(receiver).lower(), "session")
        manager.ask(put, {"session-id": "order", "session-state": b"shared"})
        try:
            listen(connection, queue, Session("Order"))
            raise AssertionError("two hold the session")
        except LinkDetached as error:
            expect("com.microsoft:session-cannot-be-locked", refusal(error), "condition")
        assert ["a", "b", "c"] == take(receiver, 3)
        expect(b"shared", manager.ask(get, {"session-id": "ORDER"})["session-state"], "state")


def session_deferred_after_renewals(broker: Broker) -> None:
    queue = broker.queue(RequiresSession=True, LockDuration="PT10S")
    which = {"session-id": "one"}
    with connect(broker) as connection:
        send(connection, queue, *_in_session("one", "early", "late"))
        receiver, manager = listen(connection, queue, Session("one")), Manager(connection, queue)
        numbers = []
        for message, delivery in receive(receiver, 2):
            numbers.append(sequence_number(message))
            settle(receiver, delivery, Delivery.MODIFIED, undeliverable=True)

        def fetch(number: int) -> Any:
            answer = manager.ask(
                "com.microsoft:receive-by-sequence-number",
                {
                    **which,
                    "sequence-numbers": array(Data.LONG, number),
                    "receiver-settle-mode": uint(1),
                },
            )
            return answer["messages"][0]["lock-token"]

        def complete(token: Any) -> None:
            tokens = array(Data.UUID, token)
            manager.ask(
                "com.microsoft:update-disposition",
                {**which, "disposition-status": "completed", "lock-tokens": tokens},
            )

        early = fetch(numbers[0])
        for _ in range(3):
            broker.advance(seconds=8)
            manager.ask("com.microsoft:renew-session-lock", which)
        complete(early)
        late = fetch(numbers[1])
        broker.advance(seconds=8)
        manager.ask("com.microsoft:renew-session-lock", which)
        broker.advance(seconds=8)
        complete(late)
        expect([], manager.peek(), "what is left")
