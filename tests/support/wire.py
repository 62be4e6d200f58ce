"""Both ends of an AMQP wire in memory: frames by hand, a Proton client, a recording handler.

For tests of the engine and of what is built on it; nothing here opens a socket or waits.
Hand-written frames say exactly what goes over the wire, also what no decent client would send.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cproton_ffi import ffi, lib

from protocol.amqp.engine import ACCEPTED, Engine
from protocol.amqp.values import Described, Symbol, UInt, ULong, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.amqp.engine import Attach, EngineLink, Outcome, TransferKind

HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME = struct.pack(">IBBH", 8, 2, 0, 0)
BATCH_FORMAT = 0x80013700

PERFORMATIVES = {
    "open": 0x10,
    "begin": 0x11,
    "attach": 0x12,
    "flow": 0x13,
    "transfer": 0x14,
    "disposition": 0x15,
    "detach": 0x16,
    "end": 0x17,
    "close": 0x18,
    "sasl-mechanisms": 0x40,
    "sasl-init": 0x41,
    "sasl-outcome": 0x44,
}
_NAMES = {code: name for name, code in PERFORMATIVES.items()}


# --- frames by hand ----------------------------------------------------------------------------


class Frame(NamedTuple):
    """A frame, taken apart."""

    name: str
    fields: list[Any]
    payload: bytes = b""
    channel: int = 0

    def __getitem__(self, index: Any) -> Any:  # type: ignore[override]
        """A field by its number, None where the list is shorter."""
        return self.fields[index] if index < len(self.fields) else None


def frame(name: str, *fields: object, payload: bytes = b"", channel: int = 0) -> bytes:
    """A frame of any performative; None stands for a null field."""
    values = list(fields)
    while values and values[-1] is None:
        values.pop()
    return raw_frame(encode(Described(ULong(PERFORMATIVES[name]), values)) + payload, channel)


def raw_frame(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    """A frame with any body."""
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def frames(data: bytes) -> list[Frame]:
    """All frames in some output; protocol headers and empty frames are left out."""
    found = []
    position = 0
    while position < len(data):
        if data[position : position + 4] == b"AMQP":
            position += 8
            continue
        size, offset, _, channel = struct.unpack_from(">IBBH", data, position)
        if size > 8:
            body, end = decode(data, position + 4 * offset)
            assert isinstance(body, Described)
            assert isinstance(body.value, list)
            assert isinstance(body.descriptor, int)
            payload = data[end : position + size]
            found.append(Frame(_NAMES[body.descriptor], body.value, payload, channel))
        position += size
    return found


def described(code: int, *fields: object) -> Described:
    """A described list, such as an outcome."""
    return Described(ULong(code), list(fields))


def source(address: str | None, filters: dict[Any, object] | None = None) -> Described:
    """A source terminus."""
    fields: list[object] = [address, None, None, None, None, None, None, filters]
    return described(0x28, *(fields if filters is not None else fields[:1]))


def target(address: str | None) -> Described:
    """A target terminus."""
    return described(0x29, address)


def open_frame(container_id: str = "client", hostname: str = "localhost") -> bytes:
    return frame("open", container_id, hostname, UInt(1 << 20))


def begin_frame(channel: int = 0, incoming_window: int = 1 << 20) -> bytes:
    return frame(
        "begin", None, UInt(0), UInt(incoming_window), UInt(1 << 20), channel=channel
    )


def attach_sender(
    name: str = "to",
    handle: int = 0,
    address: str = "queue",
    *,
    snd_settle_mode: int | None = None,
    channel: int = 0,
    properties: dict[Any, object] | None = None,
) -> bytes:
    """The client attaches a link on which it sends."""
    return frame(
        "attach",
        name,
        UInt(handle),
        False,
        None if snd_settle_mode is None else _ubyte(snd_settle_mode),
        None,
        source("client-source"),
        target(address),
        None,
        None,
        UInt(0),
        None,
        None,
        None,
        properties,
        channel=channel,
    )


def attach_receiver(
    name: str = "from",
    handle: int = 0,
    address: str = "queue",
    *,
    snd_settle_mode: int | None = None,
    rcv_settle_mode: int | None = None,
    filters: dict[Any, object] | None = None,
    channel: int = 0,
    properties: dict[Any, object] | None = None,
) -> bytes:
    """The client attaches a link on which it receives."""
    return frame(
        "attach",
        name,
        UInt(handle),
        True,
        None if snd_settle_mode is None else _ubyte(snd_settle_mode),
        None if rcv_settle_mode is None else _ubyte(rcv_settle_mode),
        source(address, filters),
        target("client-target"),
        None,
        None,
        None,
        None,
        None,
        None,
        properties,
        channel=channel,
    )


def transfer(
    delivery_id: int | None,
    payload: bytes,
    *,
    handle: int = 0,
    tag: bytes | None = None,
    message_format: int | None = 0,
    settled: bool | None = None,
    more: bool | None = None,
    state: object = None,
    aborted: bool | None = None,
    channel: int = 0,
) -> bytes:
    """A message, or part of one."""
    first = delivery_id is not None
    if tag is None and first:
        tag = b"tag%d" % delivery_id
    return frame(
        "transfer",
        UInt(handle),
        UInt(delivery_id) if first else None,
        tag,
        UInt(message_format) if message_format is not None and first else None,
        settled,
        more,
        None,
        state,
        None,
        aborted,
        payload=payload,
        channel=channel,
    )


def flow(
    credit: int | None = None,
    *,
    handle: int = 0,
    delivery_count: int = 0,
    drain: bool | None = None,
    incoming_window: int = 1 << 20,
    next_incoming_id: int = 0,
    channel: int = 0,
) -> bytes:
    """Credit for a link, or only a session's window."""
    session = (UInt(next_incoming_id), UInt(incoming_window), UInt(0), UInt(1 << 20))
    if credit is None:
        return frame("flow", *session, channel=channel)
    link = (UInt(handle), UInt(delivery_count), UInt(credit), None, drain)
    return frame("flow", *session, *link, channel=channel)


def disposition(
    first: int,
    last: int | None = None,
    *,
    state: object = None,
    settled: bool = False,
    channel: int = 0,
    receiver: bool = True,
) -> bytes:
    """What a client says about deliveries; by default as their receiver."""
    last_id = None if last is None else UInt(last)
    return frame(
        "disposition", receiver, UInt(first), last_id, settled, state, channel=channel
    )


def detach(handle: int = 0, *, closed: bool = True, channel: int = 0) -> bytes:
    return frame("detach", UInt(handle), closed, channel=channel)


def accepted() -> Described:
    return described(0x24)


def rejected(condition: str, description: str, info: dict[Any, object] | None) -> Described:
    return described(0x25, described(0x1D, Symbol(condition), description, info))


def _ubyte(value: int) -> object:
    from protocol.amqp.values import UByte

    return UByte(value)


# --- our end -------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """A handler that notes every call and, unless told otherwise, grants every link."""

    grants: bool = True
    accepts: bool = True
    credit: int = 1000
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    links: list[EngineLink] = field(default_factory=list)
    attaches: list[Attach] = field(default_factory=list)
    engine: Engine = field(init=False)

    def names(self) -> list[str]:
        """The calls by name."""
        return [call[0] for call in self.calls]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of all calls of one name."""
        return [call[1:] for call in self.calls if call[0] == name]

    def payloads(self) -> list[bytes]:
        """All messages that arrived."""
        return [payload for _, _, payloads, _ in self.of("transfers") for payload in payloads]

    def on_open(self, hostname: str, container_id: str, properties: dict[str, object]) -> None:
        self.calls.append(("open", hostname, container_id, properties))

    def on_attach(self, link: EngineLink, attach: Attach) -> None:
        self.calls.append(("attach", link, attach))
        self.links.append(link)
        self.attaches.append(attach)
        if self.grants:
            self.engine.attach(
                link, max_message_size_bytes=1 << 20, credit=self.credit if link.is_receiver else 0
            )

    def on_transfers(
        self, link: EngineLink, deliveries: list[Any], payloads: list[bytes], kind: TransferKind
    ) -> None:
        self.calls.append(("transfers", link, deliveries, payloads, kind))
        if self.accepts:
            self.engine.settle(link, deliveries, None if kind.settled else ACCEPTED)

    def on_oversize(self, link: EngineLink, delivery: Any, size_bytes: int, settled: bool) -> None:
        self.calls.append(("oversize", link, delivery, size_bytes, settled))

    def on_outcomes(
        self, link: EngineLink, deliveries: list[Any], outcome: Outcome | None, settled: bool
    ) -> None:
        self.calls.append(("outcomes", link, deliveries, outcome, settled))
        if self.accepts:
            self.engine.settle(link, deliveries, None if settled else outcome)

    def on_flow(self, link: EngineLink) -> None:
        self.calls.append(("flow", link))

    def on_detach(self, link: EngineLink, closed: bool) -> None:
        self.calls.append(("detach", link, closed))

    def on_session_end(self, links: list[EngineLink]) -> None:
        self.calls.append(("session end", links))

    def on_close(self) -> None:
        self.calls.append(("close",))

    def on_transport_error(self, condition: str, description: str) -> None:
        self.calls.append(("transport error", condition, description))


def served(handler: Recorder | None = None, **settings: Any) -> tuple[Engine, Recorder]:
    """An engine and the handler that records what it does."""
    recorder = handler or Recorder()
    recorder.engine = Engine(recorder, container_id="broker", **settings)
    return recorder.engine, recorder


def opened(
    *inputs: bytes, handler: Recorder | None = None, **settings: Any
) -> tuple[Engine, Recorder]:
    """An engine past open and begin, fed with more; its output so far is dropped."""
    engine, recorder = served(handler, **settings)
    say(engine, HEADER + open_frame() + begin_frame(), *inputs)
    return engine, recorder


def say(engine: Engine, *inputs: bytes) -> list[Frame]:
    """Feed the engine and read its answer."""
    for data in inputs:
        engine.feed(data)
    return frames(engine.take_output())


# --- a Proton client -------------------------------------------------------------------------------


class ProtonClient:
    """A client on Proton's own engine, whose bytes are carried by `pump`."""

    def __init__(self, *, container_id: str = "client", max_frame_size_bytes: int = 65_536) -> None:
        self.transport = lib.pn_transport()
        lib.pn_transport_set_max_frame(self.transport, max_frame_size_bytes)
        self.connection = lib.pn_connection()
        self.collector = lib.pn_collector()
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_connection_set_container(self.connection, container_id.encode())
        lib.pn_connection_set_hostname(self.connection, b"localhost")
        lib.pn_transport_bind(self.transport, self.connection)
        lib.pn_connection_open(self.connection)
        self.events: list[str] = []
        self.received: list[tuple[Any, bytes]] = []
        self.outcomes: list[tuple[Any, int, bool]] = []
        self._session: Any = None
        self._tags = 0

    @property
    def session(self) -> Any:
        """The session links are made in, begun when it is needed."""
        if self._session is None:
            self._session = lib.pn_session(self.connection)
            lib.pn_session_open(self._session)
        return self._session

    def sender(self, address: str, name: str = "to") -> Any:
        link = lib.pn_sender(self.session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(link), address.encode())
        lib.pn_link_open(link)
        return link

    def receiver(self, address: str, name: str = "from", *, credit: int = 0) -> Any:
        link = lib.pn_receiver(self.session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_source(link), address.encode())
        lib.pn_link_set_rcv_settle_mode(link, lib.PN_RCV_SECOND)
        lib.pn_link_open(link)
        if credit:
            lib.pn_link_flow(link, credit)
        return link

    def send(self, link: Any, payload: bytes, *, settled: bool = False) -> Any:
        self._tags += 1
        tag = b"%d" % self._tags
        memory = ffi.from_buffer(tag)
        delivery = lib.pn_delivery(link, ffi.new("pn_bytes_t *", (len(tag), memory))[0])
        lib.pn_link_send(link, payload, len(payload))
        lib.pn_link_advance(link)
        if settled:
            lib.pn_delivery_settle(delivery)
        return delivery

    def feed(self, data: bytes) -> None:
        position = 0
        memory = ffi.from_buffer(data)
        while position < len(data):
            taken = lib.pn_transport_push(self.transport, memory + position, len(data) - position)
            if taken <= 0:
                break
            position += taken
        self._drain_events()

    def take_output(self) -> bytes:
        parts = []
        buffer = ffi.new("char[]", 65_536)
        while (size := lib.pn_transport_peek(self.transport, buffer, 65_536)) > 0:
            parts.append(bytes(ffi.buffer(buffer, size)))
            lib.pn_transport_pop(self.transport, size)
        self._drain_events()
        return b"".join(parts)

    def _drain_events(self) -> None:
        while event := lib.pn_collector_peek(self.collector):
            kind = lib.pn_event_type(event)
            self.events.append(ffi.string(lib.pn_event_type_name(kind)).decode())
            if kind == lib.PN_DELIVERY:
                self._delivery(lib.pn_event_delivery(event))
            lib.pn_collector_pop(self.collector)

    def _delivery(self, delivery: Any) -> None:
        link = lib.pn_delivery_link(delivery)
        if lib.pn_link_is_sender(link):
            state = lib.pn_delivery_remote_state(delivery)
            settled = bool(lib.pn_delivery_settled(delivery))
            self.outcomes.append((delivery, state, settled))
            if settled:
                lib.pn_delivery_settle(delivery)
        elif lib.pn_delivery_readable(delivery) and not lib.pn_delivery_partial(delivery):
            size = lib.pn_delivery_pending(delivery)
            buffer = ffi.new("char[]", max(size, 1))
            lib.pn_link_recv(link, buffer, size)
            lib.pn_link_advance(link)
            self.received.append((delivery, bytes(ffi.buffer(buffer, size))))
        elif lib.pn_delivery_settled(delivery):
            self.outcomes.append((delivery, lib.pn_delivery_remote_state(delivery), True))
            lib.pn_delivery_settle(delivery)

    def close(self) -> None:
        lib.pn_connection_close(self.connection)

    def free(self) -> None:
        lib.pn_transport_unbind(self.transport)
        lib.pn_collector_release(self.collector)
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.transport)
        lib.pn_decref(self.connection)
        lib.pn_collector_free(self.collector)


def pump(client: ProtonClient, engine: Engine) -> None:
    """Carry bytes both ways until neither has anything to say."""
    while True:
        up = client.take_output()
        if up:
            engine.feed(up)
        down = engine.take_output()
        if down:
            client.feed(down)
        if not up and not down:
            return


def pieces(data: bytes, cuts: Callable[[], int]) -> Iterator[bytes]:
    """Some data in pieces of the sizes that `cuts` gives."""
    position = 0
    while position < len(data):
        size = cuts()
        yield data[position : position + size]
        position += size
