"""Well-formed AMQP without meaning: every performative with fields of any value.

Builds dialogues from the protocol header on. Each frame can be decoded, so that it passes the
decoder and reaches the handling of sessions, links, deliveries and messages.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from protocol.codec import (
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    encode,
)
from tests.support import amqp_frames

if TYPE_CHECKING:
    import random

QUEUES = ("fuzz-0", "fuzz-1", "fuzz-2")
ADDRESSES = (
    *QUEUES,
    "$cbs",
    "$management",
    "fuzz-0/$management",
    "fuzz-0/$DeadLetterQueue",
    "topic.1",
    "topic.1/subscriptions/subscription.1",
    "",
    "/" * 50,
    "a" * 300,
    "\u0000",
    "fuzz-0;x=1",
    "$",
)
TEXTS = ("", "x", "\u00e9" * 40, "a" * 5_000, "com.microsoft:timeout", "amqp:accepted:list")
OPERATIONS = (
    "peek-message",
    "renew-lock",
    "receive-by-sequence-number",
    "schedule-message",
    "cancel-scheduled-message",
    "set-session-state",
    "get-session-state",
    "renew-session-lock",
    "update-disposition",
    "add-rule",
    "remove-rule",
    "enumerate-rules",
    "get-message-sessions",
    "batch-delete-messages",
    "nothing",
)
KEYS = (
    "from-sequence-number",
    "message-count",
    "lock-tokens",
    "sequence-numbers",
    "session-id",
    "session-state",
    "messages",
    "message",
    "disposition-status",
    "receiver-settle-mode",
    "rule-name",
    "rule-description",
    "skip",
    "top",
    "last-updated-time",
    "enqueued-time-utc",
)
MOST_FRAMES = 25
DEEPEST = 4


class Author:
    """Writes one dialogue."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def dialogue(self) -> bytes:
        """All that one client says."""
        chance = self._chance
        parts = [self._beginning(), amqp_frames.open_frame(hostname=chance.choice(TEXTS))]
        parts += [amqp_frames.begin_frame(channel) for channel in range(chance.randint(1, 2))]
        steps = [
            self._sensible_link,
            self._sensible_transfers,
            self._sensible_flow,
            self._management_request,
            self._any_performative,
            self._any_performative,
        ]
        parts += [chance.choice(steps)() for _ in range(chance.randint(1, MOST_FRAMES))]
        return b"".join(parts)

    def _beginning(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.5:
            return amqp_frames.HEADER
        mechanism = Symbol(
            chance.choice(("ANONYMOUS", "PLAIN", "EXTERNAL", "MSSBCBS", "", "x" * 99))
        )
        response = chance.choice((None, b"", b"\0u\0p", b"\0" * 5, chance.randbytes(200)))
        body = encode(Described(ULong(0x41), [mechanism, response, chance.choice(TEXTS)]))
        return amqp_frames.SASL_HEADER + amqp_frames.raw_frame(body, kind=1) + amqp_frames.HEADER

    # ---- sensible, so that there is something to upset ------------------------------------------

    def _sensible_link(self) -> bytes:
        chance = self._chance
        handle, name = chance.randrange(4), f"link-{chance.randrange(6)}"
        address = chance.choice(ADDRESSES)
        if chance.random() < 0.5:
            return amqp_frames.attach_sender(name, handle, address)
        filters: Any = chance.choice(
            (None, {Symbol("com.microsoft:session-filter"): self._value(1)}, {Symbol("x"): 1})
        )
        return amqp_frames.attach_receiver(
            name, handle, address, filters=filters, rcv_settle_mode=chance.choice((None, 0, 1))
        ) + amqp_frames.flow(chance.choice((1, 100, 0xFFFFFFFF)), handle=handle)

    def _sensible_transfers(self) -> bytes:
        chance = self._chance
        first = chance.choice((0, 0, 1, 0xFFFFFFFE))
        return b"".join(
            amqp_frames.transfer(
                (first + number) & 0xFFFFFFFF,
                self._message(),
                handle=chance.randrange(4),
                message_format=chance.choice((0, 0, amqp_frames.BATCH_FORMAT, 7)),
                more=chance.choice((None, None, True)),
                settled=chance.choice((None, True)),
                aborted=chance.choice((None, None, None, True)),
            )
            for number in range(chance.randint(1, 5))
        )

    def _sensible_flow(self) -> bytes:
        chance = self._chance
        return amqp_frames.flow(
            chance.choice((0, 1, 1000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)),
            handle=chance.randrange(4),
            delivery_count=chance.choice((0, 1, 0xFFFFFFFF)),
            drain=chance.choice((None, True)),
            echo=chance.choice((None, True)),
            incoming_window=chance.choice((0, 1, 1 << 20, 0xFFFFFFFF)),
        )

    def _management_request(self) -> bytes:
        chance = self._chance
        node = chance.choice(("fuzz-0/$management", "$cbs", "topic.1/$management"))
        operation = f"com.microsoft:{chance.choice(OPERATIONS)}"
        body: object = {
            chance.choice(KEYS): self._value(DEEPEST) for _ in range(chance.randint(0, 5))
        }
        if node == "$cbs":
            operation, body = "put-token", self._value(2)
        sections = [
            Described(ULong(0x73), [self._value(1), None, node, None, "reply"]),
            Described(ULong(0x74), {"operation": operation, "name": self._value(1)}),
            Described(ULong(0x77), body),
        ]
        return (
            amqp_frames.attach_sender("requests", 10, node)
            + amqp_frames.attach_receiver("reply", 11, node)
            + amqp_frames.flow(10, handle=11)
            + amqp_frames.transfer(0, b"".join(map(encode, sections)), handle=10)
        )

    def _message(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.5:
            return encode(Described(ULong(0x75), b"x" * chance.randrange(2_000)))
        codes = (0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, chance.randrange(256))
        return b"".join(
            encode(Described(ULong(chance.choice(codes)), self._value(DEEPEST)))
            for _ in range(chance.randint(0, 5))
        )

    # ---- anything -----------------------------------------------------------------------------

    def _any_performative(self) -> bytes:
        chance = self._chance
        code = chance.choice([*amqp_frames.PERFORMATIVES.values(), chance.randrange(256)])
        fields = [self._value(DEEPEST) for _ in range(chance.randint(0, 16))]
        body = encode(Described(ULong(code), fields))
        channel = chance.choice((0, 0, 0, 1, 7, 65_535))
        if chance.random() < 0.05:
            return struct.pack(">IBBH", chance.getrandbits(32), 2, 0, channel) + body
        return amqp_frames.raw_frame(body, channel, kind=chance.choice((0, 0, 0, 1, 9)))

    def _value(self, depth: int) -> object:
        chance = self._chance
        plain: tuple[object, ...] = (
            None,
            True,
            False,
            UByte(chance.randrange(256)),
            UInt(chance.choice((0, 1, 10, 0x7FFFFFFF, 0xFFFFFFFF))),
            ULong(chance.choice((0, 1, 0x24, (1 << 64) - 1))),
            Int(chance.choice((0, -1, 5, -(1 << 31), (1 << 31) - 1))),
            Long(chance.choice((0, -1, 5, -(1 << 63), (1 << 63) - 1))),
            Timestamp(chance.choice((0, -1, (1 << 63) - 1, 1_700_000_000_000))),
            chance.choice(TEXTS),
            chance.choice(ADDRESSES),
            Symbol(chance.choice(TEXTS[:2])),
            chance.randbytes(chance.choice((0, 16, 300))),
            float("nan"),
            float("inf"),
        )
        if depth <= 0 or chance.random() < 0.6:
            return chance.choice(plain)
        count = chance.randint(0, 4)
        match chance.randrange(3):
            case 0:
                return [self._value(depth - 1) for _ in range(count)]
            case 1:
                return {f"key-{number}": self._value(depth - 1) for number in range(count)}
            case _:
                code = chance.choice((0x1D, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x30, 0x34))
                return Described(ULong(code), [self._value(depth - 1) for _ in range(count)])
