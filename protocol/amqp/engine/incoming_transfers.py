"""Transfers that clients send, and outcomes of messages that the broker sent.

Consecutive transfers of one kind on one link are taken from Proton and passed to the handler in one call. The outcomes
come from the client's frames. A message never takes more memory than the limit of the connection.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from protocol.amqp.engine.interface import (
    KINDS,
    Delivery,
    EngineHandler,
    EngineLink,
    PartialDelivery,
)
from protocol.amqp.engine.outcomes import RELEASED_CODE, Transactional, read_transaction_id
from protocol.amqp.engine.proton_functions import address_of
from protocol.amqp.engine.states import LinkState
from protocol.amqp.frames.incoming_sessions import ProtocolViolation
from protocol.native import compiled

if TYPE_CHECKING:
    from protocol.amqp.engine.interface import TransferKind
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.frames.incoming_sessions import IncomingSessions
    from protocol.amqp.held_memory import HeldMemory

BUFFER_BYTES = 1 << 18
_ABORTED = -11
_ALL = 1 << 30
_ANOTHER_EVENT, _PIECE = 0, 1  # results of `compiled.take`; there is one more
_UNGRANTED = ProtocolViolation(
    "amqp:link:transfer-limit-exceeded", "A transfer was sent on a link that has not been granted."
)
WRONG_WAY = ProtocolViolation(
    "amqp:not-allowed", "A transfer was sent on a link on which the client receives."
)

_peek_event = lib.pn_collector_peek
_pop_event = lib.pn_collector_pop
_event_type = lib.pn_event_type
_event_link = lib.pn_event_link
_event_delivery = lib.pn_event_delivery
_link_recv = lib.pn_link_recv
_DELIVERY = lib.PN_DELIVERY


class _CopyBuffer(threading.local):
    """A buffer that Proton copies bytes into. All engines of a thread share it."""

    def __init__(self) -> None:
        self.memory = ffi.new("char[]", BUFFER_BYTES)
        self.view = ffi.buffer(self.memory)


copy_buffer = _CopyBuffer()


class IncomingTransfers:
    """Handles the delivery events of one connection."""

    def __init__(
        self,
        collector: Any,
        handler: EngineHandler,
        sessions: IncomingSessions,
        max_message_size_bytes: int,
        memory: HeldMemory,
    ) -> None:
        self._collector = collector
        self._collector_address = address_of(collector)
        self._handler = handler
        self._sessions = sessions
        self._max_message_size_bytes = max_message_size_bytes
        # If a read fills the buffer, the message is not complete or is too large.
        self._read_bytes = min(BUFFER_BYTES, max_message_size_bytes + 1)
        self._memory = memory

    def take_transfers(self, link: EngineLink, *, batch: bool) -> ProtocolViolation | None:
        """Handles the transfers of a link that are first in the event queue. Returns a violation, if there is one."""
        collector = self._collector
        pointer = link.pointer
        limit = _ALL if link.unconfirmed is None else 1
        while True:
            if link.unconfirmed:
                link.confirmed(_event_delivery(_peek_event(collector)))
            following = _PIECE
            if link.is_attached and link.partial is None:
                received = link.received_deliveries
                deliveries, payloads, settled, following = compiled.take(
                    self._collector_address,
                    link.proton_address,
                    received.unsettled,
                    received.next_number,
                    limit,
                    self._read_bytes,
                    link.may_send_settled,
                )
                if deliveries:
                    received.next_number += len(deliveries)
                    link.received += len(deliveries)
                    self._handler.on_transfers(link, deliveries, payloads, KINDS[settled, batch])
            if following == _PIECE:
                _pop_event(collector)
                violation = self._take_piece(link, batch=batch)
                if violation is not None:
                    return violation
            elif following == _ANOTHER_EVENT:
                return None
            event = _peek_event(collector)
            if not event or _event_type(event) != _DELIVERY or _event_link(event) != pointer:
                return None

    def forget(self, link: EngineLink) -> None:
        """Drops the delivery of a link that is not complete."""
        if link.partial is not None:
            self._memory.release(link.partial.kept_bytes)
            link.partial = None

    def _take_piece(self, link: EngineLink, *, batch: bool) -> ProtocolViolation | None:
        """Handles a transfer that is not a plain message: part of a delivery, a large or empty or aborted one, one in
        a transaction, or one on a link that is not attached."""
        pointer = link.pointer
        delivery = lib.pn_link_current(pointer)
        if not delivery:
            return None
        size = _link_recv(pointer, copy_buffer.memory, self._read_bytes)
        if link.closed:
            # It was sent before the client knew that the link is detached. Settling also advances the link.
            self._report_lost_part(delivery)
            lib.pn_delivery_update(delivery, RELEASED_CODE)
            lib.pn_delivery_settle(delivery)
            return None
        if link.state is LinkState.REQUESTED:
            return _UNGRANTED
        partial = link.partial
        if partial is None:
            link.received += 1
            partial = PartialDelivery(batch=batch)
        self.forget(link)
        if size == _ABORTED:
            lib.pn_delivery_settle(delivery)
            # The handler does not see it, so its credit is returned here.
            lib.pn_link_flow(pointer, 1)
            return None
        # The limit applies to each message of a batch, which only the core checks.
        limit_bytes = 0 if partial.batch else link.max_message_size_bytes
        limit_bytes = min(limit_bytes or self._max_message_size_bytes, self._max_message_size_bytes)
        while size > 0:
            partial.add(copy_buffer.view[0:size], limit_bytes)
            size = _link_recv(pointer, copy_buffer.memory, self._read_bytes)
        if partial.size_bytes > limit_bytes:
            self._refuse_oversize(link, delivery, partial)
            return None
        if lib.pn_delivery_partial(delivery):
            link.partial = partial
            fits = self._memory.hold(partial.kept_bytes)
            return None if fits else memory_violation(self._memory)
        lib.pn_link_advance(pointer)
        number = link.received_deliveries.add(address_of(delivery))
        settled = bool(lib.pn_delivery_settled(delivery))
        kind = KINDS[settled, partial.batch]
        if self._sessions.transactional:
            kind = _in_transaction(delivery, kind)
        self._handler.on_transfers(link, [number], [partial.content()], kind)
        return None

    def _refuse_oversize(self, link: EngineLink, delivery: Any, partial: PartialDelivery) -> None:
        """Has a message refused once, as soon as it is over the limit. Proton drops further transfers of a delivery
        that is settled."""
        lib.pn_link_advance(link.pointer)
        number = link.received_deliveries.add(address_of(delivery))
        settled = bool(lib.pn_delivery_settled(delivery))
        beginning = partial.content()
        self._report_lost_part(delivery)
        self._handler.on_oversize(link, number, partial.size_bytes, settled, beginning)
        # Unless the handler has settled it: it detached the link or ended the session instead.
        link.received_deliveries.settle([number], RELEASED_CODE)

    def report_outcomes(
        self,
        link: EngineLink | None,
        deliveries: list[Delivery],
        outcome: Outcome | None,
        settled: bool,  # noqa: FBT001 -- as in the disposition itself
    ) -> None:
        """Passes outcomes to the handler. Outcomes on a link that is detaching are passed only if they belong to a
        transaction, which must not be committed without them. `link` is None if it has been freed meanwhile."""
        if outcome is None and not settled:
            return
        transaction_id = outcome.transaction_id if isinstance(outcome, Transactional) else None
        if link is not None and (transaction_id is not None or not link.closed):
            self._handler.on_outcomes(link, deliveries, outcome, settled)
        elif transaction_id is not None:
            self._handler.on_transaction_part_lost(transaction_id)

    def _report_lost_part(self, delivery: Any) -> None:
        """Reports a message that is not processed, if it belongs to a transaction."""
        if self._sessions.transactional:
            transaction_id = read_transaction_id(delivery)
            if transaction_id is not None:
                self._handler.on_transaction_part_lost(transaction_id)


def memory_violation(memory: HeldMemory) -> ProtocolViolation:
    """Returns the violation of a client that makes the broker hold too much memory."""
    return ProtocolViolation("amqp:resource-limit-exceeded", memory.refusal)


def _in_transaction(delivery: Any, kind: TransferKind) -> TransferKind:
    transaction_id = read_transaction_id(delivery)
    return kind if transaction_id is None else kind._replace(transaction_id=transaction_id)
