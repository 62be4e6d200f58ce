"""Request and response over a pair of links: the shape `$cbs` and `$management` share.

A request is a message with an operation in its application properties; the response repeats its id,
in its type, as correlation id. Responses wait here for the client's credit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker.core.errors import UndecodableMessage
from protocol.amqp.mapping import wire_error
from protocol.amqp.outcomes import ACCEPTED
from protocol.amqp.values import Described, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.amqp.addresses import Address
    from protocol.amqp.engine import Delivery, Engine, EngineLink, TransferKind
    from protocol.amqp.outcomes import Outcome

PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE = 0x73, 0x74, 0x75, 0x76, 0x77
REQUEST_CREDIT = 200
MAX_WAITING_RESPONSES = 10_000


@dataclass(slots=True)
class Request:
    """One request, decoded."""

    link: RequestLink
    message_id: object
    reply_to: str | None
    properties: Mapping[str, object]
    body: object
    transaction_id: bytes | None = None
    extra: dict[str, object] = field(default_factory=dict)
    """What the node wants to remember until it answers."""


class RequestLink:
    """A link on which the client sends requests to a node."""

    def __init__(
        self,
        engine: Engine,
        link: EngineLink,
        node: Address,
        handle: Callable[[Request], None],
        touch: Callable[[], None],
    ) -> None:
        self._engine = engine
        self.link = link
        self.node = node
        self._handle = handle
        self._touch = touch
        self._answered = 0

    def attach(self, max_message_size_bytes: int) -> None:
        """Let the client begin."""
        self._engine.attach(
            self.link, max_message_size_bytes=max_message_size_bytes, credit=REQUEST_CREDIT
        )

    def on_transfers(
        self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind
    ) -> None:
        """Requests arrived: each is taken over at once, its answer is a message of its own."""
        for delivery, payload in zip(deliveries, payloads, strict=True):
            try:
                request = read_request(self, payload, kind.transaction_id)
            except UndecodableMessage as error:
                refusal = wire_error(error, operation="request")
                self._engine.settle_refused(self.link, [delivery], refusal)
                continue
            self._engine.settle(self.link, [delivery], None if kind.settled else ACCEPTED)
            self._handle(request)
        self._answered += len(deliveries)
        if self._answered * 2 >= REQUEST_CREDIT:
            self._engine.grant(self.link, self._answered)
            self._answered = 0
        self._touch()

    def on_oversize(self, delivery: Delivery, size_bytes: int, settled: bool) -> None:
        """A request over every limit is refused without having been read."""
        error = UndecodableMessage(f"A request of {size_bytes} bytes is too large.")
        if settled:
            self._engine.settle(self.link, [delivery], None)
        else:
            self._engine.settle_refused(
                self.link, [delivery], wire_error(error, operation="request")
            )
        self._touch()

    def on_detach(self) -> None:
        """Nothing is held for a request link."""


class ResponseLink:
    """A link on which the client takes responses from a node."""

    def __init__(
        self,
        engine: Engine,
        link: EngineLink,
        node: Address,
        address: str | None,
        touch: Callable[[], None],
        *,
        presettled: bool,
    ) -> None:
        self._engine = engine
        self.link = link
        self.node = node
        self.address = address
        """The client's own end, where it named one: requests may say `reply-to` with it."""
        self._touch = touch
        self._presettled = presettled
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING_RESPONSES)
        self._count = 0

    def attach(self) -> None:
        """Let the client begin."""
        self._engine.attach(self.link)

    def respond(self, response: bytes) -> None:
        """Send a response, or keep it until there is credit for it."""
        self._waiting.append(response)
        self.on_flow()
        self._touch()

    def on_flow(self) -> None:
        """Send what credit allows."""
        engine, link, waiting = self._engine, self.link, self._waiting
        while waiting and engine.credit(link) > 0:
            self._count += 1
            tag = self._count.to_bytes(16, "big")
            engine.send(link, [tag], [waiting.popleft()], [b""], self._presettled)
        if engine.draining(link):
            engine.drained(link)
        self._touch()

    def on_outcomes(
        self, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> None:
        """Whatever the client thinks of a response, it has it."""
        self._engine.settle(self.link, deliveries, None if settled else outcome)

    def on_detach(self) -> None:
        """Responses nobody will take are dropped."""
        self._waiting.clear()

    def pause(self) -> None:
        """Responses are few; they may wait in the engine."""

    def resume(self) -> None:
        """See `pause`."""


def read_request(link: RequestLink, payload: bytes, transaction_id: bytes | None) -> Request:
    """Decode a request: id, reply address, application properties and body."""
    properties: list[Any] = []
    application_properties: dict[str, object] = {}
    body: object = None
    data: list[bytes] = []
    position = 0
    while position < len(payload):
        section, position = decode(payload, position)
        if not isinstance(section, Described) or not isinstance(section.descriptor, int):
            raise UndecodableMessage("A request must consist of message sections.")
        code, value = int(section.descriptor), section.value
        if code == PROPERTIES and isinstance(value, list):
            properties = value
        elif code == APPLICATION_PROPERTIES and isinstance(value, dict):
            application_properties = {str(key): item for key, item in value.items()}
        elif code == VALUE:
            body = value
        elif code == DATA and isinstance(value, bytes):
            data.append(value)
        elif code == SEQUENCE:
            body = value
    if body is None and data:
        body = b"".join(data)
    message_id = properties[0] if properties else None
    reply_to = properties[4] if len(properties) > 4 else None
    return Request(
        link,
        message_id,
        None if reply_to is None else str(reply_to),
        application_properties,
        body,
        transaction_id,
    )


def write_response(request: Request, properties: Mapping[str, object], body: object) -> bytes:
    """Encode a response to a request."""
    correlation = encode([None, None, None, None, None, request.message_id])
    return b"".join(
        (
            _section(0x70, encode([])),
            _section(PROPERTIES, correlation),
            _section(APPLICATION_PROPERTIES, encode(dict(properties))),
            _section(VALUE, encode(body)),
        )
    )


def _section(code: int, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value
