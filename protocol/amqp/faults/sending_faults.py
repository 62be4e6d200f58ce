"""What fault rules do to the messages that a client sends on a link."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.core.contract.commands import Send, SendBatch, SetRollbackOnly
from broker.core.contract.errors import MessageSizeExceeded, UndecodableMessage
from protocol.amqp.faults.after_answers import after_answers
from protocol.amqp.faults.ordered_work import OrderedWork
from protocol.codec import read_batch, read_message
from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.fault_rule import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect
    from broker.core.contract.errors import BrokerError
    from broker.core.contract.message import Message
    from protocol.amqp.engine.interface import Delivery, TransferKind
    from protocol.amqp.faults.connection_faults import ConnectionFaults
    from protocol.faults.fault_rule import FaultAction
    from protocol.sources import ProtocolSources


class FaultySender(Protocol):
    """The link of a client that sends."""

    path: str

    @property
    def connection(self) -> object: ...
    def receive(self, effect: Effect) -> None: ...
    def process_transfers(
        self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind
    ) -> None: ...
    def refuse(self, delivery: Delivery, error: BrokerError) -> None: ...
    def settle_presettled(self, deliveries: Sequence[Delivery]) -> None: ...
    def end(self, error: BrokerError) -> None: ...


class SendingFaults:
    """The faults of one sending link. A transfer is one operation, whether it has one message or a batch."""

    def __init__(
        self,
        link: FaultySender,
        faults: ConnectionFaults,
        submit: Callable[[Command], None],
        sources: ProtocolSources,
        batch_max_messages: int,
    ) -> None:
        self._link = link
        self._faults = faults
        self._submit = submit
        self._sources = sources
        self._batch_max_messages = batch_max_messages
        self._work = OrderedWork(faults.later)
        self._is_ending = False
        """The link or its connection ends as soon as what came before is answered. Transfers are dropped."""

    def take(self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind) -> bool:
        """Processes transfers, if a fault concerns some of them or is to come before them. Returns False otherwise."""
        if self._is_ending:
            return True
        rules = self._faults.rules((Operation.SEND,), self._link.path)
        if not rules and not self._work.is_waiting:
            return False
        has_filter = any(rule.matches is not None for rule in rules)
        passed = 0
        for position, (delivery, payload) in enumerate(zip(deliveries, payloads, strict=True)):
            messages = self._read(payload, kind) if has_filter else ()
            action = decide(rules, lambda rule, messages=messages: rule.fits(messages))  # type: ignore[misc]
            if action is None:
                continue
            self._pass(deliveries[passed:position], payloads[passed:position], kind)
            passed = position + 1
            if action.kind is FaultKind.DELAY:
                self._pass([delivery], [payload], kind, action.seconds)
            else:
                self._work.add(partial(self._act, action, delivery, payload, kind))
        self._pass(deliveries[passed:], payloads[passed:], kind)
        return True

    def clear(self) -> None:
        """Drops what is delayed, because the link has ended."""
        self._work.clear()

    def _pass(
        self,
        deliveries: list[Delivery],
        payloads: list[bytes],
        kind: TransferKind,
        delay_s: float = 0.0,
    ) -> None:
        """Processes transfers as if there was no rule."""

        def process() -> None:
            if not self._is_ending:
                self._link.process_transfers(deliveries, payloads, kind)

        if deliveries:
            self._work.add(process, delay_s)

    def _act(
        self, action: FaultAction, delivery: Delivery, payload: bytes, kind: TransferKind
    ) -> None:
        if self._is_ending:
            return
        match action.kind:
            case FaultKind.REFUSE | FaultKind.SERVER_BUSY:
                self._refuse(action.error(), delivery, kind)
            case FaultKind.NO_ANSWER | FaultKind.DROP_CONNECTION:
                if action.is_after:
                    self._send_unanswered(payload, kind)
                if action.kind is FaultKind.DROP_CONNECTION:
                    self._end(self._faults.drop)
            case FaultKind.DETACH:
                self._end(lambda: self._link.end(action.error()))
            case _:
                self._end(self._faults.expire_tokens)

    def _refuse(self, error: BrokerError, delivery: Delivery, kind: TransferKind) -> None:
        if kind.transaction_id is not None:
            connection = self._link.connection
            self._submit(SetRollbackOnly(kind.transaction_id, connection, error))
        if kind.settled:
            self._link.settle_presettled([delivery])  # the client does not learn of it
        else:
            self._link.refuse(delivery, error)

    def _end(self, end: Callable[[], None]) -> None:
        """Ends the link or the connection when the transfers before are answered."""
        self._is_ending = True
        after_answers(self._submit, self._link, end)

    def _send_unanswered(self, payload: bytes, kind: TransferKind) -> None:
        link, transaction_id = self._link, kind.transaction_id
        messages = self._sources.message_ids.identify(self._read(payload, kind))
        if kind.batch and messages:
            size = len(payload)
            self._submit(SendBatch(link, messages, None, transaction_id, size, link.connection))
        elif messages:
            self._submit(Send(link, messages, [None], transaction_id, link.connection))

    def _read(self, payload: bytes, kind: TransferKind) -> list[Message]:
        """Returns the messages of a transfer. None if it cannot be decoded: it is refused later."""
        real_ms = self._sources.real_ms
        try:
            if kind.batch:
                return read_batch(payload, real_ms, self._batch_max_messages).messages
            return [read_message(payload, real_ms)]
        except (UndecodableMessage, MessageSizeExceeded):
            return []
