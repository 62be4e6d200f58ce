"""A link on which a client receives from a queue, subscription or sub-queue.

It is the peer of the commands that it submits, and turns the effects that it receives into engine calls. Locks are
kept by the queue; this module keeps only which lock token belongs to which delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.core.contract.commands import Credit, Detach, SetRollbackOnly, Settle
from broker.core.contract.effects import (
    AttachRefused,
    CreditNeeded,
    Deliver,
    Detached,
    Drained,
    Effect,
    ReceiverAttached,
    Reply,
    Settled,
    SettlementHeld,
    SettleRefused,
    TransactionRefused,
    messages_as_delivered,
)
from broker.core.contract.errors import (
    IncompleteTransaction,
)
from protocol.addresses import is_subscription
from protocol.amqp.engine.outcomes import Outcome, Received, Transactional
from protocol.amqp.links.session_filters import SessionFilterAnswer
from protocol.amqp.links.via_entity import record_via_entity
from protocol.amqp.outcome_mapping import ANSWERS, settlement_of
from protocol.codec import (
    Long,
    delivery_tag,
    encode,
    encode_deliveries,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.errors import BrokerError
    from protocol.amqp.engine.engine import Delivery, EngineLink
    from protocol.amqp.faults.receiving_faults import ReceivingFaults
    from protocol.amqp.links.link_context import LinkContext

UNIX_EPOCH_TICKS = 621_355_968_000_000_000
TICKS_PER_MS = 10_000


class ReceivingLink:
    """A link on which the client receives from a queue, subscription or sub-queue."""

    def __init__(
        self,
        context: LinkContext,
        link: EngineLink,
        path: str,
        *,
        presettled: bool,
        session_filter: SessionFilterAnswer | None = None,
    ) -> None:
        self._context = context
        self._engine = self.connection = context.engine
        self._link = link
        self.path = path
        self.session_id: str | None = None
        """The session that it has got."""
        self.client = context.client
        self.name = link.name
        self._submit = context.submit
        self._touch = context.touch
        self._presettled = presettled
        self._from_topic = is_subscription(path)
        self._session_filter = session_filter or SessionFilterAnswer()
        self._unsettled: dict[Delivery, bytes] = {}
        """Lock tokens of the deliveries that the client may still settle."""
        self._held: dict[Delivery, bytes] = {}
        """Transaction ids of the deliveries that the client has settled provisionally, also after a rollback."""
        self._untagged = 0
        self._paused = False
        """The write buffer of the socket is full. Not a state of the link: it belongs to the connection, and changes
        while links are attached."""
        self.credit_offset = 0
        """How many more messages the core has delivered than this link has sent, because of faults."""
        self._fault_registry = context.faults.registry
        self._faults: ReceivingFaults | None = None
        """None before there is a fault rule."""

    # --- from the client -----------------------------------------------------------------------

    def on_outcomes(
        self, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> None:
        """Submits the settlement of deliveries, or does to it what fault rules say."""
        if self._fault_registry.is_used and self._injected.take_outcomes(
            deliveries, outcome, settled
        ):
            return
        self.process_outcomes(deliveries, outcome, settled)

    @property
    def _injected(self) -> ReceivingFaults:
        if self._faults is None:
            from protocol.amqp.faults.receiving_faults import ReceivingFaults

            self._faults = ReceivingFaults(
                self, self._context.faults, self._submit, presettled=self._presettled
            )
        return self._faults

    def process_outcomes(
        self, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> None:
        """Submits the settlement of deliveries."""
        transaction_id = None
        if isinstance(outcome, Transactional):
            transaction_id = outcome.transaction_id
            outcome = outcome.outcome
        if isinstance(outcome, Received) and not settled:
            return  # the state `received` is not an outcome
        if settled and transaction_id is not None and self._held:
            deliveries = self._settle_repeated(deliveries, transaction_id)
        # In a transaction the client may settle again, if it is rolled back.
        is_final = settled or transaction_id is None
        token_of = self._unsettled.pop if is_final else self._unsettled.get
        found = [token_of(delivery, None) for delivery in deliveries]
        tokens: list[bytes] = found  # type: ignore[assignment]
        known: list[Any] = deliveries
        if len(found) != 1 or found[0] is None:
            tokens = [token for token in found if token is not None]
        if len(tokens) < len(deliveries):
            known = [one for one, token in zip(deliveries, found, strict=True) if token is not None]
        if transaction_id is not None and not settled:
            self._held.update(dict.fromkeys(known, transaction_id))
        elif self._held:
            for delivery in deliveries:
                self._held.pop(delivery, None)
        if settled:
            self._engine.settle(self._link, deliveries, None)
            known = [None] * len(tokens)
        if transaction_id is not None and len(tokens) < len(deliveries):
            self._submit(SetRollbackOnly(transaction_id, self._engine, IncompleteTransaction()))
        if tokens:
            settlement = settlement_of(outcome)
            self._submit(Settle(self, tokens, known, settlement, transaction_id, self._engine))

    def _settle_repeated(self, deliveries: list[Delivery], transaction_id: bytes) -> list[Delivery]:
        """Settle the deliveries that the client asked to settle in this transaction before; return the
        others.

        A client may ask unsettled first, and settle when it has the provisional answer; that may be
        after the discharge. The second disposition changes nothing: a commit completes the message
        anyway, and after a rollback its lock stays."""
        others = []
        for delivery in deliveries:
            if self._held.get(delivery) == transaction_id:
                del self._held[delivery]
                self._unsettled.pop(delivery, None)
                self._engine.settle(self._link, [delivery], None)
            else:
                others.append(delivery)
        return others

    def on_flow(self) -> None:
        """Submits the credit, because credit, drain or the session window changed."""
        self._offer_credit(self._engine.draining(self._link))

    def on_detach(self) -> None:
        """Detaches the link from the core. Its locks stay until they expire."""
        self.clear()
        self._submit(Detach([self]))

    def clear(self) -> None:
        """Forgets its deliveries and what fault rules delay, because the link has ended."""
        self._unsettled.clear()
        self._held.clear()
        if self._faults is not None:
            self._faults.clear()

    def end(self, error: BrokerError) -> None:
        """Detaches the link with an error."""
        refusal = self._context.refuse(error, entity=self.path, operation="receive")
        self._engine.detach(self._link, refusal)
        self.on_detach()
        self._touch()

    def token_of(self, delivery: Delivery) -> bytes | None:
        """Returns the lock token of a delivery that the client may still settle."""
        return self._unsettled.get(delivery)

    def forget_token(self, delivery: Delivery) -> None:
        """Forgets the lock token of a delivery."""
        self._unsettled.pop(delivery, None)

    def settle(self, delivery: Delivery, outcome: Outcome | None) -> None:
        """Settles a delivery without the core."""
        self._engine.settle(self._link, [delivery], outcome)
        self._touch()

    def refuse_settlement(self, delivery: Delivery, error: BrokerError, *, settled: bool) -> None:
        """Answers a settlement with an error, or drops it if the client expects no answer. The lock stays."""
        refusal = self._context.refuse(error, entity=self.path, operation="settle")
        self._unsettled.pop(delivery, None)
        self._held.pop(delivery, None)
        if settled:
            self._engine.settle(self._link, [delivery], None)
        else:
            self._engine.settle_refused(self._link, [delivery], refusal)
        self._touch()

    def pause(self) -> None:
        """Withdraws the credit, because the write buffer of the socket is full."""
        self._paused = True
        self._submit(Credit(self, self._link.sent + self.credit_offset))

    def resume(self) -> None:
        """Submits the credit again."""
        self._paused = False
        """The write buffer of the socket is full. Not a state of the link: it belongs to the connection, and changes
        while links are attached."""
        self._offer_credit(self._engine.draining(self._link))

    def _offer_credit(self, drain: bool) -> None:
        engine, link = self._engine, self._link
        if self._paused or engine.queued(link):
            # Proton scans all queued deliveries at every write, so they must stay few.
            return
        total = link.sent + engine.credit(link) + self.credit_offset
        self._submit(Credit(self, total, drain))

    # --- from the core -------------------------------------------------------------------------

    def receive(self, effect: Effect) -> None:
        """Applies an effect of the core, or does to it what fault rules say."""
        if self._fault_registry.is_used and self._injected.take_effect(effect):
            return
        self.apply_effect(effect)

    def apply_effect(self, effect: Effect) -> None:
        """Applies an effect of the core."""
        _RECEIVER_EFFECTS[type(effect)](self, effect)
        self._touch()

    def _deliver(self, effect: Deliver) -> None:
        if self._link.closed:
            return  # the bodies of its messages may have been paged out
        heads, bodies = encode_deliveries(
            messages_as_delivered(effect),
            effect.tokens,
            effect.locked_until_ms,
            from_topic=self._from_topic,
        )
        tags = self._tags(effect.tokens)
        deliveries = self._engine.send(self._link, tags, heads, bodies, self._presettled)
        if not self._presettled:
            self._unsettled.update(zip(deliveries, effect.tokens, strict=False))  # type: ignore[arg-type]

    def _tags(self, tokens: Sequence[bytes | None]) -> list[bytes]:
        """Returns the delivery tags for lock tokens. In receive-and-delete there are none, and tags are
        numbers."""
        tags = [delivery_tag(token) for token in tokens if token is not None]
        if len(tags) < len(tokens):
            first = self._untagged + 1
            self._untagged += len(tokens)
            tags = [number.to_bytes(16, "big") for number in range(first, self._untagged + 1)]
        return tags

    def _drained(self, _: Drained) -> None:
        self._engine.drained(self._link)

    def _credit_needed(self, _: CreditNeeded) -> None:
        self._offer_credit(self._engine.draining(self._link))

    def _settled(self, effect: Settled) -> None:
        answer = ANSWERS[effect.settlement.kind]
        if effect.transaction_id is not None:
            # The Java SDK waits for a state of the type it sent, until the delivery is settled.
            answer = Transactional(effect.transaction_id, answer)
        self._forget(effect.handles)
        self._engine.settle(self._link, effect.handles, answer)

    def _settlement_held(self, effect: SettlementHeld) -> None:
        """Sends the provisional outcome (AMQP 1.0, section 4.4.2). SDKs wait for it, and for nothing else."""
        answer = Transactional(effect.transaction_id, ANSWERS[effect.settlement.kind])
        self._engine.update(self._link, effect.handles, answer)

    def _settle_refused(self, effect: SettleRefused) -> None:
        error = self._context.refuse(effect.error, entity=self.path, operation="settle")
        self._forget(effect.handles)
        self._engine.settle_refused(self._link, effect.handles, error)

    def _forget(self, handles: Sequence[Delivery]) -> None:
        """Forgets deliveries that waited for a transaction."""
        if self._held:
            for handle in handles:
                self._held.pop(handle, None)
                self._unsettled.pop(handle, None)

    def _replied(self, effect: Reply) -> None:
        """Continues with a fault. Links send no other requests."""
        if effect.request is not None:
            effect.request.answered()  # type: ignore[attr-defined]  # `AfterAnswers`

    def _transaction_refused(self, effect: TransactionRefused) -> None:
        """Detaches the link with the error, because the client settled deliveries in an unknown transaction and a
        settled disposition has no answer. What the client has sent meanwhile for other transactions still counts;
        otherwise they would be committed in part."""
        error = self._context.refuse(effect.error, entity=self.path, operation="settle")
        self._engine.detach(self._link, error)
        self._submit(Detach([self]))

    def _attached(self, effect: ReceiverAttached) -> None:
        record_via_entity(self._link.session, self.path)
        self.session_id = effect.session_id
        if effect.session_id is None:
            self._engine.attach(self._link)
        else:
            ticks = UNIX_EPOCH_TICKS + effect.session_locked_until_ms * TICKS_PER_MS
            self._engine.attach(
                self._link,
                properties={"com.microsoft:locked-until-utc": encode(Long(ticks))},
                filter=self._session_filter.encode(effect.session_id),
            )
        self._offer_credit(self._engine.draining(self._link))

    def _refused(self, effect: AttachRefused) -> None:
        self._context.refuse_link(self._link, effect.error, self.path, "attach receiver")

    def _detached(self, effect: Detached) -> None:
        error = self._context.refuse(
            effect.error, entity=self.path, operation="receiver ended", host=self._link.host
        )
        self._unsettled.clear()
        self._held.clear()
        # The client may just have sent a disposition for one of these, and some SDKs wait for the
        # answer even after the link is detached.
        self._engine.settle_refused(self._link, self._link.unsettled, error)
        self._engine.detach(self._link, error)


_RECEIVER_EFFECTS: dict[type, Callable[[ReceivingLink, Any], None]] = {
    ReceiverAttached: ReceivingLink._attached,
    AttachRefused: ReceivingLink._refused,
    Detached: ReceivingLink._detached,
    Deliver: ReceivingLink._deliver,
    Drained: ReceivingLink._drained,
    CreditNeeded: ReceivingLink._credit_needed,
    Settled: ReceivingLink._settled,
    SettlementHeld: ReceivingLink._settlement_held,
    SettleRefused: ReceivingLink._settle_refused,
    TransactionRefused: ReceivingLink._transaction_refused,
    Reply: ReceivingLink._replied,
}
