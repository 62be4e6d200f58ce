"""Frames as Proton writes them, and a Proton that has written certain bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi

from protocol.amqp.engine import proton_functions
from protocol.amqp.frames.performatives import frame_of
from protocol.codec import UInt, encode
from protocol.native import compiled

if TYPE_CHECKING:
    from types import TracebackType

MASK = 0xFFFFFFFF


def transfer(channel: int, handle: int, delivery_id: int, payload: bytes = b"x") -> bytes:
    """A settled transfer."""
    fields = b"".join(map(encode, (UInt(handle), UInt(delivery_id), b"tag", UInt(0), True)))
    return frame_of(0x14, channel, 5, fields, payload)


class Written:
    """Stands in for a transport whose output is given. Only `compiled.pump` may be called with it."""

    def __init__(self, output: bytes, piece_bytes: int = 1 << 20) -> None:
        self._output = output
        self._piece_bytes = piece_bytes
        self._pending = ffi.callback("ssize_t(void *)", self._piece_size)
        self._peek = ffi.callback("ssize_t(void *, char *, size_t)", self._peeked)
        self._pop = ffi.callback("void(void *, size_t)", self._popped)

    def _piece_size(self, _: Any) -> int:
        return min(len(self._output), self._piece_bytes)

    def _peeked(self, _: Any, memory: Any, size: int) -> int:
        piece = self._output[:size]
        ffi.memmove(memory, piece, len(piece))
        return len(piece)

    def _popped(self, _: Any, size: int) -> None:
        self._output = self._output[size:]

    def __enter__(self) -> int:
        functions = proton_functions.addresses() | {
            "pn_transport_pending": proton_functions.address_of(self._pending),
            "pn_transport_peek": proton_functions.address_of(self._peek),
            "pn_transport_pop": proton_functions.address_of(self._pop),
        }
        compiled.set_proton(functions)
        return 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        compiled.set_proton(proton_functions.addresses())
