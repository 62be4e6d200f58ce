"""The transaction coordinator link: declare and discharge.

The core executes transactions. In strict mode any valid token is sufficient here, because each operation in a
transaction requires its own claims. The Java SDK declares before it puts its first token (it does not authorize its
coordinator link) and waits for the answer. So such a declare is answered, and the transaction begins when there is a
token.
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
    """The client settled the request and gets no outcome."""


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
        self.client = context.client
        self._engine = self.connection = context.engine
        self._link = link
        self._submit = context.submit
        self._submit_later = submit_later
        self._touch = context.touch
        self._authorize = authorize
        """Raises `Unauthorized` unless the client has a token."""
        self._rejects = rejects
        """Whether the client supports the outcome `rejected` (AMQP 1.0, section 4.5.4)."""

    def attach(self, max_message_size_bytes: int) -> None:
        """Grants the link."""
        self._link.max_message_size_bytes = max_message_size_bytes
        self._engine.attach(
            self._link, max_message_size_bytes=max_message_size_bytes, credit=COORDINATOR_CREDIT
        )

    def on_transfers(
        self, deliveries: list[Delivery], payloads: list[bytes], kind: TransferKind
    ) -> None:
        """Submits declares and discharges. The answer is the outcome of the delivery."""
        for delivery, payload in zip(deliveries, payloads, strict=True):
            asked = TransactionRequest(delivery, kind.settled)
            try:
                command = self._command(asked, payload)
                if not (isinstance(command, Declare) and self._answer_early(delivery)):
                    self._authorize()
                    self._submit(command)
            except BrokerError as error:
                self._refuse(asked, error)
        self._engine.grant(self._link, len(deliveries))
        self._touch()

    def on_oversize(
        self, delivery: Delivery, size_bytes: int, settled: bool, beginning: bytes
    ) -> None:
        """Refuses a request that is over the link's limit."""
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
        """Detaches the link from the core, which rolls back its transactions."""
        self._submit(Detach([self]))

    def receive(self, effect: Effect) -> None:
        """Sends the outcome of a declare or discharge."""
        if isinstance(effect, Reply) and isinstance(effect.request, TransactionRequest):
            deliveries = [effect.request.delivery]
            if effect.error is not None:
                self._refuse(effect.request, effect.error)
            elif isinstance(effect.value, bytes):
                self._engine.settle(self._link, deliveries, Declared(effect.value))
            else:
                self._engine.settle(self._link, deliveries, ACCEPTED)
            self._touch()

    def _answer_early(self, delivery: Delivery) -> bool:
        """Answers a declare before there is a token, or before a key selects the namespace. The transaction begins
        later, in that namespace. Returns False if the declare is to be submitted now."""
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
        raise NotImplementedHere("The coordinator supports declare and discharge only.")

    def _refuse(self, asked: TransactionRequest, error: BrokerError) -> None:
        """Rejects a request. If the client settled it, or does not support `rejected`, the link is detached with the
        error."""
        refusal = self._context.refuse(error, operation="transaction")
        if asked.settled or not self._rejects:
            self._engine.detach(self._link, refusal)
            self.on_detach()
        else:
            self._engine.settle_refused(self._link, [asked.delivery], refusal)
