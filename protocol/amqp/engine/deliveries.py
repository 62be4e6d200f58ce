"""Deliveries that the broker sends or settles.

The two loops that run once for each message on its way out. Proton reuses the memory of a settled delivery, so a
delivery is settled only if the link still has the very object that was handed out (`EngineLink.unsettled`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from protocol.amqp.engine.outcomes import ACCEPTED, ACCEPTED_CODE, write_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from protocol.amqp.engine.interface import Delivery, EngineLink
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.held_memory import SentBuffers

_TAG_MAX_BYTES = 32  # AMQP 1.0 §2.8.7

_link_send = lib.pn_link_send
_link_advance = lib.pn_link_advance
_new_delivery = lib.pn_delivery
_update = lib.pn_delivery_update
_settle = lib.pn_delivery_settle


class _TagBuffer(threading.local):
    """A delivery tag as Proton takes it, shared by all engines of a thread."""

    def __init__(self) -> None:
        self._memory = ffi.new("char[]", _TAG_MAX_BYTES)
        self.view = ffi.buffer(self._memory)
        self.tag = ffi.new("pn_bytes_t *", {"size": 0, "start": self._memory})


_tag_buffer = _TagBuffer()


def send(
    link: EngineLink,
    tags: Sequence[bytes],
    heads: Sequence[bytes],
    bodies: Sequence[bytes],
    settled: bool,  # noqa: FBT001 -- as in the transfer itself
    sent_buffers: SentBuffers,
    pump: Callable[[], None],
) -> list[Delivery]:
    """Sends messages, see `Engine.send`. `pump` moves the bytes that Proton has written to the output."""
    if link.closed:
        return []
    pointer = link.pointer
    tag_view, tag = _tag_buffer.view, _tag_buffer.tag
    tag_value = tag[0]
    tag_size = kept_bytes = 0
    deliveries = []
    part_bytes = sent_buffers.part_bytes(len(link.unsettled))
    for tag_bytes, head, body in zip(tags, heads, bodies, strict=True):
        if len(tag_bytes) != tag_size:
            tag_size = tag.size = len(tag_bytes)
        tag_view[0:tag_size] = tag_bytes
        delivery = _new_delivery(pointer, tag_value)
        payload = head + body  # faster than passing the two parts one by one
        size = len(payload)
        if size > part_bytes and not settled:  # the first transfer must say that it is settled
            _send_in_parts(pointer, payload, part_bytes, pump)
            kept_bytes += part_bytes
        else:
            _link_send(pointer, payload, size)
            kept_bytes += size
        _link_advance(pointer)
        deliveries.append(delivery)
    link.sent += len(deliveries)
    if settled:
        for delivery in deliveries:
            _settle(delivery)
        return []
    link.unsettled.update(zip(deliveries, deliveries, strict=True))
    link.kept_bytes += kept_bytes
    sent_buffers.kept_bytes += kept_bytes
    return deliveries


def _send_in_parts(pointer: Any, payload: bytes, part_bytes: int, pump: Callable[[], None]) -> None:
    """Sends a message so that Proton has only a part of it at a time, see `SentBuffers`."""
    start = ffi.from_buffer(payload)
    size = len(payload)
    for position in range(0, size, part_bytes):
        _link_send(pointer, start + position, min(part_bytes, size - position))
        if position + part_bytes < size:
            pump()


def settle(
    link: EngineLink,
    settled: Sequence[Delivery],
    outcome: Outcome | None,
    sent_buffers: SentBuffers,
) -> None:
    """Settles deliveries, see `Engine.settle`."""
    if link.closed:
        return
    unsettled = link.unsettled
    settle = _settle if link.unconfirmed is None else link.await_confirmation
    for delivery in settled:
        held = unsettled.pop(delivery, None)
        if held is not delivery:
            if held is not None:
                unsettled[held] = held  # another delivery at the same address
            continue
        if outcome is ACCEPTED:
            _update(delivery, ACCEPTED_CODE)
        elif outcome is not None:
            _update(delivery, write_outcome(delivery, outcome))
        settle(delivery)
    if link.kept_bytes:
        left = len(unsettled)
        kept_bytes = link.kept_bytes * left // (left + len(settled))  # estimated by the average
        sent_buffers.kept_bytes -= link.kept_bytes - kept_bytes
        link.kept_bytes = kept_bytes


def update(link: EngineLink, updated: Sequence[Delivery], outcome: Outcome) -> None:
    """Sets the state of deliveries without settling them."""
    if link.closed:
        return
    for delivery in updated:
        if link.unsettled.get(delivery) is delivery:
            _update(delivery, write_outcome(delivery, outcome))
