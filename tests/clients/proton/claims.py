"""Keys of each claim on a broker that is strict, and entities that do not exist."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from proton.utils import LinkDetached

from tests.clients.proton.moves import (
    NEXT_AVAILABLE,
    Manager,
    Refused,
    Session,
    connect,
    listen,
    refusal,
    send,
    take,
)
from tests.clients.python.trial import expect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from proton.utils import BlockingConnection

    from tests.clients.python.trial import Broker


def _expect_refusal(condition: str, call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except (LinkDetached, Refused) as error:
        expect(condition, refusal(error), what)
        return
    raise AssertionError(f"{what} was not refused")


def _strictly(broker: Broker, claim: str) -> AbstractContextManager[BlockingConnection]:
    string = os.environ[f"PEEKLOCK_STRICT_{claim.upper()}_CONNECTION_STRING"]
    parts = dict(part.split("=", 1) for part in string.rstrip(";").split(";"))
    return connect(
        broker,
        url=parts["Endpoint"].replace("sb://", "amqp://"),
        user=parts["SharedAccessKeyName"],
        password=parts["SharedAccessKey"],
    )


def strict_claims(broker: Broker) -> None:
    queue, refused = os.environ["PEEKLOCK_STRICT_QUEUE"], "amqp:unauthorized-access"
    with _strictly(broker, "send") as connection:
        send(connection, queue, "sent")
        _expect_refusal(refused, lambda: listen(connection, queue), "receiving")
    with _strictly(broker, "listen") as connection:
        _expect_refusal(refused, lambda: send(connection, queue, "x"), "sending")
        assert ["sent"] == take(listen(connection, queue), 1)
    with _strictly(broker, "manage") as connection:
        send(connection, queue, "managed")
        assert ["managed"] == take(listen(connection, queue), 1)


def error_not_found_operations(broker: Broker) -> None:
    nowhere, topic = broker.name("nowhere"), broker.topic()
    subscription = f"{topic}/Subscriptions/nowhere"
    with connect(broker) as connection:
        for what, call in _operations(connection, nowhere, subscription):
            _expect_refusal("amqp:not-found", call, what)


def _operations(
    connection: BlockingConnection, queue: str, subscription: str
) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "send", lambda: send(connection, queue, "x")
    yield "receive", lambda: listen(connection, queue)
    yield "receive dead letters", lambda: listen(connection, f"{queue}/$DeadLetterQueue")
    yield "receive from a subscription", lambda: listen(connection, subscription)
    yield "accept a session", lambda: listen(connection, queue, Session("one"))
    yield "accept any session", lambda: listen(connection, queue, Session(NEXT_AVAILABLE))
    yield "peek", lambda: Manager(connection, queue).peek()
    yield "peek in a subscription", lambda: Manager(connection, subscription).peek()
