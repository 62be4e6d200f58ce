"""What fault rules do to the messages that a client receives on a link, and to their settlements."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.core.contract.commands import ControlRequest, SetRollbackOnly, Settle
from broker.core.contract.control_operations import ExpireLocks
from broker.core.contract.effects import CreditNeeded, Deliver, Drained, messages_as_delivered
from broker.core.contract.message import Contents
from broker.core.contract.settlement_values import ABANDON, RELEASE
from protocol.amqp.engine.outcomes import ACCEPTED, Accepted, Received, Transactional
from protocol.amqp.faults.after_answers import after_answers
from protocol.amqp.faults.ordered_work import OrderedWork
from protocol.amqp.outcome_mapping import settlement_of
from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.fault_rule import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect
    from broker.core.contract.errors import BrokerError
    from broker.core.contract.message import Message
    from protocol.amqp.engine.interface import Delivery
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.faults.connection_faults import ConnectionFaults
    from protocol.faults.fault_rule import FaultAction, FaultRule

_IN_ORDER = (Deliver, Drained, CreditNeeded)
"""Effects that must not overtake a delivery. Answers to settlements may."""


class FaultyReceiver(Protocol):
    """The link of a client that receives."""

    path: str
    session_id: str | None
    credit_offset: int

    @property
    def connection(self) -> object: ...

    def receive(self, effect: Effect) -> None: ...
    def apply_effect(self, effect: Effect) -> None: ...
    def process_outcomes(
        self, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> None: ...
    def on_flow(self) -> None: ...
    def token_of(self, delivery: Delivery) -> bytes | None: ...
    def forget_token(self, delivery: Delivery) -> None: ...
    def refuse_settlement(
        self, delivery: Delivery, error: BrokerError, *, settled: bool
    ) -> None: ...
    def settle(self, delivery: Delivery, outcome: Outcome | None) -> None: ...
    def end(self, error: BrokerError) -> None: ...


class ReceivingFaults:
    """The faults of one receiving link. Each message is one operation, also where several come together."""

    def __init__(
        self,
        link: FaultyReceiver,
        faults: ConnectionFaults,
        submit: Callable[[Command], None],
        *,
        presettled: bool,
    ) -> None:
        self._link = link
        self._faults = faults
        self._submit = submit
        self._presettled = presettled
        self._deliveries = OrderedWork(faults.later)
        self._settlements = OrderedWork(faults.later)
        self._is_ending = False
        """The link or its connection is about to end. Nothing more is delivered or settled."""

    def clear(self) -> None:
        """Drops what is delayed, because the link has ended."""
        self._deliveries.clear()
        self._settlements.clear()

    # --- deliveries ----------------------------------------------------------------------------

    def take_effect(self, effect: Effect) -> bool:
        """Applies an effect, if a fault concerns it or is to come before it. Returns False otherwise."""
        if isinstance(effect, Deliver):
            return self._take_delivery(effect)
        if self._deliveries.is_waiting and isinstance(effect, _IN_ORDER):
            self._deliveries.add(partial(self._link.apply_effect, effect))
            return True
        return False

    def _take_delivery(self, effect: Deliver) -> bool:
        if self._is_ending:
            self._return(effect.tokens)
            return True
        path = self._link.path
        settle_rules = [
            rule
            for rule in self._faults.rules((Operation.SETTLE,), path)
            if rule.matches is not None
        ]
        rules = [
            rule for rule in self._faults.rules((Operation.DELIVER,), path) if self._can_act(rule)
        ]
        if not (rules or settle_rules or self._deliveries.is_waiting):
            return False
        messages = messages_as_delivered(effect)
        passed = 0
        for position, (message, token) in enumerate(zip(messages, effect.tokens, strict=True)):
            if token is not None:
                for rule in settle_rules:
                    rule.remember(message, token)
            action = self._decide(rules, message)
            if action is None:
                continue
            self._pass(_part(effect, passed, position))
            passed = position + 1
            one = _part(effect, position, position + 1)
            if action.kind is FaultKind.DELAY:
                self._pass(one, action.seconds)
            else:
                self._deliveries.add(partial(self._act_on_delivery, action, one))
        self._pass(_part(effect, passed, len(messages)))
        return True

    def _can_act(self, rule: FaultRule) -> bool:
        if rule.action.kind is FaultKind.LOSE_LOCK:
            return not self._presettled
        return rule.action.kind is not FaultKind.CLOSE_SESSION or self._link.session_id is not None

    def _decide(self, rules: list[FaultRule], message: Message) -> FaultAction | None:
        faults = self._faults.of_namespace
        is_second = faults is not None and faults.is_second_delivery(
            self._link.path, message.sequence_number
        )

        def fits(rule: FaultRule) -> bool:
            if is_second and rule.action.kind is FaultKind.DELIVER_TWICE:
                return False
            return rule.fits((message,))

        return decide(rules, fits)

    def _pass(self, effect: Deliver, delay_s: float = 0.0) -> None:
        """Delivers messages as if there was no rule."""

        def deliver() -> None:
            if self._is_ending:
                self._return(effect.tokens)
            else:
                self._link.apply_effect(effect)

        if effect.tokens:
            self._deliveries.add(deliver, delay_s)

    def _act_on_delivery(self, action: FaultAction, effect: Deliver) -> None:
        if self._is_ending:
            self._return(effect.tokens)
            return
        link = self._link
        match action.kind:
            case FaultKind.NO_ANSWER:
                link.credit_offset += 1  # the client still waits for a message
                link.on_flow()
            case FaultKind.DETACH:
                self._is_ending = True
                self._return(effect.tokens)
                link.end(action.error())
            case FaultKind.DROP_CONNECTION:
                self._is_ending = True
                if action.is_after:
                    link.apply_effect(effect)
                self._faults.drop()
            case FaultKind.EXPIRE_TOKEN:
                self._is_ending = True
                self._return(effect.tokens)
                self._faults.expire_tokens()
            case FaultKind.LOSE_LOCK:
                link.apply_effect(effect)
                self._expire([token for token in effect.tokens if token is not None])
            case FaultKind.CLOSE_SESSION:
                link.apply_effect(effect)
                self._expire_session()
            case _:
                self._deliver_twice(effect)

    def _deliver_twice(self, effect: Deliver) -> None:
        """With a lock, the message comes again after it was completed: see `_complete_for_now`. Without, it comes twice
        at once, or with the next credit."""
        token = effect.tokens[0]
        faults = self._faults.of_namespace
        if token is None:
            self._link.credit_offset -= 1
            self._link.apply_effect(effect)
        elif faults is not None:
            faults.deliver_again(token, effect.messages[0].sequence_number)
        self._link.apply_effect(effect)

    def _return(self, tokens: Sequence[bytes | None]) -> None:
        """Returns messages to the queue that were not delivered. In receive-and-delete they are gone."""
        locked = [token for token in tokens if token is not None]
        if locked:
            self._submit(Settle(self._link, locked, [None] * len(locked), RELEASE))

    def _expire(self, tokens: Sequence[bytes]) -> None:
        operation = ExpireLocks(self._link.path, None, None, tokens)
        self._submit(ControlRequest(self._link, None, operation))

    def _expire_session(self) -> None:
        operation = ExpireLocks(self._link.path, None, self._link.session_id)
        self._submit(ControlRequest(self._link, None, operation))

    # --- settlements ---------------------------------------------------------------------------

    def take_outcomes(
        self, deliveries: list[Delivery], outcome: Outcome | None, settled: bool
    ) -> bool:
        """Processes outcomes, if a fault concerns some of them or is to come before them. Returns False otherwise."""
        if self._is_ending:
            return True
        final = outcome.outcome if isinstance(outcome, Transactional) else outcome
        if isinstance(final, Received) and not settled:
            return False
        faults = self._faults.of_namespace
        rules = [
            rule
            for rule in self._faults.rules((Operation.SETTLE,), self._link.path)
            if self._can_act(rule)
        ]
        twice = faults.twice if faults is not None and isinstance(outcome, Accepted) else {}
        if not (rules or twice or self._settlements.is_waiting):
            return False
        passed = 0
        for position, delivery in enumerate(deliveries):
            token = self._link.token_of(delivery)
            if token is None:
                continue
            action = decide(rules, lambda rule, token=token: rule.fits_delivery((token,)))  # type: ignore[misc]
            if action is None and token not in twice:
                continue
            self._pass_outcomes(deliveries[passed:position], outcome, settled)
            passed = position + 1
            if action is None:
                work = partial(self._complete_for_now, delivery, token, settled=settled)
                self._settlements.add(work)
            elif action.kind is FaultKind.DELAY:
                self._pass_outcomes([delivery], outcome, settled, action.seconds)
            else:
                work = partial(self._act_on_outcome, action, delivery, outcome, settled=settled)
                self._settlements.add(work)
        self._pass_outcomes(deliveries[passed:], outcome, settled)
        return True

    def _pass_outcomes(
        self,
        deliveries: list[Delivery],
        outcome: Outcome | None,
        settled: bool,
        delay_s: float = 0.0,
    ) -> None:
        """Settles as if there was no rule."""

        def process() -> None:
            if not self._is_ending:
                self._link.process_outcomes(deliveries, outcome, settled)

        if deliveries:
            self._settlements.add(process, delay_s)

    def _act_on_outcome(
        self, action: FaultAction, delivery: Delivery, outcome: Outcome | None, *, settled: bool
    ) -> None:
        link = self._link
        token = link.token_of(delivery)
        if self._is_ending or token is None:
            return
        match action.kind:
            case FaultKind.REFUSE | FaultKind.SERVER_BUSY:
                error = action.error()
                if isinstance(outcome, Transactional):
                    transaction_id = outcome.transaction_id
                    self._submit(SetRollbackOnly(transaction_id, link.connection, error))
                link.refuse_settlement(delivery, error, settled=settled)
            case FaultKind.NO_ANSWER | FaultKind.DROP_CONNECTION:
                if action.is_after:
                    self._settle_unanswered(delivery, token, outcome)
                if action.kind is FaultKind.DROP_CONNECTION:
                    self._end(self._faults.drop)
            case FaultKind.DETACH:
                self._end(lambda: link.end(action.error()))
            case FaultKind.EXPIRE_TOKEN:
                self._end(self._faults.expire_tokens)
            case FaultKind.LOSE_LOCK:
                self._expire([token])
                link.process_outcomes([delivery], outcome, settled)
            case _:
                self._expire_session()
                link.process_outcomes([delivery], outcome, settled)

    def _settle_unanswered(self, delivery: Delivery, token: bytes, outcome: Outcome | None) -> None:
        transaction_id = None
        if isinstance(outcome, Transactional):
            transaction_id, outcome = outcome.transaction_id, outcome.outcome
        self._link.forget_token(delivery)
        settlement = settlement_of(outcome)
        connection = self._link.connection
        self._submit(Settle(self._link, [token], [None], settlement, transaction_id, connection))

    def _complete_for_now(self, delivery: Delivery, token: bytes, *, settled: bool) -> None:
        """Answers that a message is completed, and returns it to the queue, as if the completion had been lost."""
        faults = self._faults.of_namespace
        if faults is not None:
            faults.completed(self._link.path, token)
        self._link.forget_token(delivery)
        self._submit(Settle(self._link, [token], [None], ABANDON))
        if settled:
            self._link.settle(delivery, None)
        else:
            after_answers(self._submit, self._link, lambda: self._link.settle(delivery, ACCEPTED))

    def _end(self, end: Callable[[], None]) -> None:
        """Ends the link or the connection when the settlements before are answered."""
        self._is_ending = True
        after_answers(self._submit, self._link, end)


def _part(effect: Deliver, begin: int, end: int) -> Deliver:
    """Returns a delivery of some of the messages."""
    contents = effect.contents
    if contents is not None:
        chosen = slice(begin, end)
        contents = Contents(
            contents.delivery_counts[chosen],
            contents.changes[chosen],
            contents.bodies[chosen],
            contents.annotations[chosen],
        )
    return effect._replace(
        messages=effect.messages[begin:end], tokens=effect.tokens[begin:end], contents=contents
    )
