"""The SASL layer of a connection, server side. It ends before Proton gets its first byte.

Owns the protocol header and the choice of a mechanism. The connection decides whether credentials are valid.
At most `PREAMBLE_MAX_BYTES` are buffered, and no input of a client raises.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import (
    Array,
    ArrayCode,
    Described,
    DescribedType,
    Symbol,
    UByte,
    ULong,
    code_of,
    decode,
    encode,
)

MECHANISMS = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
"""In the order in which the service offers them: some clients take the first that they know."""

PREAMBLE_MAX_BYTES = 4096

_AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_HEADER_BYTES = 8
_SASL_FRAME_TYPE = 1
_OUTCOME_OK = 0
_OUTCOME_AUTH = 1

_frame_header = struct.Struct(">IBBH")

Authenticate = Callable[[str, str | None, str | None], bool]
"""Called with mechanism, user and password; user and password are None except for PLAIN."""


class SaslStep(NamedTuple):
    """What the caller does after it fed some bytes."""

    output: bytes
    """Bytes to write."""
    rest: bytes | None
    """None until the SASL layer is complete. Then the bytes that follow it, from the AMQP header on."""
    failed: bool
    """True if the socket is to be closed once the output is written."""


class SaslState(Enum):
    """What the server waits for."""

    PROTOCOL_HEADER = "protocol header"
    INIT = "sasl-init"
    ENDED = "ended"
    """The client is authenticated, skipped SASL, or failed. No more bytes are accepted."""


class SaslServer:
    """Reads a connection from its first byte to the AMQP header."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate
        self._buffer = b""
        self._state = SaslState.PROTOCOL_HEADER

    def feed(self, data: bytes) -> SaslStep:
        """Takes more bytes. After a step with `rest` or `failed` nothing may be fed any more."""
        if self._state is SaslState.ENDED:
            return SaslStep(b"", None, True)
        self._buffer += data
        output = b""
        if self._state is SaslState.PROTOCOL_HEADER:
            header = self._buffer[:_HEADER_BYTES]
            if not (_SASL_HEADER.startswith(header) or _AMQP_HEADER.startswith(header)):
                # AMQP 1.0 §2.2: answer with a supported header, then close.
                return self._fail(_SASL_HEADER)
            if len(header) < _HEADER_BYTES:
                return SaslStep(b"", None, False)
            if header == _AMQP_HEADER:
                return self._finish(b"")
            self._state = SaslState.INIT
            self._buffer = self._buffer[_HEADER_BYTES:]
            output = _SASL_HEADER + _MECHANISMS_FRAME
        return self._take_init(output)

    @property
    def incomplete_input(self) -> bytes:
        """The beginning of a frame of which the rest has not arrived."""
        return self._buffer

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
        if not self._is_authenticated(body):
            return self._fail(output + _outcome_frame(_OUTCOME_AUTH))
        return self._finish(output + _outcome_frame(_OUTCOME_OK))

    def _is_authenticated(self, body: bytes) -> bool:
        """Returns whether a sasl-init names a mechanism and credentials that are accepted."""
        try:
            init = decode(body)[0]
        except UndecodableMessage:
            return False
        if not isinstance(init, Described) or code_of(init.descriptor) != DescribedType.SASL_INIT:
            return False
        fields = init.value if isinstance(init.value, list) else []
        mechanism, response = [*fields, None, None][:2]
        if mechanism not in MECHANISMS:
            return False
        if mechanism != "PLAIN":
            # The response of the other mechanisms carries no credentials, and SDKs send different things.
            return self._authenticate(str(mechanism), None, None)
        return self._is_plain_authenticated(response)

    def _is_plain_authenticated(self, response: object) -> bool:
        """RFC 4616: authorization identity, user and password, separated by NUL."""
        if not isinstance(response, bytes):
            return False
        parts = response.split(b"\0")
        if len(parts) != 3:
            return False
        try:
            user, password = parts[1].decode(), parts[2].decode()
        except UnicodeDecodeError:
            return False
        return self._authenticate("PLAIN", user, password)

    def _finish(self, output: bytes) -> SaslStep:
        self._state = SaslState.ENDED
        rest, self._buffer = self._buffer, b""
        return SaslStep(output, rest, False)

    def _fail(self, output: bytes) -> SaslStep:
        self._state = SaslState.ENDED
        self._buffer = b""
        return SaslStep(output, None, True)


def _frame(code: int, field: object) -> bytes:
    body = encode(Described(ULong(code), [field]))
    return _frame_header.pack(_frame_header.size + len(body), 2, _SASL_FRAME_TYPE, 0) + body


def _outcome_frame(code: int) -> bytes:
    return _frame(DescribedType.SASL_OUTCOME, UByte(code))


_MECHANISMS_FRAME = _frame(
    DescribedType.SASL_MECHANISMS, Array(ArrayCode.SYMBOL, [Symbol(name) for name in MECHANISMS])
)
