"""The transaction coordinator link: declare and discharge.

Holding and running what belongs to a transaction is the core's; here is the wire form. Where tokens
are asked for, any token will do: what is done in a transaction asks for its claims. The Java SDK declares
before it puts its first token (its coordinator link is the one it does not authorize) and waits for the
answer. So such a declare is answered, and the transaction begins once there is a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.commands import Declare, Detach, Discharge
from broker.core.contract.effects import Effect, Reply
from broker.core.contract.errors import BrokerError, MessageSizeExceeded, NotImplementedHere
from protocol.amqp.engine.outcomes import ACCEPTED, Declared
from protocol.codec import VALUE, Described, DescribedType, code_of, decode, sections_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from protocol.amqp.engine.engine import Delivery, EngineLink, TransferKind
    from protocol.amqp.links.link_context import LinkContext

COORDINATOR_CREDIT = 100


class TransactionRequest(NamedTuple):
    """A declare or discharge."""

    delivery: Delivery
    settled: bool
    """The client takes no outcome."""


class CoordinatorLink:
    """A link on which the client declares and discharges transactions."""

    def __init__(
        self,
        context: LinkContext,
        link: EngineLink,
        submit_later: Callable[[Declare], bool],
        authorize: Callable[[], None],
        *,
        rejects: bool = True,
    ) -> None:
        self._context = context
        self._engine = self.connection = context.engine
        self._link = link
        self._submit = context.submit
        self._submit_later = submit_later
        self._touch = context.touch
        self._authorize = authorize
        """Raises unless the client has a token."""
        self._rejects = rejects
        """Whether the client understands that a request is rejected (AMQP 1.0, section 4.5.4)."""

    def attach(self, max_message_size_bytes: int) -> None:
        """Let the client begin."""
        self._link.max_message_size_bytes = max_message_size_bytes
        self._engine.attach(
            self._link, max_message_size_bytes=max_message_size_bytes, credit=COORDINATOR_CREDIT
        )

    def on_transfers(
        self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind
    ) -> None:
        """Declare or discharge; the answer is the delivery's outcome."""
        for delivery, payload in zip(deliveries, payloads, strict=True):
            asked = TransactionRequest(delivery, kind.settled)
            try:
                command = self._command(asked, payload)
                if not (isinstance(command, Declare) and self._promise(delivery)):
                    self._authorize()
                    self._submit(command)
            except BrokerError as error:
                self._refuse(asked, error)
        self._engine.grant(self._link, len(deliveries))
        self._touch()

    def on_oversize(
        self, delivery: Delivery, size_bytes: int, settled: bool, beginning: bytes
    ) -> None:
        """Nothing a coordinator understands is large."""
        del beginning
        self._refuse(TransactionRequest(delivery, settled), self._too_large(size_bytes))
        self._engine.grant(self._link, 1)
        self._touch()

    def _too_large(self, size_bytes: int) -> MessageSizeExceeded:
        return MessageSizeExceeded(
            f"The received message (delivery-id:0, size:{size_bytes} bytes) exceeds the limit "
            f"({self._link.max_message_size_bytes} bytes) currently allowed on the link."
        )

    def on_detach(self) -> None:
        """Whatever was declared here and not discharged is rolled back."""
        self._submit(Detach([self]))

    def receive(self, effect: Effect) -> None:
        """Answer a declare or discharge."""
        if isinstance(effect, Reply) and isinstance(effect.request, TransactionRequest):
            deliveries = [effect.request.delivery]
            if effect.error is not None:
                self._refuse(effect.request, effect.error)
            elif isinstance(effect.value, bytes):
                self._engine.settle(self._link, deliveries, Declared(effect.value))
            else:
                self._engine.settle(self._link, deliveries, ACCEPTED)
            self._touch()

    def _promise(self, delivery: Delivery) -> bool:
        """Answer a declare that comes before a token, or before the key that selects a namespace:
        the transaction begins then, and in the namespace that is selected."""
        transaction_id = self._context.sources.new_uuid().bytes
        promised = self._submit_later(Declare(self, None, transaction_id, self._engine))
        if promised:
            self._engine.settle(self._link, [delivery], Declared(transaction_id))
        return promised

    def _command(self, asked: TransactionRequest, payload: bytes) -> Command:
        if len(payload) > self._link.max_message_size_bytes:
            raise self._too_large(len(payload))
        request = None
        for code, start, _ in sections_of(payload):
            if code == VALUE:
                request, _ = decode(payload, start)
                break
        if isinstance(request, Described):
            fields = request.value if isinstance(request.value, list) else []
            requested = code_of(request.descriptor)
            if requested == DescribedType.DECLARE:
                return Declare(self, asked, None, self._engine)
            if requested == DescribedType.DISCHARGE and fields:
                transaction_id = fields[0]
                if isinstance(transaction_id, bytes):
                    fail = len(fields) > 1 and bool(fields[1])
                    return Discharge(self, asked, transaction_id, fail, self._engine)
        raise NotImplementedHere("A coordinator takes declare and discharge, and nothing else.")

    def _refuse(self, asked: TransactionRequest, error: BrokerError) -> None:
        """Reject a request. Who sent it settled, or cannot be told so, gets the error with the end
        of the link."""
        refusal = self._context.refuse(error, operation="transaction")
        if asked.settled or not self._rejects:
            self._engine.detach(self._link, refusal)
            self.on_detach()
        else:
            self._engine.settle_refused(self._link, [asked.delivery], refusal)
