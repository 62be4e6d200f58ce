"""Frames as Proton writes them, and a Proton that has written certain bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cproton_ffi import ffi, lib

from protocol.amqp.engine import proton_functions
from protocol.amqp.frames.performatives import frame_of
from protocol.codec import UInt, encode
from protocol.native import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

MASK = 0xFFFFFFFF
NO_EVENTS = 1
"""The address of a collector. What is in it is given to `Written`."""
DELIVERY, FLOW, HANDLED = lib.PN_DELIVERY, lib.PN_LINK_FLOW, lib.PN_LINK_REMOTE_OPEN
UNHANDLED = (lib.PN_TRANSPORT, lib.PN_LINK_LOCAL_OPEN, 200)
"""Types of events. The last does not exist."""


def transfer(channel: int, handle: int, delivery_id: int, payload: bytes = b"x") -> bytes:
    """A settled transfer."""
    fields = b"".join(map(encode, (UInt(handle), UInt(delivery_id), b"tag", UInt(0), True)))
    return frame_of(0x14, channel, 5, fields, payload)


class Written:
    """Stands in for a transport whose output is given, and a collector. Only `compiled.pump` may be called with it."""

    events: ClassVar[list[int]] = []

    def __init__(
        self, output: bytes, piece_bytes: int = 1 << 20, events: Sequence[int] = ()
    ) -> None:
        Written.events = list(events)
        self._first = ffi.callback("void *(void *)", self._first_event)
        self._pop_event = ffi.callback("bool(void *)", self._popped_event)
        self._type = ffi.callback("int(void *)", lambda _: self.events[0])
        self._output = output
        self._piece_bytes = piece_bytes
        self._pending = ffi.callback("ssize_t(void *)", self._piece_size)
        self._peek = ffi.callback("ssize_t(void *, char *, size_t)", self._peeked)
        self._pop = ffi.callback("void(void *, size_t)", self._popped)

    def _first_event(self, _: Any) -> Any:
        return ffi.cast("void *", 1 if self.events else 0)

    def _popped_event(self, _: Any) -> bool:
        del self.events[0]
        return bool(self.events)

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
            "pn_collector_peek": proton_functions.address_of(self._first),
            "pn_collector_pop": proton_functions.address_of(self._pop_event),
            "pn_event_type": proton_functions.address_of(self._type),
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
