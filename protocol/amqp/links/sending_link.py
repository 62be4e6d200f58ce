"""A link on which a client sends to a queue or topic.

It is the peer of the commands that it submits, and turns the effects that it receives into engine calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.core.contract.commands import Detach, Send, SendBatch, SetRollbackOnly
from broker.core.contract.effects import (
    AttachRefused,
    Detached,
    Effect,
    Reply,
    SendAccepted,
    SenderAttached,
    SendRefused,
    TransactionRefused,
)
from broker.core.contract.errors import (
    MessageSizeExceeded,
    UndecodableMessage,
)
from protocol.amqp.engine.outcomes import ACCEPTED, Outcome, Transactional
from protocol.amqp.links.via_entity import record_via_entity
from protocol.codec import (
    ULong,
    encode,
    read_batch,
    read_message,
    read_messages,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.errors import BrokerError
    from broker.core.contract.message import Message
    from protocol.amqp.engine.engine import Delivery, EngineLink, TransferKind
    from protocol.amqp.faults.sending_faults import SendingFaults
    from protocol.amqp.links.link_context import LinkContext


class SendingLink:
    """A link on which the client sends to a queue or topic."""

    def __init__(
        self,
        context: LinkContext,
        link: EngineLink,
        path: str,
    ) -> None:
        self._context = context
        self.client = context.client
        self._engine = self.connection = context.engine
        self._link = link
        self.path = path
        self._submit = context.submit
        self._touch = context.touch
        self._real_ms = context.sources.real_ms
        self._identify = context.sources.message_ids.identify
        self._credit_window = context.limits.sender_credit_window
        self._batch_max_bytes = context.limits.batch_max_bytes
        self._batch_max_messages = context.limits.batch_max_messages
        self._answered = 0
        self._transactions: dict[Delivery, bytes] = {}
        self._max_message_size_bytes = 0
        self._fault_registry = context.faults.registry
        self._faults: SendingFaults | None = None
        """None before there is a fault rule."""

    # --- from the client -----------------------------------------------------------------------

    def on_transfers(
        self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind
    ) -> None:
        """Submits messages that arrived, or does to them what fault rules say."""
        if self._fault_registry.is_used and self._injected.take(deliveries, payloads, kind):
            return
        self.process_transfers(deliveries, payloads, kind)

    @property
    def _injected(self) -> SendingFaults:
        if self._faults is None:
            from protocol.amqp.faults.sending_faults import SendingFaults

            context = self._context
            self._faults = SendingFaults(
                self, context.faults, self._submit, context.sources, self._batch_max_messages
            )
        return self._faults

    def process_transfers(
        self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind
    ) -> None:
        """Submits messages that arrived. Refuses those that cannot be decoded."""
        if kind.batch:
            for delivery, payload in zip(deliveries, payloads, strict=True):
                self._on_batch(delivery, payload, kind)
            return
        handles: list[Any] = deliveries
        try:
            messages = read_messages(payloads, self._real_ms)
        except UndecodableMessage:
            messages, handles = self._readable(deliveries, payloads, kind)
        if kind.settled:
            handles = [None] * len(messages)
            self.settle_presettled(deliveries)
        elif kind.transaction_id is not None:
            self._transactions.update(dict.fromkeys(handles, kind.transaction_id))
        if messages:
            self._submit(
                Send(self, self._identify(messages), handles, kind.transaction_id, self._engine)
            )

    def on_oversize(
        self, delivery: Delivery, size_bytes: int, settled: bool, beginning: bytes
    ) -> None:
        """Refuses a message that is over the link's limit."""
        del beginning
        error = MessageSizeExceeded(
            f"The received message (delivery-id:0, size:{size_bytes} bytes) exceeds the limit "
            f"({self._max_message_size_bytes} bytes) currently allowed on the link."
        )
        if settled:
            # Only logged: the client has settled the message.
            self._context.refuse(error, entity=self.path, operation="send")
            self.settle_presettled([delivery])
        else:
            self.refuse(delivery, error)

    def on_detach(self) -> None:
        """Detaches the link from the core."""
        self.clear()
        self._submit(Detach([self]))

    def clear(self) -> None:
        """Forgets what fault rules delay, because the link has ended."""
        if self._faults is not None:
            self._faults.clear()

    def end(self, error: BrokerError) -> None:
        """Detaches the link with an error."""
        refusal = self._context.refuse(error, entity=self.path, operation="send")
        self._engine.detach(self._link, refusal)
        self.on_detach()

    def _on_batch(self, delivery: Delivery, payload: bytes, kind: TransferKind) -> None:
        try:
            messages, size_bytes = read_batch(payload, self._real_ms, self._batch_max_messages)
        except (UndecodableMessage, MessageSizeExceeded) as error:
            self._fail_transaction(kind, error)
            if kind.settled:
                self._context.refuse(error, entity=self.path, operation="send")
                self.settle_presettled([delivery])
            else:
                self.refuse(delivery, error)
            return
        handle = delivery
        if kind.settled:
            handle = None
            self.settle_presettled([delivery])
        elif kind.transaction_id is not None:
            self._transactions[delivery] = kind.transaction_id
        self._submit(
            SendBatch(
                self,
                self._identify(messages),
                handle,
                kind.transaction_id,
                size_bytes,
                self._engine,
            )
        )

    def _readable(
        self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind
    ) -> tuple[list[Message], list[Delivery]]:
        """Returns the messages that can be decoded, with their deliveries. Refuses the others, one by one."""
        messages = []
        handles = []
        for delivery, payload in zip(deliveries, payloads, strict=True):
            try:
                messages.append(read_message(payload, self._real_ms))
                handles.append(delivery)
            except UndecodableMessage as error:
                self._fail_transaction(kind, error)
                if kind.settled:
                    self._context.refuse(error, entity=self.path, operation="send")
                else:
                    self.refuse(delivery, error)
        return messages, handles

    def _fail_transaction(self, kind: TransferKind, error: BrokerError) -> None:
        """Fails the transaction of a message that is refused, so that the rest of it is not committed."""
        if kind.transaction_id is not None:
            self._submit(SetRollbackOnly(kind.transaction_id, self._engine, error))

    # --- from the core -------------------------------------------------------------------------

    def receive(self, effect: Effect) -> None:
        """Applies an effect of the core."""
        _SENDER_EFFECTS[type(effect)](self, effect)
        self._touch()

    def _attached(self, effect: SenderAttached) -> None:
        record_via_entity(self._link.session, self.path)
        self._max_message_size_bytes = effect.max_message_size_bytes
        self._link.max_message_size_bytes = effect.max_message_size_bytes
        batch_max_bytes = min(self._batch_max_bytes, effect.max_message_size_bytes)
        self._engine.attach(
            self._link,
            max_message_size_bytes=effect.max_message_size_bytes,
            credit=self._credit_window,
            # SDKs fill batches up to this size; those that do not know this property, up to the message size.
            properties={"com.microsoft:max-message-batch-size": encode(ULong(batch_max_bytes))},
        )

    def _refused(self, effect: AttachRefused) -> None:
        self._context.refuse_link(self._link, effect.error, self.path, "attach sender")

    def _detached(self, effect: Detached) -> None:
        error = self._context.refuse(
            effect.error, entity=self.path, operation="sender ended", host=self._link.host
        )
        self._engine.detach(self._link, error)

    def _accepted(self, effect: SendAccepted) -> None:
        handles = effect.handles
        if self._transactions:
            for handle in handles:
                transaction_id = self._transactions.pop(handle, None)
                outcome: Outcome = ACCEPTED
                if transaction_id is not None:
                    outcome = Transactional(transaction_id, ACCEPTED)
                self._engine.settle(self._link, [handle], outcome)
        else:
            self._engine.settle(self._link, handles, ACCEPTED)
        self._replenish(len(handles))

    def _send_refused(self, effect: SendRefused) -> None:
        if effect.handle is None:
            self._context.refuse(
                effect.error, entity=self.path, operation="send"
            )  # only logged: the client settled the message
            return
        self._transactions.pop(effect.handle, None)
        self.refuse(effect.handle, effect.error)

    def _transaction_refused(self, effect: TransactionRefused) -> None:
        """Detaches the link, because the client sent settled messages in an unknown transaction. There is no other
        way to report that they are lost."""
        self.end(effect.error)

    def _replied(self, effect: Reply) -> None:
        """Continues with a fault. Links send no other requests."""
        if effect.request is not None:
            effect.request.answered()  # type: ignore[attr-defined]  # `AfterAnswers`

    def refuse(self, delivery: Delivery, error: BrokerError) -> None:
        """Rejects a message with an error."""
        refusal = self._context.refuse(
            error, entity=self.path, operation="send", host=self._link.host
        )
        self._engine.settle_refused(self._link, [delivery], refusal)
        self._replenish(1)

    def settle_presettled(self, deliveries: Sequence[Delivery]) -> None:
        """Forgets messages that the client has settled as it sent them."""
        self._engine.settle(self._link, deliveries, None)
        self._replenish(len(deliveries))

    def _replenish(self, count: int) -> None:
        """Returns credit as sends are answered, so that the messages in flight of a client are bounded."""
        self._answered += count
        if self._answered * 2 >= self._credit_window:
            self._engine.grant(self._link, self._answered)
            self._answered = 0


_SENDER_EFFECTS: dict[type, Callable[[SendingLink, Any], None]] = {
    SenderAttached: SendingLink._attached,
    AttachRefused: SendingLink._refused,
    Detached: SendingLink._detached,
    SendAccepted: SendingLink._accepted,
    SendRefused: SendingLink._send_refused,
    TransactionRefused: SendingLink._transaction_refused,
    Reply: SendingLink._replied,
}
