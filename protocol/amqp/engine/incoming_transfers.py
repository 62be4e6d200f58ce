"""Transfers that clients send, and outcomes of messages that the broker sent.

The two loops that run once for each incoming message or outcome. Consecutive transfers of one kind on one link are
passed to the handler in one call. A message never takes more memory than the limit of the connection.
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
from protocol.amqp.engine.outcomes import (
    ACCEPTED,
    ACCEPTED_CODE,
    RELEASED_CODE,
    Transactional,
    read_outcome,
    read_transaction_id,
)
from protocol.amqp.engine.states import LinkState
from protocol.amqp.frames.incoming_sessions import ProtocolViolation

if TYPE_CHECKING:
    from protocol.amqp.engine.interface import TransferKind
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.frames.incoming_sessions import IncomingSessions
    from protocol.amqp.held_memory import HeldMemory

BUFFER_BYTES = 1 << 18
_ABORTED = -11
_UNGRANTED = ProtocolViolation(
    "amqp:link:transfer-limit-exceeded", "A transfer was sent on a link that has not been granted."
)
_WRONG_WAY = ProtocolViolation(
    "amqp:not-allowed", "A transfer was sent on a link on which the client receives."
)

_peek_event = lib.pn_collector_peek
_pop_event = lib.pn_collector_pop
_event_type = lib.pn_event_type
_event_link = lib.pn_event_link
_event_delivery = lib.pn_event_delivery
_link_current = lib.pn_link_current
_link_recv = lib.pn_link_recv
_link_advance = lib.pn_link_advance
_is_partial = lib.pn_delivery_partial
_is_settled = lib.pn_delivery_settled
_remote_state = lib.pn_delivery_remote_state
_settle = lib.pn_delivery_settle
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
        self._handler = handler
        self._sessions = sessions
        self._max_message_size_bytes = max_message_size_bytes
        # If a read fills the buffer, the message is not complete or is too large.
        self._read_bytes = min(BUFFER_BYTES, max_message_size_bytes + 1)
        self._memory = memory
        self.transactional_outcome_count = 0
        """How many outcomes of sent messages named a transaction."""

    def take_transfers(self, link: EngineLink, *, batch: bool) -> ProtocolViolation | None:
        """Handles the transfers of a link that are first in the event queue. Returns a violation, if there is one."""
        collector = self._collector
        pointer = link.pointer
        unsettled = link.unsettled
        may_send_settled = link.may_send_settled
        unconfirmed = link.unconfirmed
        is_ready = link.is_attached and link.partial is None  # changes only in the calls below
        buffer, view, read_bytes = copy_buffer.memory, copy_buffer.view, self._read_bytes
        plain = group_kind = KINDS[False, batch]
        transactional = self._sessions.transactional
        deliveries: list[Delivery] = []
        payloads: list[bytes] = []
        while True:
            # Not the delivery of the event: that may be an older one whose state has changed.
            delivery = _link_current(pointer)
            if unconfirmed:
                link.confirmed(_event_delivery(_peek_event(collector)))
            _pop_event(collector)
            if delivery:
                size = _link_recv(pointer, buffer, read_bytes)
                if is_ready and 0 < size < read_bytes and not _is_partial(delivery):
                    payload = view[0:size]
                    _link_advance(pointer)
                    unsettled[delivery] = delivery
                    kind = plain
                    if may_send_settled and _is_settled(delivery):
                        kind = KINDS[True, batch]
                    if transactional:
                        kind = _in_transaction(delivery, kind)
                    if kind is not group_kind:
                        if deliveries and kind != group_kind:
                            link.received += len(deliveries)
                            self._handler.on_transfers(link, deliveries, payloads, group_kind)
                            deliveries, payloads = [], []
                            is_ready = link.is_attached
                        group_kind = kind
                    deliveries.append(delivery)
                    payloads.append(payload)
                else:
                    if deliveries:
                        link.received += len(deliveries)
                        self._handler.on_transfers(link, deliveries, payloads, group_kind)
                        deliveries, payloads = [], []
                    violation = self._take_piece(link, delivery, size, batch=batch)
                    if violation is not None:
                        return violation
                    is_ready = link.is_attached and link.partial is None
            event = _peek_event(collector)
            if not event or _event_type(event) != _DELIVERY or _event_link(event) != pointer:
                break
        if deliveries:
            link.received += len(deliveries)
            self._handler.on_transfers(link, deliveries, payloads, group_kind)
        return None

    def forget(self, link: EngineLink) -> None:
        """Drops the delivery of a link that is not complete."""
        if link.partial is not None:
            self._memory.release(link.partial.kept_bytes)
            link.partial = None

    def _take_piece(
        self, link: EngineLink, delivery: Delivery, size: int, *, batch: bool
    ) -> ProtocolViolation | None:
        """Handles a transfer that is not a complete message in one read: part of a delivery, a large or empty or
        aborted one, or one on a link that is not attached."""
        pointer = link.pointer
        if link.closed:
            # It was sent before the client knew that the link is detached. Settling also advances the link.
            self._report_lost_part(delivery)
            lib.pn_delivery_update(delivery, RELEASED_CODE)
            _settle(delivery)
            return None
        if link.state is LinkState.REQUESTED:
            return _UNGRANTED
        partial = link.partial
        if partial is None:
            link.received += 1
            partial = PartialDelivery(batch=batch)
        self.forget(link)
        if size == _ABORTED:
            _settle(delivery)
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
        if _is_partial(delivery):
            link.partial = partial
            fits = self._memory.hold(partial.kept_bytes)
            return None if fits else memory_violation(self._memory)
        _link_advance(pointer)
        link.unsettled[delivery] = delivery
        settled = bool(_is_settled(delivery))
        kind = KINDS[settled, partial.batch]
        if self._sessions.transactional:
            kind = _in_transaction(delivery, kind)
        self._handler.on_transfers(link, [delivery], [b"".join(partial.chunks)], kind)
        return None

    def _refuse_oversize(
        self, link: EngineLink, delivery: Delivery, partial: PartialDelivery
    ) -> None:
        """Has a message refused once, as soon as it is over the limit. Proton drops further transfers of a delivery
        that is settled."""
        _link_advance(link.pointer)
        link.unsettled[delivery] = delivery
        settled = bool(_is_settled(delivery))
        beginning = b"".join(partial.chunks)
        self._report_lost_part(delivery)
        self._handler.on_oversize(link, delivery, partial.size_bytes, settled, beginning)
        if link.unsettled.pop(delivery, None) is not None:
            # The handler detached the link or ended the session instead of settling.
            lib.pn_delivery_update(delivery, RELEASED_CODE)
            _settle(delivery)

    def take_outcomes(self, link: EngineLink) -> ProtocolViolation | None:
        """Handles the outcomes of a link that are first in the event queue. Returns a violation, if there is one."""
        collector = self._collector
        unsettled = link.unsettled
        deliveries: list[Delivery] = []
        group_outcome: Outcome | None = None
        group_settled = False
        event = _peek_event(collector)
        delivery = unsettled.get(_event_delivery(event))
        if delivery is None:
            # It has been settled, or the broker did not send it.
            if link.closed:
                self._report_lost_outcome(_event_delivery(event))
            _pop_event(collector)
            known = lib.pn_link_unsettled(link.pointer) <= len(unsettled)
            return None if known else _WRONG_WAY
        while delivery is not None:
            _pop_event(collector)
            state = _remote_state(delivery)
            settled = _is_settled(delivery)
            outcome = ACCEPTED if state == ACCEPTED_CODE else read_outcome(delivery, state)
            if outcome is not None or settled:
                if settled is not group_settled or (
                    outcome is not group_outcome and outcome != group_outcome
                ):
                    if deliveries:
                        self._report_outcomes(link, deliveries, group_outcome, group_settled)
                    deliveries = []
                    group_outcome, group_settled = outcome, settled
                deliveries.append(delivery)
            event = _peek_event(collector)
            if not event or _event_type(event) != _DELIVERY:
                break
            delivery = unsettled.get(_event_delivery(event))
        if deliveries:
            self._report_outcomes(link, deliveries, group_outcome, group_settled)
        return None

    def _report_outcomes(
        self,
        link: EngineLink,
        deliveries: list[Delivery],
        outcome: Outcome | None,
        settled: bool,  # noqa: FBT001 -- as in the disposition itself
    ) -> None:
        """Passes outcomes to the handler. Outcomes on a link that is detaching are passed only if they belong to a
        transaction, which must not be committed without them."""
        is_transactional = isinstance(outcome, Transactional)
        if is_transactional:
            self.transactional_outcome_count += len(deliveries)
        if is_transactional or not link.closed:
            self._handler.on_outcomes(link, deliveries, outcome, settled)

    def _report_lost_part(self, delivery: Delivery) -> None:
        """Reports a message that is not processed, if it belongs to a transaction."""
        if self._sessions.transactional:
            transaction_id = read_transaction_id(delivery)
            if transaction_id is not None:
                self._handler.on_transaction_part_lost(transaction_id)

    def _report_lost_outcome(self, delivery: Delivery) -> None:
        """Reports an outcome of a delivery that was settled when its link was detached."""
        transaction_id = read_transaction_id(delivery)
        if transaction_id is not None:
            self.transactional_outcome_count += 1
            self._handler.on_transaction_part_lost(transaction_id)


def memory_violation(memory: HeldMemory) -> ProtocolViolation:
    """Returns the violation of a client that makes the broker hold too much memory."""
    return ProtocolViolation("amqp:resource-limit-exceeded", memory.refusal)


def _in_transaction(delivery: Delivery, kind: TransferKind) -> TransferKind:
    transaction_id = read_transaction_id(delivery)
    return kind if transaction_id is None else kind._replace(transaction_id=transaction_id)
