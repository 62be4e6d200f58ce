"""The SASL preamble of a connection, server side, before Proton sees a byte.

Owns the protocol header and the choice of a mechanism; not whose credentials are good.
At most a few kilobytes are kept, however the bytes arrive, and nothing a client sends raises.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from broker.core.contract.errors import UndecodableMessage
from protocol.codec.values import Array, ArrayCode, Described, Symbol, UByte, ULong, decode, encode

MECHANISMS = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
"""In the order the cloud offers them: some clients take the first they know."""

PREAMBLE_MAX_BYTES = 4096

_AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_HEADER_BYTES = 8
_SASL_FRAME_TYPE = 1
_MECHANISMS_CODE = 0x40
_INIT_CODES = (0x41, "amqp:sasl-init:list")
_OUTCOME_CODE = 0x44
_OUTCOME_OK = 0
_OUTCOME_AUTH = 1

_frame_header = struct.Struct(">IBBH")

Authenticate = Callable[[str, str | None, str | None], bool]
"""Mechanism, user and password; the latter two for PLAIN only."""


class SaslStep(NamedTuple):
    """What to do after some bytes of the preamble."""

    output: bytes
    """To write."""
    rest: bytes | None
    """Once the preamble is over: what follows it, beginning with the AMQP header."""
    failed: bool
    """Write the output, then close."""


class SaslServer:
    """Takes a connection from its first byte to the AMQP header."""

    def __init__(self, authenticate: Authenticate, *, sasl_required: bool = False) -> None:
        self._authenticate = authenticate
        self._sasl_required = sasl_required
        self._buffer = b""
        self._header_seen = False
        self._over = False
        self.mechanism: str | None = None
        """None where the client skipped SASL."""
        self.user: str | None = None
        self.hostname: str | None = None

    def feed(self, data: bytes) -> SaslStep:
        """Take more bytes. After `rest` or `failed` there is nothing more to feed."""
        if self._over:
            return SaslStep(b"", None, True)
        self._buffer += data
        output = b""
        if not self._header_seen:
            header = self._buffer[:_HEADER_BYTES]
            if not (_SASL_HEADER.startswith(header) or _AMQP_HEADER.startswith(header)):
                # AMQP 1.0 §2.2: answer with a header we support, then close.
                return self._fail(_SASL_HEADER)
            if len(header) < _HEADER_BYTES:
                return SaslStep(b"", None, False)
            if header == _AMQP_HEADER:
                if self._sasl_required:
                    return self._fail(_SASL_HEADER)
                return self._finish(b"")
            self._header_seen = True
            self._buffer = self._buffer[_HEADER_BYTES:]
            output = _SASL_HEADER + _MECHANISMS_FRAME
        return self._take_init(output)

    def _take_init(self, output: bytes) -> SaslStep:
        if len(self._buffer) < _frame_header.size:
            return SaslStep(output, None, False)
        size, offset, kind, _ = _frame_header.unpack_from(self._buffer)
        if not (
            _frame_header.size <= 4 * offset <= size <= PREAMBLE_MAX_BYTES
            and kind == _SASL_FRAME_TYPE
        ):
            return self._fail(output)
        if len(self._buffer) < size:
            return SaslStep(output, None, False)
        body, self._buffer = self._buffer[4 * offset : size], self._buffer[size:]
        if not self._init_is_good(body):
            return self._fail(output + _outcome_frame(_OUTCOME_AUTH))
        return self._finish(output + _outcome_frame(_OUTCOME_OK))

    def _init_is_good(self, body: bytes) -> bool:
        try:
            init = decode(body)[0]
        except UndecodableMessage:
            return False
        if not isinstance(init, Described) or init.descriptor not in _INIT_CODES:
            return False
        fields = init.value if isinstance(init.value, list) else []
        mechanism, response, hostname = [*fields, None, None, None][:3]
        self.mechanism = mechanism if isinstance(mechanism, str) else None
        self.hostname = hostname if isinstance(hostname, str) else None
        if self.mechanism not in MECHANISMS:
            return False
        if self.mechanism != "PLAIN":
            # The response of the others is a mere trace, and every SDK sends something else.
            return self._authenticate(self.mechanism, None, None)
        return self._plain_is_good(response)

    def _plain_is_good(self, response: object) -> bool:
        """RFC 4616: authorization identity, user and password between NULs."""
        if not isinstance(response, bytes):
            return False
        parts = response.split(b"\0")
        if len(parts) != 3:
            return False
        try:
            user, password = parts[1].decode(), parts[2].decode()
        except UnicodeDecodeError:
            return False
        self.user = user
        return self._authenticate("PLAIN", user, password)

    def _finish(self, output: bytes) -> SaslStep:
        self._over = True
        rest, self._buffer = self._buffer, b""
        return SaslStep(output, rest, False)

    def _fail(self, output: bytes) -> SaslStep:
        self._over = True
        self._buffer = b""
        return SaslStep(output, None, True)


def _frame(code: int, field: object) -> bytes:
    body = encode(Described(ULong(code), [field]))
    return _frame_header.pack(_frame_header.size + len(body), 2, _SASL_FRAME_TYPE, 0) + body


def _outcome_frame(code: int) -> bytes:
    return _frame(_OUTCOME_CODE, UByte(code))


_MECHANISMS_FRAME = _frame(
    _MECHANISMS_CODE, Array(ArrayCode.SYMBOL, [Symbol(name) for name in MECHANISMS])
)
