"""Proton's blocking client, and what a user of Service Bus would put around it.

Sending and receiving are the library's; settling waits for the broker's answer, and requests go to
the `$management` node as Service Bus documents them. Messages and deliveries are `Any`: the
library's annotations are narrower than what it takes and gives.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from proton import UNDESCRIBED, Array, Delivery, Link, Message, Timeout, int32, symbol, uint
from proton.reactor import Filter, LinkOption
from proton.utils import BlockingConnection, LinkDetached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proton.utils import BlockingReceiver, BlockingSender

    from tests.clients.python.trial import Broker

WAIT_S = 10
"""Long enough for what must come."""
NOTHING_S = 0.4
"""How long to look for what must not come."""
NEXT_AVAILABLE = None


class Refused(Exception):
    """The broker said no."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition


@contextmanager
def connect(broker: Broker, **options: Any) -> Iterator[BlockingConnection]:
    """With SASL PLAIN: the name of the key and the key."""
    url = options.pop("url", f"amqp://{broker.host}:{broker.amqp_port}")
    settings = {
        "timeout": WAIT_S,
        "user": "RootManageSharedAccessKey",
        "password": "SAS_KEY_VALUE",
        "allowed_mechs": "PLAIN",
        "allow_insecure_mechs": True,
    }
    connection = BlockingConnection(url, **{**settings, **options})
    try:
        yield connection
    finally:
        connection.close()


# ---- sending ------------------------------------------------------------------------------------


def text(body: str, **fields: Any) -> Any:
    """A message as Service Bus SDKs write it: the body is bytes."""
    return Message(body=body.encode(), inferred=True, **fields)


def send(connection: BlockingConnection, address: str, *messages: Any) -> None:
    sender = connection.create_sender(address)
    for message in messages:
        sender.send(text(message) if isinstance(message, str) else message)
    sender.close()


def send_or_raise(connection: BlockingConnection, sender: BlockingSender, message: Any) -> None:
    """Send, and learn why if it is refused; the library's own error does not say."""
    delivery: Any = sender.link.send(message)
    connection.wait(lambda: delivery.settled, msg="outcome of a send")
    delivery.settle()
    _judge(delivery)


# ---- receiving ----------------------------------------------------------------------------------


class SettlesSecond(LinkOption):
    """The broker settles: an outcome is answered."""

    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


class Session(Filter):
    """A session by its id, or the next one that is free, for which the broker waits so long."""

    def __init__(self, session_id: str | None, wait_ms: int | None = None) -> None:
        wanted: Any = session_id
        super().__init__({symbol("com.microsoft:session-filter"): wanted})
        self._wait_ms = wait_ms

    def apply(self, receiver: Any) -> None:
        super().apply(receiver)
        if self._wait_ms is not None:
            receiver.properties = {symbol("com.microsoft:timeout"): uint(self._wait_ms)}


def listen(connection: BlockingConnection, address: str, *options: LinkOption) -> BlockingReceiver:
    """A receiver that is granted nothing yet."""
    return connection.create_receiver(
        address, credit=0, name=str(uuid.uuid4()), options=[SettlesSecond(), *options]
    )


def session_of(receiver: BlockingReceiver) -> str:
    """The session the broker has given."""
    filters = receiver.link.remote_source.filter
    filters.rewind()
    filters.next()
    return str(filters.get_dict()[symbol("com.microsoft:session-filter")])


def receive(receiver: BlockingReceiver, count: int) -> list[tuple[Any, Any]]:
    """Exactly so many messages with their deliveries."""
    fetcher = receiver.fetcher
    missing = count - len(fetcher.incoming) - receiver.link.credit
    if missing > 0:
        receiver.link.flow(missing)
    receiver.connection.wait(lambda: len(fetcher.incoming) >= count, msg=f"{count} messages")
    return [fetcher.incoming.popleft() for _ in range(count)]


def settle(
    receiver: BlockingReceiver,
    delivery: Any,
    state: int = Delivery.ACCEPTED,
    *,
    undeliverable: bool = False,
    annotations: dict[Any, Any] | None = None,
    condition: Any = None,
) -> None:
    """Tell the broker what became of a message, and wait until it has agreed."""
    delivery.local.undeliverable = undeliverable
    if annotations:
        delivery.local.annotations = annotations
    if condition is not None:
        delivery.local.condition = condition
    delivery.update(state)
    receiver.connection.wait(lambda: delivery.settled, msg="answer to an outcome")
    delivery.settle()
    _judge(delivery, asked=state)


def _judge(delivery: Any, asked: int = Delivery.ACCEPTED) -> None:
    condition = delivery.remote.condition
    if condition is not None:
        raise Refused(condition.name, condition.description)
    assert asked == delivery.remote_state, f"asked {asked}, answered {delivery.remote_state}"


def body(message: Any) -> str:
    return bytes(message.body).decode()


def take(receiver: BlockingReceiver, count: int) -> list[str]:
    """The bodies of so many messages, which are completed."""
    received = receive(receiver, count)
    for _, delivery in received:
        settle(receiver, delivery)
    return [body(message) for message, _ in received]


def expect_nothing(receiver: BlockingReceiver) -> None:
    """Look for a while, then take the credit back."""
    link, fetcher = receiver.link, receiver.fetcher
    link.flow(1)
    try:
        receiver.connection.wait(lambda: bool(fetcher.incoming), timeout=NOTHING_S)
    except Timeout:
        link.drain(0)
        receiver.connection.wait(lambda: not link.draining(), msg="end of draining")
        link.drain_mode = False
    assert not fetcher.incoming, f"found {fetcher.incoming[0][0]!r}"


# ---- requests -----------------------------------------------------------------------------------


class Manager:
    """The `$management` node of an entity."""

    def __init__(self, connection: BlockingConnection, entity: str) -> None:
        address = f"{entity}/$management"
        self._connection = connection
        self._sender = connection.create_sender(address)
        self._receiver = connection.create_receiver(address, credit=1)

    def ask(self, operation: str, body: dict[str, Any]) -> Any:
        request = Message(
            id=str(uuid.uuid4()), reply_to="answers", properties={"operation": operation}, body=body
        )
        self._sender.send(request)
        answer: Any = self._receiver.receive(WAIT_S)
        self._receiver.accept()
        assert request.id == answer.correlation_id
        status = answer.properties["statusCode"]
        if status >= 300:
            condition = answer.properties.get("errorCondition")
            raise Refused(str(condition), answer.properties["statusDescription"])
        return _copied(answer.body)

    def peek(self, from_number: int = 1, count: int = 100) -> list[Any]:
        answer = self.ask(
            "com.microsoft:peek-message",
            {"from-sequence-number": from_number, "message-count": int32(count)},
        )
        return [decoded(one["message"]) for one in (answer or {}).get("messages", [])]


def _copied(value: Any) -> Any:
    """The library shows binary values where they lie, and frees that memory with the message."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [_copied(one) for one in value]
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return value


def decoded(encoded: bytes) -> Any:
    message = Message()
    message.decode(encoded)
    return message


def sequence_number(message: Any) -> int:
    return int(message.annotations[symbol("x-opt-sequence-number")])


def array(kind: int, *values: Any) -> Array:
    plain: Any = UNDESCRIBED
    return Array(plain, kind, *values)


def refusal(error: LinkDetached | Refused) -> str:
    """The AMQP condition."""
    return str(error.condition)
