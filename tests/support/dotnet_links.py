"""The links of the .NET SDK: what each kind sends and which answers it waits for.

Has messages, outcomes, and the senders, receivers, request pairs and controllers of
`dotnet_client`, but not the connection. An answer for which that SDK would raise an exception fails
an assertion here.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from protocol.codec import Described, Symbol, UByte, UInt, ULong, encode
from tests.support.amqp_frames import described, frame, source
from tests.support.message_sections import sections_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.amqp_frames import Frame
    from tests.support.dotnet_client import DotNetClient

OPERATION_TIMEOUT = {Symbol("com.microsoft:timeout"): UInt(60_000)}
UNLIMITED = 0xFFFFFFFF
WINDOW = 5000
"""Of an AMQP session that carries requests and answers."""
REQUEST_CREDIT = 50
SETTLED, SECOND = UByte(1), UByte(1)
BATCHABLE = True

ACCEPTED = described(0x24)
REJECTED = described(0x25)
RELEASED = described(0x26)
ABANDONED = described(0x27)
"""`modified` with no field at all."""
DEFERRED = described(0x27, None, True)

# Fields of frames by their numbers.
ATTACH_SOURCE, ATTACH_TARGET = 5, 6
ATTACH_INITIAL_COUNT, ATTACH_MAX_MESSAGE_SIZE, ATTACH_PROPERTIES = 9, 10, 13
DISPOSITION_SETTLED, DISPOSITION_STATE = 3, 4
DETACH_CLOSED, DETACH_ERROR = 1, 2
TRANSFER_TAG, TRANSFER_FORMAT, TRANSFER_SETTLED = 2, 3, 4
FLOW_HANDLE, FLOW_CREDIT, FLOW_DRAIN = 4, 6, 8


class Refused(Exception):
    """The broker refused. The SDK chooses its exception by `condition`."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


def dead_lettered(reason: str, description: str, **properties: object) -> Described:
    info = {
        Symbol("DeadLetterReason"): reason,
        Symbol("DeadLetterErrorDescription"): description,
        **{Symbol(name): value for name, value in properties.items()},
    }
    return described(0x25, described(0x1D, Symbol("com.microsoft:dead-letter"), None, info))


def transactional(transaction_id: bytes, outcome: Described | None = None) -> Described:
    return described(0x34, transaction_id, *([] if outcome is None else [outcome]))


# ---- messages -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Received:
    """A delivery and its decoded message."""

    transfer: Frame
    sections: dict[int, Any]

    @property
    def body(self) -> Any:
        return self.sections.get(0x75, self.sections.get(0x77))

    @property
    def delivery_count(self) -> int:
        return int(self.sections[0x70][4] or 0)

    @property
    def properties(self) -> dict[str, Any]:
        """The application properties."""
        return dict(self.sections.get(0x74) or {})

    @property
    def annotations(self) -> dict[str, Any]:
        return {str(key): value for key, value in self.sections[0x72].items()}

    @property
    def lock_token(self) -> uuid.UUID:
        """The lock token, as `new Guid(byte[])` reads it from the delivery tag."""
        return uuid.UUID(bytes_le=self.transfer[TRANSFER_TAG])


def message(
    body: bytes,
    *,
    session_id: str | None = None,
    annotations: Mapping[str, object] | None = None,
    **properties: object,
) -> bytes:
    """Returns an encoded message with the sections in the SDK's order: annotations, properties,
    application properties, data."""
    fields: list[object] = [str(uuid.uuid4())]
    if session_id is not None:
        fields += [None] * 9 + [session_id]
    parts = [Described(ULong(0x73), fields)]
    if annotations:
        named = {Symbol(name): value for name, value in annotations.items()}
        parts.insert(0, Described(ULong(0x72), named))
    if properties:
        parts.append(Described(ULong(0x74), dict(properties)))
    parts.append(Described(ULong(0x75), body))
    return b"".join(encode(part) for part in parts)


# ---- links --------------------------------------------------------------------------------------


@dataclass
class Link:
    """One link, and the frames about it."""

    client: DotNetClient
    channel: int
    handle: int
    answer: Frame
    delivery_count: int = 0

    @property
    def remote_handle(self) -> int:
        return int(self.answer[1])

    def expect(self, name: str, handle_at: int = 0) -> Frame:
        """Returns the next frame about this link."""
        return self.client.expect(
            name, self.channel, lambda one: one[handle_at] == self.remote_handle
        )

    def raise_detached(self) -> None:
        detach = self.expect("detach")
        assert detach[DETACH_CLOSED] is True
        error = detach[DETACH_ERROR].value
        assert error[2], "an error without info"
        self.client.write(frame("detach", UInt(self.handle), True, channel=self.channel))
        raise Refused(str(error[0]), str(error[1]))

    def flow(self, credit: int, *, drain: bool = False) -> None:
        expected = UInt(self.client.next_incoming_id(self.channel))
        session = (expected, UInt(UNLIMITED), UInt(1), UInt(WINDOW))
        link = (UInt(self.handle), UInt(self.delivery_count), UInt(credit), None, drain)
        self.client.write(frame("flow", *session, *link, channel=self.channel))

    def detach(self) -> None:
        self.client.write(frame("detach", UInt(self.handle), True, channel=self.channel))
        assert self.expect("detach")[DETACH_CLOSED] is True

    def close_session(self) -> None:
        """Detaches the link and ends its AMQP session, without waiting for the answers in
        between."""
        detach = frame("detach", UInt(self.handle), True, channel=self.channel)
        self.client.write(detach + frame("end", channel=self.channel))
        assert self.expect("detach")[DETACH_CLOSED] is True
        self.client.expect("end", self.channel)


class Sender:
    """A sending link. Its source is the client's identifier, and its delivery tags are counted."""

    def __init__(
        self, client: DotNetClient, path: str, channel: int, transaction: bytes | None
    ) -> None:
        self.client = client
        self._transaction = transaction
        self.link = client.attach(
            channel,
            f"{client.container_id};{client.number()}:{channel}:{client.number()}",
            receives=False,
            source=described(0x28, f"identifier-{uuid.uuid4()}"),
            target=described(0x29, f"/{quote(path, safe='/$')}"),
            properties=OPERATION_TIMEOUT,
        )
        assert 0 < self.link.answer[ATTACH_MAX_MESSAGE_SIZE] < 1 << 31
        self.link.expect("flow", FLOW_HANDLE)

    def send(self, payload: bytes, *, message_format: int = 0, outcome: int = 0x24) -> Frame:
        """Sends a message and waits for the outcome."""
        delivery_id = self.client.next_delivery_id(self.link.channel)
        state = None if self._transaction is None else transactional(self._transaction)
        fields = [UInt(self.link.handle), UInt(delivery_id), struct.pack("<I", delivery_id + 1)]
        rest = [UInt(message_format), False, False, None, state, None, None, BATCHABLE]
        self.client.write(
            frame("transfer", *fields, *rest, payload=payload, channel=self.link.channel)
        )
        about = _is_about(delivery_id, by_receiver=True)
        answer = self.client.expect("disposition", self.link.channel, about)
        assert outcome == answer[DISPOSITION_STATE].descriptor
        return answer


class Receiver:
    """A receiving link. It gives credit for each receive call and waits for the answers to its
    outcomes."""

    def __init__(
        self,
        client: DotNetClient,
        path: str,
        channel: int,
        filters: dict[Any, object] | None,
        wait_ms: int | None,
        *,
        deletes: bool,
    ) -> None:
        self.client = client
        address = f"/{quote(path, safe='/$')}"
        properties = None
        if wait_ms is not None:
            properties = {Symbol("com.microsoft:timeout"): UInt(wait_ms)}
        self.link = client.attach(
            channel,
            f"{client.container_id};{client.number()}:{channel}:{client.number()}:"
            f"source(address:{address},filter-set:[])",
            receives=True,
            source=source(address, filters or {}),
            target=described(0x29, f"identifier-{uuid.uuid4()}"),
            settle_modes=(SETTLED, None) if deletes else (None, SECOND),
            properties=properties,
        )

    @property
    def name(self) -> str:
        return str(self.link.answer[0])

    def receive(self, count: int = 1) -> list[Received]:
        """As `ReceiveMessagesAsync`: gives credit for so many messages, and returns those that
        arrive."""
        self.link.flow(count)
        return [self.next() for _ in range(count)]

    def next(self) -> Received:
        transfer = self.link.expect("transfer")
        self.link.delivery_count += 1
        assert 16 == len(transfer[TRANSFER_TAG])
        assert 0 == transfer[TRANSFER_FORMAT]
        return Received(transfer, sections_of(transfer.payload))

    def settle(self, one: Received, outcome: Described) -> Described:
        """Sends an unsettled outcome and waits until the broker settles. Raises `Refused`."""
        delivery_id = int(one.transfer[1])
        fields = [True, UInt(delivery_id), None, False, outcome, BATCHABLE]
        self.client.write(frame("disposition", *fields, channel=self.link.channel))
        return self.settled(delivery_id)

    def settle_range(self, first: Received, last: Received, outcome: Described) -> None:
        """Sends one outcome for consecutive deliveries, in one frame."""
        ids = [int(one.transfer[1]) for one in (first, last)]
        fields = [True, UInt(ids[0]), UInt(ids[1]), False, outcome, BATCHABLE]
        self.client.write(frame("disposition", *fields, channel=self.link.channel))

    def settled(self, delivery_id: int) -> Described:
        """Waits for the answer to a settlement. In a transaction the delivery stays unsettled."""
        about = _is_about(delivery_id, by_receiver=False)
        answer = self.client.expect("disposition", self.link.channel, about)
        state: Described = answer[DISPOSITION_STATE]
        assert bool(answer[DISPOSITION_SETTLED]) is (0x34 != state.descriptor)
        assert isinstance(state.value, list)
        if state.descriptor == 0x25 and state.value and state.value[0] is not None:
            condition, description, info = state.value[0].value
            assert info
            raise Refused(str(condition), str(description))
        return state

    def release(self, first: Received, last: Received | None = None) -> None:
        """Releases messages that no call waits for. They are settled, so there is no answer."""
        ids = [None if one is None else UInt(one.transfer[1]) for one in (first, last)]
        fields = [True, *ids, True, RELEASED, False]
        self.client.write(frame("disposition", *fields, channel=self.link.channel))

    def drain(self, credit: int) -> None:
        """Drains the remaining credit and waits for the answer."""
        self.link.flow(credit, drain=True)
        while not (flow := self.link.expect("flow", FLOW_HANDLE))[FLOW_DRAIN]:
            pass
        assert 0 == flow[FLOW_CREDIT]

    def close(self) -> None:
        """As `CloseAsync`: drains the remaining credit first."""
        self.drain(0)
        self.link.detach()


def _is_about(delivery_id: int, *, by_receiver: bool) -> Callable[[Frame], bool]:
    """Whether a disposition is about this delivery. It may be about many, and each direction has
    its own ids."""

    def covers(one: Frame) -> bool:
        last = one[1] if one[2] is None else one[2]
        return one[0] is by_receiver and bool(one[1] <= delivery_id <= last)

    return covers


class Requests:
    """A pair of links to a node. Requests are sent settled, and answers must be settled."""

    def __init__(
        self, client: DotNetClient, address: str, properties: Mapping[Any, object]
    ) -> None:
        self._client = client
        self._channel = client.begin(WINDOW)
        self._reply_to = uuid.uuid4().hex
        self._name = f"duplex{client.number()}:{self._channel}:{client.number()}"
        self._asked = 0
        self._sender = client.attach(
            self._channel,
            f"{self._name}:sender",
            receives=False,
            source=described(0x28),
            target=described(0x29, address),
            settle_modes=(SETTLED, None),
            properties=properties,
        )
        self._receiver = client.attach(
            self._channel,
            f"{self._name}:receiver",
            receives=True,
            source=described(0x28, address),
            target=described(0x29, self._reply_to),
            settle_modes=(SETTLED, None),
            properties=properties,
        )
        self._receiver.flow(REQUEST_CREDIT)
        self._sender.expect("flow", FLOW_HANDLE)

    def ask(
        self, body: object, properties: dict[str, Any], transaction: bytes | None = None
    ) -> Received:
        """Sends a request with an empty delivery tag, and returns the answer with its id, which is
        a string."""
        self._asked += 1
        message_id = f"{self._name}{self._asked}"
        parts = [
            Described(ULong(0x73), [message_id, None, None, None, self._reply_to]),
            Described(ULong(0x74), properties),
            Described(ULong(0x77), body),
        ]
        payload = b"".join(encode(part) for part in parts)
        delivery_id = UInt(self._client.next_delivery_id(self._channel))
        fields = [UInt(self._sender.handle), delivery_id, b"", UInt(0), True, False]
        if transaction is not None:
            fields += [None, transactional(transaction)]
        self._client.write(frame("transfer", *fields, payload=payload, channel=self._channel))
        transfer = self._receiver.expect("transfer")
        assert transfer[TRANSFER_SETTLED] is True
        answer = Received(transfer, sections_of(transfer.payload))
        assert message_id == answer.sections[0x73][5]
        assert not self._client.has_arrived("disposition", self._channel)
        return answer

    def manage(
        self,
        operation: str,
        body: dict[str, Any],
        associated: Receiver | None = None,
        *,
        transaction: bytes | None = None,
    ) -> dict[str, Any]:
        """Sends a management request. Returns the map of the answer; empty if nothing was found."""
        properties: dict[str, Any] = {
            "operation": f"com.microsoft:{operation}",
            "com.microsoft:server-timeout": UInt(60_000),
            "com.microsoft:tracking-id": str(uuid.uuid4()),
        }
        if associated is not None:
            properties["associated-link-name"] = associated.name
        answer = self.ask(body, properties, transaction)
        status = answer.properties["statusCode"]
        assert "Int" == type(status).__name__
        if status >= 400:
            condition = answer.properties["errorCondition"]
            assert isinstance(condition, Symbol)
            raise Refused(str(condition), str(answer.properties["statusDescription"]))
        return dict(answer.body or {}) if status == 200 else {}


class Controller:
    """The link to the transaction coordinator. Its source has distribution mode `move`, and its target has no address."""

    def __init__(self, client: DotNetClient, channel: int) -> None:
        self._client = client
        self._sent = 0
        name = uuid.uuid4().hex
        moving = described(0x28, name, None, None, None, None, None, Symbol("move"))
        self._link = client.attach(
            channel, name, receives=False, source=moving, target=Described(ULong(0x30), [])
        )
        self._link.expect("flow", FLOW_HANDLE)

    def declare(self) -> bytes:
        state = self._command(described(0x31))
        assert 0x33 == state.descriptor
        return bytes(state.value[0])  # type: ignore[index]

    def discharge(self, transaction_id: bytes, *, fail: bool) -> None:
        assert 0x24 == self.ask_to_discharge(transaction_id, fail=fail).descriptor

    def ask_to_discharge(self, transaction_id: bytes, *, fail: bool) -> Described:
        """Sends a discharge and returns the answer."""
        return self._command(described(0x32, transaction_id, fail))

    def _command(self, command: Described) -> Described:
        delivery_id, self._sent = self._client.next_delivery_id(self._link.channel), self._sent + 1
        fields = [UInt(self._link.handle), UInt(delivery_id), struct.pack("<q", self._sent)]
        payload = encode(Described(ULong(0x77), command))
        self._client.write(
            frame("transfer", *fields, UInt(0), False, payload=payload, channel=self._link.channel)
        )
        about = _is_about(delivery_id, by_receiver=True)
        answer = self._client.expect("disposition", self._link.channel, about)
        state: Described = answer[DISPOSITION_STATE]
        return state
