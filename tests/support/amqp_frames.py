"""Both ends of an AMQP wire in memory: a client's frames by hand, and a recording handler.

For tests of the engine and of what is built on it; nothing here opens a socket or waits.
A test that builds frames itself can also send what no correct client would send.
`frame_client` has a client that writes such frames, `proton` a client on Proton's own engine.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from protocol.amqp.engine.engine import ACCEPTED, Engine
from protocol.codec import Described, Symbol, UByte, UInt, ULong, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.amqp.engine.engine import Attach, EngineLink, Outcome, TransferKind

HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME = struct.pack(">IBBH", 8, 2, 0, 0)
BATCH_FORMAT = 0x80013700
PART_BYTES = 60_000
"""As much of a message as fits into a frame of 64 KiB beside its performative."""

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


@dataclass(frozen=True)
class Frame:
    """A decoded frame."""

    name: str
    fields: list[Any]
    payload: bytes = b""
    channel: int = 0

    def __getitem__(self, index: int) -> Any:
        """Returns a field by its number, or None if the list is shorter."""
        return self.fields[index] if index < len(self.fields) else None


def frame(name: str, *fields: object, payload: bytes = b"", channel: int = 0) -> bytes:
    """Returns a frame of any performative. None is a null field."""
    values = list(fields)
    while values and values[-1] is None:
        values.pop()
    return raw_frame(encode(Described(ULong(PERFORMATIVES[name]), values)) + payload, channel)


def raw_frame(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    """Returns a frame with any body."""
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def frames(data: bytes) -> list[Frame]:
    """Returns all frames in an output, without protocol headers and empty frames."""
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
    """Returns a described list, such as an outcome."""
    return Described(ULong(code), list(fields))


def source(address: str | None, filters: dict[Any, object] | None = None) -> Described:
    """Returns a source terminus."""
    fields: list[object] = [address, None, None, None, None, None, None, filters]
    return described(0x28, *(fields if filters is not None else fields[:1]))


def target(address: str | None) -> Described:
    """Returns a target terminus."""
    return described(0x29, address)


def open_frame(
    container_id: str = "client",
    hostname: str = "localhost",
    properties: dict[Any, object] | None = None,
) -> bytes:
    between = (None,) * 6
    return frame("open", container_id, hostname, UInt(1 << 20), *between, properties)


def begin_frame(channel: int = 0, incoming_window: int = 1 << 20) -> bytes:
    return frame("begin", None, UInt(0), UInt(incoming_window), UInt(1 << 20), channel=channel)


def attach_sender(
    name: str = "to",
    handle: int = 0,
    address: str = "queue",
    *,
    snd_settle_mode: int | None = None,
    channel: int = 0,
    properties: dict[Any, object] | None = None,
) -> bytes:
    """Returns the attach of a link on which the client sends."""
    return frame(
        "attach",
        name,
        UInt(handle),
        False,
        None if snd_settle_mode is None else UByte(snd_settle_mode),
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
    """Returns the attach of a link on which the client receives."""
    return frame(
        "attach",
        name,
        UInt(handle),
        True,
        None if snd_settle_mode is None else UByte(snd_settle_mode),
        None if rcv_settle_mode is None else UByte(rcv_settle_mode),
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


def attach_coordinator(handle: int, name: str | None = None) -> bytes:
    """Returns the attach of a link on which the client declares and discharges transactions."""
    modes = (None, None)
    ends = (source("here"), described(0x30), None, None)
    link = name or f"coordinator-{handle}"
    return frame("attach", link, UInt(handle), False, *modes, *ends, UInt(0))


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
    """Returns the transfer of a message, or of a part of one."""
    if delivery_id is None:
        start: tuple[object, ...] = (None, tag, None)
    else:
        tag = b"tag%d" % delivery_id if tag is None else tag
        start = (UInt(delivery_id), tag, None if message_format is None else UInt(message_format))
    return frame(
        "transfer",
        UInt(handle),
        *start,
        settled,
        more,
        None,
        state,
        None,
        aborted,
        payload=payload,
        channel=channel,
    )


def transfers(
    delivery_id: int, payload: bytes, *, part_bytes: int = PART_BYTES, **options: Any
) -> list[bytes]:
    """Returns the transfers of one message, in parts that fit into a frame."""
    starts = range(0, len(payload), part_bytes)
    return [
        transfer(
            None if start else delivery_id,
            payload[start : start + part_bytes],
            more=start + part_bytes < len(payload),
            **options,
        )
        for start in starts
    ]


def flow(
    credit: int | None = None,
    *,
    handle: int = 0,
    delivery_count: int = 0,
    drain: bool | None = None,
    echo: bool | None = None,
    incoming_window: int = 1 << 20,
    next_incoming_id: int = 0,
    channel: int = 0,
) -> bytes:
    """Returns a flow: credit of a link, or only the window of a session."""
    session = (UInt(next_incoming_id), UInt(incoming_window), UInt(0), UInt(1 << 20))
    if credit is None:
        return frame("flow", *session, *[None] * 5, echo, channel=channel)
    link = (UInt(handle), UInt(delivery_count), UInt(credit), None, drain, echo)
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
    """Returns a disposition of deliveries, by default with the role receiver."""
    last_id = None if last is None else UInt(last)
    return frame("disposition", receiver, UInt(first), last_id, settled, state, channel=channel)


def detach(handle: int = 0, *, closed: bool = True, channel: int = 0) -> bytes:
    return frame("detach", UInt(handle), closed, channel=channel)


def accepted() -> Described:
    return described(0x24)


def rejected(condition: str, description: str, info: dict[Any, object] | None) -> Described:
    return described(0x25, described(0x1D, Symbol(condition), description, info))


# --- our end -------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """A handler that records every call. It grants every link, unless a test sets it to do
    otherwise."""

    grants: bool = True
    accepts: bool = True
    credit: int = 1000
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    links: list[EngineLink] = field(default_factory=list)
    attaches: list[Attach] = field(default_factory=list)
    engine: Engine = field(init=False)

    def names(self) -> list[str]:
        """The names of the calls, in order."""
        return [call[0] for call in self.calls]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """Returns the arguments of all calls of one name."""
        return [call[1:] for call in self.calls if call[0] == name]

    def payloads(self) -> list[bytes]:
        """The payloads of all messages that arrived."""
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

    def on_oversize(
        self, link: EngineLink, delivery: Any, size_bytes: int, settled: bool, beginning: bytes
    ) -> None:
        self.calls.append(("oversize", link, delivery, size_bytes, settled))

    def on_outcomes(
        self, link: EngineLink, deliveries: list[Any], outcome: Outcome | None, settled: bool
    ) -> None:
        self.calls.append(("outcomes", link, deliveries, outcome, settled))
        if self.accepts:
            self.engine.settle(link, deliveries, None if settled else outcome)

    def on_transaction_part_lost(self, transaction_id: bytes) -> None:
        self.calls.append(("missed", transaction_id))

    def on_flow(self, link: EngineLink) -> None:
        self.calls.append(("flow", link))

    def on_detach(self, link: EngineLink, closed: bool) -> None:
        self.calls.append(("detach", link, closed))

    def on_detach_confirmed(self, link: EngineLink) -> None:
        self.calls.append(("gone", link))

    def on_session_end(self, links: list[EngineLink]) -> None:
        self.calls.append(("session end", links))

    def on_session_error(self, condition: str, description: str) -> None:
        self.calls.append(("session error", condition, description))

    def on_close(self) -> None:
        self.calls.append(("close",))

    def on_transport_error(self, condition: str, description: str) -> None:
        self.calls.append(("transport error", condition, description))


def served(handler: Recorder | None = None, **settings: Any) -> tuple[Engine, Recorder]:
    """Returns an engine and the handler that records its calls."""
    recorder = handler or Recorder()
    recorder.engine = Engine(recorder, container_id="broker", **settings)
    return recorder.engine, recorder


def opened(
    *inputs: bytes, handler: Recorder | None = None, **settings: Any
) -> tuple[Engine, Recorder]:
    """Returns an engine that has received open, begin and these bytes. Its output so far is
    dropped."""
    engine, recorder = served(handler, **settings)
    say(engine, HEADER + open_frame() + begin_frame(), *inputs)
    return engine, recorder


def say(engine: Engine, *inputs: bytes) -> list[Frame]:
    """Feed bytes to the engine and return the frames of its answer."""
    for data in inputs:
        engine.feed(data)
    return frames(engine.take_output())


def pieces(data: bytes, cuts: Callable[[], int]) -> Iterator[bytes]:
    """Returns data in pieces of the sizes in `cuts`."""
    position = 0
    while position < len(data):
        size = cuts()
        yield data[position : position + size]
        position += size
