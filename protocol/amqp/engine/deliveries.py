"""Deliveries that the broker sends or settles.

Proton gets every message as settled and forgets it as soon as it is written, see `protocol/native/proton.c`. Which
deliveries the client has to settle is kept in `EngineLink.sent_deliveries`, and the broker's dispositions for them are
written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cproton_ffi import ffi, lib

from protocol.amqp.engine.outcomes import ACCEPTED, ACCEPTED_CODE, encode_state, write_outcome
from protocol.amqp.frames.output_frames import sender_dispositions
from protocol.internal_error import InternalError
from protocol.native import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from protocol.amqp.engine.endpoints import Endpoints
    from protocol.amqp.engine.interface import Delivery, EngineLink
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.engine.proton_connection import Proton

PART_BYTES = 64 * 1024
"""How much Proton gets at once. It keeps the buffer of a delivery, at its largest size, for other deliveries."""
TRANSFER_MAX_BYTES = 64
"""The size of a transfer without its payload, at most."""


def send(
    link: EngineLink,
    tags: list[bytes],
    heads: list[bytes],
    bodies: list[bytes],
    settled: bool,  # noqa: FBT001 -- as in the transfer itself
    endpoints: Endpoints,
    pump: Callable[[], object],
    proton: Proton,
) -> list[Delivery]:
    """Sends messages, see `Engine.send`. `pump` moves the bytes that Proton has written to the output."""
    if link.closed:
        return []
    if settled is not link.sends_settled:
        if link.sends_settled is not None:
            raise InternalError("the messages of a link are all settled or all unsettled")
        link.sends_settled = settled
        if not settled:
            endpoints.add_sender(link)
    first, count = link.sent, len(tags)
    position = compiled.send(link.proton_address, tags, heads, bodies, 0, settled, PART_BYTES)
    while position < count:
        if len(heads[position]) + len(bodies[position]) > PART_BYTES and not settled:
            part_bytes = _part_bytes(proton.frame_max_bytes)
            payload = heads[position] + bodies[position]
            _send_in_parts(link, tags[position], payload, part_bytes, pump)
            position += 1
        pump()
        position = compiled.send(
            link.proton_address, tags, heads, bodies, position, settled, PART_BYTES
        )
    link.sent += count
    return [] if settled else list(range(first, first + count))


def _part_bytes(frame_max_bytes: int) -> int:
    """Returns the size of the parts in which a message fills its frames. A part that is a little larger than a frame would
    leave a small frame each time."""
    frame_bytes = min(frame_max_bytes, PART_BYTES)
    return PART_BYTES // frame_bytes * (frame_bytes - TRANSFER_MAX_BYTES)


def _send_in_parts(
    link: EngineLink, tag: bytes, payload: bytes, part_bytes: int, pump: Callable[[], object]
) -> None:
    """Sends a message so that Proton has only a part of it at a time."""
    pointer = link.pointer
    tag_memory = ffi.from_buffer(tag)
    delivery = lib.pn_delivery(pointer, ffi.new("pn_bytes_t *", (len(tag), tag_memory))[0])
    start = ffi.from_buffer(payload)
    size = len(payload)
    for position in range(0, size, part_bytes):
        lib.pn_link_send(pointer, start + position, min(part_bytes, size - position))
        if position + part_bytes < size:
            pump()
    lib.pn_link_advance(pointer)
    lib.pn_delivery_settle(delivery)


def settle(
    link: EngineLink, settled: Sequence[Delivery], outcome: Outcome | None, output: list[bytes]
) -> None:
    """Settles deliveries, see `Engine.settle`. Dispositions of sent messages are appended to the output."""
    if link.closed:
        return
    if not link.is_receiver:
        ids = link.sent_deliveries.find(settled, forget=True)
        if ids:
            state = b"" if outcome is None else encode_state(outcome)
            output += sender_dispositions(link.channel, ids, state, settled=True)
    elif link.unconfirmed is None and (outcome is None or outcome is ACCEPTED):
        link.received_deliveries.settle(settled, 0 if outcome is None else ACCEPTED_CODE)
    else:
        for address in link.received_deliveries.forget(settled):
            delivery = ffi.cast("pn_delivery_t *", address)
            if outcome is not None:
                lib.pn_delivery_update(delivery, write_outcome(delivery, outcome))
            link.await_confirmation(delivery)


def update(
    link: EngineLink, updated: Sequence[Delivery], outcome: Outcome, output: list[bytes]
) -> None:
    """Sets the state of deliveries that the broker sent, without settling them."""
    if not link.closed:
        ids = link.sent_deliveries.find(updated, forget=False)
        output += sender_dispositions(link.channel, ids, encode_state(outcome), settled=False)
