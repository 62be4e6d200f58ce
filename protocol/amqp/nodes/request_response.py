"""Requests and responses over a pair of links, as `$cbs` and `$management` use them.

A request is a message with an operation in its application properties. The response has the id of the request, in the
same AMQP type, as correlation id. Responses wait for the client's credit.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from broker.core.contract.errors import MessageSizeExceeded, UndecodableMessage
from protocol.amqp.engine.interface import OVERSIZE_KEPT_BYTES
from protocol.amqp.engine.outcomes import ACCEPTED
from protocol.amqp.nodes.request_values import check_values
from protocol.codec import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    decode,
    encode,
    section_start,
    sections_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.core.contract.errors import BrokerError
    from protocol.addresses import Address
    from protocol.amqp.engine.engine import Delivery, EngineLink, TransferKind
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.links.link_context import LinkContext
    from protocol.amqp.nodes.request_intake import RequestIntake

REQUEST_CREDIT = 200
SECTIONS_MAX = 64
"""Of one request. It needs three."""
PROPERTIES_MAX_VALUES = 1_000


@dataclass(slots=True)
class Request:
    """One request. Its body is decoded when it is started."""

    link: RequestLink
    message_id: object = None
    reply_to: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)
    body: object = None
    transaction_id: bytes | None = None
    delivery: Delivery | None = None
    """Settled when the request is started. None if the client settled it."""
    payload: bytes = b""
    """Until the body is decoded."""
    body_sections: list[tuple[int, int, int]] = field(default_factory=list)
    """The code of each, and where its value starts and ends."""
    size_bytes: int = 0
    answer_bytes: int = 0
    """The size of the answer, or its maximum while it is not known."""
    extra: dict[str, object] = field(default_factory=dict)
    """Values that the node needs for the answer."""
    instead_of_answer: Callable[[], None] | None = None
    """Called instead of sending the answer, because of a fault."""

    @property
    def is_ended(self) -> bool:
        """Whether the link of the request has ended."""
        return self.link.link.closed

    def drop(self) -> None:
        """Forgets the request. It gets no answer."""
        self.link.drop(self)

    def end_link(self, error: BrokerError) -> None:
        """Detaches the link of the request."""
        self.link.end(error)


class RequestNode(Protocol):
    """A node that answers requests."""

    def handle(self, request: Request) -> None:
        """Executes a request. The answer follows now or later."""

    def answer_max_bytes(self, request: Request) -> int:
        """Returns about how large the answer can be."""

    def body_max_values(self, request: Request) -> int:
        """Returns how many values the body may have."""

    def refuse(self, request: Request, error: BrokerError) -> None:
        """Answers a request with an error."""


class RequestLink:
    """A link on which the client sends requests to a node."""

    def __init__(
        self,
        context: LinkContext,
        link: EngineLink,
        node: Address,
        answerer: RequestNode,
        intake: RequestIntake,
    ) -> None:
        self._context = context
        self._engine = context.engine
        self.link = link
        self.node = node
        self._answerer = answerer
        self._intake = intake
        self._touch = context.touch
        self._answered = 0

    @property
    def connection(self) -> object:
        """The connection to which transactions of the requests belong."""
        return self._engine

    def attach(self, max_message_size_bytes: int) -> None:
        """Grants the link."""
        self.link.max_message_size_bytes = max_message_size_bytes
        self._engine.attach(
            self.link, max_message_size_bytes=max_message_size_bytes, credit=REQUEST_CREDIT
        )

    def on_transfers(
        self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind
    ) -> None:
        """Decodes requests and starts them. Each is answered with a message on a response link."""
        if kind.settled:
            self._engine.settle(self.link, deliveries, None)
        for delivery, payload in zip(deliveries, payloads, strict=True):
            if len(payload) > self.link.max_message_size_bytes:
                beginning = payload[:OVERSIZE_KEPT_BYTES]
                self._refuse_oversize(delivery, len(payload), kind.settled, beginning)
                continue
            request = Request(
                self,
                transaction_id=kind.transaction_id,
                delivery=None if kind.settled else delivery,
                size_bytes=len(payload),
            )
            try:
                read_request(request, payload)
            except (UndecodableMessage, MessageSizeExceeded) as error:
                self._refuse(request, error)
            else:
                self._intake.take(request)
        self._touch()

    def start(self, request: Request) -> None:
        """Accepts and executes a request, because there is room for its answer."""
        try:
            read_body(request, self._answerer.body_max_values(request))
        except (UndecodableMessage, MessageSizeExceeded) as error:
            self._refuse(request, error)
            return
        if request.delivery is not None:
            self._engine.settle(self.link, [request.delivery], ACCEPTED)
        self._answerer.handle(request)

    def answer_max_bytes(self, request: Request) -> int:
        """Returns about how large the answer can be."""
        return self._answerer.answer_max_bytes(request)

    def on_oversize(
        self, delivery: Delivery, size_bytes: int, settled: bool, beginning: bytes
    ) -> None:
        """Refuses a request that is over the link's limit."""
        self._refuse_oversize(delivery, size_bytes, settled, beginning)
        self._touch()

    def _refuse_oversize(
        self, delivery: Delivery, size_bytes: int, settled: bool, beginning: bytes
    ) -> None:
        request = Request(self, delivery=None if settled else delivery)
        if settled:
            self._engine.settle(self.link, [delivery], None)
        with suppress(UndecodableMessage, MessageSizeExceeded):
            read_request(request, beginning)
        error = MessageSizeExceeded(
            f"The received message (delivery-id:0, size:{size_bytes} bytes) exceeds the limit "
            f"({self.link.max_message_size_bytes} bytes) currently allowed on the link."
        )
        self._refuse(request, error)

    def _refuse(self, request: Request, error: BrokerError) -> None:
        """Refuses a request that cannot be decoded: with an answer if its id is known, for which every SDK waits, or
        else by detaching the link.

        The outcome `rejected` alone is not enough: the JavaScript and .NET SDKs ignore the outcome of a request
        and wait for the answer until their timeout. The Python SDK takes the reason from the outcome, and from the
        detach only that the request failed.
        """
        if request.message_id is None:
            self.end(error, request.delivery)
            self.drop(request)
            return
        if request.delivery is not None:
            self._engine.settle(self.link, [request.delivery], ACCEPTED)
        self._answerer.refuse(request, error)

    def end(self, error: BrokerError, delivery: Delivery | None = None) -> None:
        """Detaches the link with an error, and rejects the delivery if one is given."""
        refusal = self._context.refuse(error, entity=self.node.path, operation="request")
        if delivery is not None:
            self._engine.settle_refused(self.link, [delivery], refusal)
        self._engine.detach(self.link, refusal)
        self._intake.forget(self)
        self._touch()

    def drop(self, request: Request) -> None:
        """Forgets a request that gets no answer."""
        self._intake.answer_sent(request)

    def return_credit(self, count: int) -> None:
        """Returns the credit of requests whose answers were sent, many at a time."""
        if self.link.closed:
            return
        self._answered += count
        if self._answered * 2 >= REQUEST_CREDIT:
            self._engine.grant(self.link, self._answered)
            self._answered = 0
        self._touch()

    def on_detach(self) -> None:
        """Drops the requests that wait."""
        self._intake.forget(self)


class ResponseLink:
    """A link on which the client receives responses of a node."""

    def __init__(
        self,
        context: LinkContext,
        link: EngineLink,
        node: Address,
        address: str | None,
        intake: RequestIntake,
        *,
        presettled: bool,
    ) -> None:
        self._engine = context.engine
        self._intake = intake
        self.link = link
        self.node = node
        self.address = address
        """The client's own address, if it has one. Requests may have it as `reply-to`."""
        self._touch = context.touch
        self._presettled = presettled
        self._waiting: deque[tuple[Request, bytes]] = deque()
        self._is_paused = False
        """The write buffer of the socket is full."""
        self._is_sending = False
        """`on_flow` is running. It must not run a second time inside, see there."""
        self._count = 0

    def attach(self) -> None:
        """Grants the link."""
        self._engine.attach(self.link)

    def respond(self, request: Request, response: bytes) -> None:
        """Sends a response, or keeps it until there is credit for it."""
        self._waiting.append((request, response))
        self._intake.answered(request, len(response))
        self.on_flow()
        self._touch()

    def on_flow(self) -> None:
        """Sends the responses that credit, session window and socket allow."""
        if self._is_sending:
            return  # sending an answer starts the next request, which may be answered at once
        engine, link, waiting = self._engine, self.link, self._waiting
        self._is_sending = True
        try:
            while waiting and self._may_send():
                request, response = waiting.popleft()
                self._count += 1
                tag = self._count.to_bytes(16, "big")
                engine.send(link, [tag], [response], [b""], self._presettled)
                self._intake.answer_sent(request)
        finally:
            self._is_sending = False
        if engine.draining(link) and not waiting:
            engine.drained(link)
        self._touch()

    def _may_send(self) -> bool:
        engine, link = self._engine, self.link
        return not self._is_paused and engine.credit(link) > 0 and not engine.queued(link)

    def on_outcomes(
        self, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> None:
        """Settles responses. The outcome does not matter."""
        self._engine.settle(self.link, deliveries, None if settled else outcome)

    def on_detach(self) -> None:
        """Drops the responses that wait."""
        dropped = list(self._waiting)
        self._waiting.clear()
        for request, _ in dropped:
            self._intake.answer_sent(request)

    def pause(self) -> None:
        """Sends no more responses, because the write buffer of the socket is full."""
        self._is_paused = True

    def resume(self) -> None:
        """Continues after `pause`."""
        self._is_paused = False
        self.on_flow()


def read_request(request: Request, payload: bytes) -> None:
    """Decodes the id, the reply address and the application properties of a request, and finds its body. Raises
    `UndecodableMessage` or `MessageSizeExceeded`; the sections before the error are decoded, and with the id the request
    can be answered."""
    for number, (code, start, end) in enumerate(sections_of(payload)):
        if number >= SECTIONS_MAX:
            raise UndecodableMessage(f"a request has at most {SECTIONS_MAX} sections")
        if code in (VALUE, SEQUENCE, DATA):
            request.body_sections.append((code, start, end))
        elif code in (PROPERTIES, APPLICATION_PROPERTIES):
            check_values(payload, start, end, PROPERTIES_MAX_VALUES)
            value, _ = decode(payload, start)
            if code == PROPERTIES and isinstance(value, list):
                request.message_id = value[0] if value else None
                reply_to = value[4] if len(value) > 4 else None
                request.reply_to = None if reply_to is None else str(reply_to)
            elif code == APPLICATION_PROPERTIES and isinstance(value, dict):
                request.properties = {str(key): item for key, item in value.items()}
    request.payload = payload


def read_body(request: Request, most_values: int) -> None:
    """Decodes the body of a request. Raises `UndecodableMessage`, or `MessageSizeExceeded` if it has more values."""
    payload, request.payload = request.payload, b""
    data: list[bytes] = []
    for code, start, end in request.body_sections:
        check_values(payload, start, end, most_values)
        value, _ = decode(payload, start)
        if code != DATA:
            request.body = value
        elif isinstance(value, bytes):
            data.append(value)
    if request.body is None and data:
        request.body = b"".join(data)


def write_response(request: Request, properties: Mapping[str, object], body: object) -> bytes:
    """Returns the encoded response to a request."""
    correlation = encode([None, None, None, None, None, request.message_id])
    return b"".join(
        (
            section_start(HEADER) + encode([]),
            section_start(PROPERTIES) + correlation,
            section_start(APPLICATION_PROPERTIES) + encode(dict(properties)),
            section_start(VALUE) + encode(body),
        )
    )
