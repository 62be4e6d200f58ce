"""Links, sends, settlements and transactions in the naive model.

Decides who may send and receive where, and the order of refusals. Answers are plain tuples.
`dispatch.py` delivers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.settlement_values import SettlementKind
from config.model.definitions import SubscriptionDefinition, TopicDefinition
from tests.model.model_entities import (
    DEAD,
    MAIN,
    NO_RECEIVING,
    NO_SENDING,
    TRANSFER_DEAD,
    ModelEntity,
    ModelMessage,
    ModelReceiver,
    Refusal,
    model_message_from,
)
from tests.model.model_queues import ModelQueues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract import commands as ask
    from broker.core.contract.effects import Peer
    from broker.core.contract.settlement_values import Settlement
    from config.model.limits import Limits

DEAD_SUFFIX = "/$DeadLetterQueue"
TRANSFER_DEAD_SUFFIX = "/$Transfer/$DeadLetterQueue"


@dataclass(eq=False)
class ModelTransaction:
    """An open transaction: steps that are checked, and those that then do it."""

    owner: Peer
    connection: object
    until_ms: int
    steps: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)
    tokens: set[bytes] = field(default_factory=set)
    operations: int = 0
    failed: bool = False
    forgotten: list[Callable[[], list[ModelMessage]]] = field(default_factory=list)
    """By step: what receivers settled on their side and will not settle again."""
    said: dict[bytes, tuple[Peer, Settlement]] = field(default_factory=dict)
    """By token: who settles it, and how."""
    handles: dict[bytes, tuple[Peer, object, SettlementKind]] = field(default_factory=dict)
    """By token: who is told when it is committed."""


class Route(NamedTuple):
    """Where a sender's messages go."""

    entity: ModelEntity
    onward: str | None = None
    """The entity they go on to at once, if `entity` is only on their way."""


class ModelOperations(ModelQueues):
    """The commands that come with every message."""

    def __init__(self, limits: Limits, *, hold_locks: bool = False) -> None:
        super().__init__(limits)
        self.hold_locks = hold_locks
        self.senders: dict[Peer, Route] = {}
        self.transactions: dict[bytes, ModelTransaction] = {}
        self.declared: list[tuple[object, ModelTransaction]] = []
        """Transactions the broker has not named yet."""

    # --- paths ------------------------------------------------------------------------------

    def find(self, path: str) -> tuple[ModelEntity, int]:
        """Entity and sub-queue of a path."""
        sub = MAIN
        for suffix, number in ((TRANSFER_DEAD_SUFFIX, TRANSFER_DEAD), (DEAD_SUFFIX, DEAD)):
            if sub == MAIN and path.endswith(suffix):
                path, sub = path.removesuffix(suffix), number
        if path not in self.entities:
            raise Refusal("EntityNotFound")
        return self.entities[path], sub

    def find_to_send(self, path: str) -> ModelEntity:
        entity, sub = self.find(path)
        if sub != MAIN or isinstance(entity.definition, SubscriptionDefinition):
            raise Refusal("NotAllowed")
        return entity

    def find_to_receive(self, path: str) -> tuple[ModelEntity, int]:
        entity, sub = self.find(path)
        if entity.is_topic and sub == MAIN:
            raise Refusal("NotAllowed")
        return entity, sub

    def find_sessions(self, path: str) -> ModelEntity:
        entity, sub = self.find_to_receive(path)
        if not entity.has_sessions(sub):
            raise Refusal("NotAllowed")
        return entity

    @staticmethod
    def check_sending(entity: ModelEntity) -> None:
        if entity.definition.status in NO_SENDING:
            raise Refusal("EntityDisabled")

    @staticmethod
    def check_receiving(entity: ModelEntity) -> None:
        if entity.definition.status in NO_RECEIVING:
            raise Refusal("EntityDisabled")

    # --- links ------------------------------------------------------------------------------

    def on_AttachSender(self, command: ask.AttachSender) -> None:
        try:
            entity = self.find_to_send(command.path)
            self.check_sending(entity)
            if command.via is not None:
                self.find_to_send(command.via)
        except Refusal as refusal:
            self.answers.append(("refused", command.peer, refusal.error))
        else:
            self.senders[command.peer] = Route(entity, command.via)
            self.answers.append(("sender attached", command.peer))

    def on_AttachReceiver(self, command: ask.AttachReceiver) -> None:
        try:
            receiver = self._attach(command)
        except Refusal as refusal:
            self.answers.append(("refused", command.peer, refusal.error))
        else:
            self.receivers.append(receiver)

    def _attach(self, command: ask.AttachReceiver) -> ModelReceiver:
        entity, sub = self.find_to_receive(command.path)
        self.check_receiving(entity)
        if entity.has_sessions(sub) != (command.session is not None):
            raise Refusal("NotAllowed")
        if sub == MAIN and getattr(entity.definition, "forward_to", None) is not None:
            raise Refusal("NotAllowed")
        receiver = ModelReceiver(command.peer, entity, sub, command.mode)
        if command.session is None:
            self.answers.append(("receiver attached", command.peer, None, 0))
        elif command.session.session_id is None:
            receiver.waits_until_ms = self.now_ms + command.session.timeout_ms
        elif self.holder(entity, command.session.session_id) is not None:
            raise Refusal("SessionCannotBeLocked")
        else:
            self.give_session(receiver, command.session.session_id)
        return receiver

    def give_session(self, receiver: ModelReceiver, session_id: str) -> None:
        """A receiver has a session from now on."""
        assert not isinstance(receiver.entity.definition, TopicDefinition)
        receiver.waits_until_ms = 0
        receiver.session_id = session_id = self.name(receiver.entity, session_id)
        receiver.session_until_ms = self.now_ms + receiver.entity.definition.lock_duration_ms
        self.answers.append(
            ("receiver attached", receiver.peer, session_id, receiver.session_until_ms)
        )

    def on_Detach(self, command: ask.Detach) -> None:
        for peer in command.peers:
            for transaction in [b for b in self.transactions.values() if b.owner is peer]:
                self._roll_back(transaction)
            self.senders.pop(peer, None)
        for peer in command.peers:
            for receiver in self.receivers:
                if receiver.peer is peer:
                    self.stop_receiving(receiver)
                    if command.connection_lost and not self.hold_locks:
                        self.lose_locks(self._locked_by(receiver), failed=True)

    def _locked_by(self, receiver: ModelReceiver) -> list[ModelMessage]:
        return [i for i in self.items if i.lock is not None and i.lock.by is receiver]

    def on_Credit(self, command: ask.Credit) -> None:
        for receiver in self.receivers:
            if receiver.peer is command.peer and receiver.attached:
                receiver.limit = command.limit
                receiver.full = False
                receiver.draining = command.drain

    # --- sending ----------------------------------------------------------------------------

    def _route(self, peer: Peer) -> Route:
        if peer not in self.senders:
            raise Refusal("NotAllowed")
        return self.senders[peer]

    def _destination(self, route: Route) -> ModelEntity:
        """Where messages are to be stored, if they may be sent that way now."""
        if self.entities.get(route.entity.path) is not route.entity:
            raise Refusal("EntityNotFound")
        self.check_sending(route.entity)
        return route.entity if route.onward is None else self.find(route.onward)[0]

    def on_Send(self, command: ask.Send) -> None:
        taken: list[ModelMessage] = []
        handles = list(command.handles)
        try:
            route = self._route(command.peer)
            destination = self._destination(route)
            handles = []
            for message, handle in zip(command.messages, command.handles, strict=True):
                item = model_message_from(message, destination)
                error = self.refusal(destination, item, sum(i.size for i in taken))
                if error is not None:
                    self.answers.append(("send refused", command.peer, handle, error))
                    self._mark_failed(command.transaction_id)
                else:
                    taken.append(item)
                    handles.append(handle)
            self._take(route, taken, command.transaction_id)
        except Refusal as refusal:
            self._send_refused(command.peer, handles, refusal.error)
            self._mark_failed(command.transaction_id)
        else:
            self._accepted(command.peer, handles)

    def on_SendBatch(self, command: ask.SendBatch) -> None:
        try:
            route = self._route(command.peer)
            items = [model_message_from(message, route.entity) for message in command.messages]
            self._check_all(route, items)
            self._take(route, items, command.transaction_id)
        except Refusal as refusal:
            self._send_refused(command.peer, [command.handle], refusal.error)
            self._mark_failed(command.transaction_id)
        else:
            self._accepted(command.peer, [command.handle])

    def _send_refused(self, peer: Peer, handles: Sequence[object], error: str) -> None:
        for handle in handles:
            self.answers.append(("send refused", peer, handle, error))
        if error == "TransactionUnknown" and None in handles:
            self.answers.append(("transaction refused", peer, error))

    def _accepted(self, peer: Peer, handles: Sequence[object]) -> None:
        for handle in handles:
            if handle is not None:
                self.answers.append(("accepted", peer, handle))

    def _check_all(self, route: Route, items: Sequence[ModelMessage]) -> None:
        destination = self._destination(route)
        before_bytes = 0
        for item in items:
            error = self.refusal(destination, item, before_bytes)
            if error is not None:
                raise Refusal(error)
            before_bytes += item.size

    def _take(
        self, route: Route, items: Sequence[ModelMessage], transaction_id: bytes | None
    ) -> None:
        if transaction_id is None:
            self._run_send(route, items)
            return
        self._hold(
            transaction_id,
            len(items),
            lambda: self._check_all(route, items),
            lambda: self._run_send(route, items),
        )

    def _run_send(self, route: Route, items: Sequence[ModelMessage]) -> None:
        destination = self._destination(route)
        if route.onward is not None:
            for item in items:
                item.first_number = self._void(route.entity)
            if destination.definition.status in NO_SENDING:
                for item in items:
                    self.dead_letter_transfer(route.entity, item, "EntityDisabled")
                return
        # Of what is sent to a topic together, the scheduled is numbered first: a number that
        # holds only until then says nothing about order.
        later = [item for item in items if item.scheduled_for_ms > self.now_ms]
        first = later if destination.is_topic else []
        for item in [*first, *[item for item in items if item not in first]]:
            self.arrive(destination, item)

    @staticmethod
    def _void(entity: ModelEntity) -> int:
        """Returns a sequence number that belongs to no message: for a duplicate, or a message that
        is sent via another entity."""
        entity.last_number[MAIN] += 1
        return entity.last_number[MAIN]

    # --- transactions -----------------------------------------------------------------------

    def _hold(
        self,
        transaction_id: bytes,
        operations: int,
        check: Callable[[], None],
        run: Callable[[], None],
    ) -> ModelTransaction:
        transaction = self.transactions.get(transaction_id)
        if transaction is None:
            raise Refusal("TransactionUnknown")
        if transaction.operations + operations > self.limits.transaction_max_operations:
            raise Refusal("QuotaExceeded")
        transaction.operations += operations
        transaction.steps.append((check, run))
        return transaction

    def _mark_failed(self, transaction_id: bytes | None) -> None:
        """Something was refused under a transaction, which can then only be rolled back."""
        if transaction_id in self.transactions:
            self.transactions[transaction_id].failed = True

    def on_Declare(self, command: ask.Declare) -> object:
        opened = [*self.transactions.values(), *(transaction for _, transaction in self.declared)]
        beside = [
            transaction for transaction in opened if transaction.connection is command.connection
        ]
        if len(beside) >= self.limits.transactions_per_connection_max:
            raise Refusal("QuotaExceeded")
        until_ms = self.now_ms + self.limits.transaction_timeout_ms
        transaction = ModelTransaction(command.peer, command.connection, until_ms)
        self.declared.append((command.request, transaction))
        return "any id"

    def on_Discharge(self, command: ask.Discharge) -> None:
        transaction = self.transactions.get(command.transaction_id)
        if transaction is None:
            raise Refusal("TransactionUnknown")
        if command.fail:
            self._roll_back(transaction)
            return
        try:
            if transaction.failed:
                raise Refusal("whatever was refused under it")
            for check, _ in transaction.steps:
                check()
        except Refusal:
            self._roll_back(transaction)
            raise Refusal("TransactionRolledBack") from None
        del self.transactions[command.transaction_id]
        for _, run in transaction.steps:
            run()
        self.answers += [("settled", *told) for told in transaction.handles.values()]

    def _roll_back(self, transaction: ModelTransaction) -> None:
        self.transactions = {k: b for k, b in self.transactions.items() if b is not transaction}
        for items in transaction.forgotten:
            self.lose_locks(items(), failed=True)

    # --- settling ---------------------------------------------------------------------------

    def _check_settlement(self, sub: int, settlement: Settlement) -> None:
        if settlement.kind is SettlementKind.DEAD_LETTER and sub != MAIN:
            raise Refusal("NotAllowed")

    def on_Settle(self, command: ask.Settle) -> None:
        receiver = next(one for one in self.receivers if one.peer is command.peer)
        entity, sub = receiver.entity, receiver.sub
        live: dict[bytes, object] = {}
        for token, handle in zip(command.tokens, command.handles, strict=True):
            if token in live or self.locked(entity, sub, token) is None:
                self._settle_refused(command, handle, "MessageLockLost")
            else:
                live[token] = handle
        if not live:
            return
        try:
            self._check_settlement(sub, command.settlement)
            if command.transaction_id is not None:
                self._settle_later(command, receiver, live)
                return
            self._settle(entity, sub, list(live), command.settlement, None)
        except Refusal as refusal:
            for handle in live.values():
                self._settle_refused(command, handle, refusal.error)
            if refusal.error == "TransactionUnknown" and None in live.values():
                self.answers.append(("transaction refused", command.peer, refusal.error))
            return
        self._settled("settled", command, live)

    def _settled(self, word: str, command: ask.Settle, handles: dict[bytes, object]) -> None:
        for handle in handles.values():
            if handle is not None:
                self.answers.append((word, command.peer, handle, command.settlement.kind))

    def _settle_later(
        self, command: ask.Settle, receiver: ModelReceiver, handles: dict[bytes, object]
    ) -> None:
        """Settles deliveries in a transaction. The same settlement again has no effect."""
        assert command.transaction_id is not None
        transaction = self.transactions.get(command.transaction_id)
        if transaction is None:
            raise Refusal("TransactionUnknown")
        word = command.peer, command.settlement
        if any(transaction.said.get(token, word) != word for token in handles):
            raise Refusal("MessageLockLost")
        new = {
            token: handle for token, handle in handles.items() if token not in transaction.tokens
        }
        if any(token not in transaction.said for token in handles if token not in new):
            raise Refusal("MessageLockLost")  # by token, through management
        if new:
            entity, sub = receiver.entity, receiver.sub
            self._settle(entity, sub, list(new), command.settlement, command.transaction_id)
            transaction.forgotten.append(
                lambda: [
                    item
                    for token, handle in new.items()
                    if handle is None and (item := self.locked(entity, sub, token))
                ]
            )
        for token, handle in handles.items():
            transaction.said[token] = word
            if handle is None:
                transaction.handles.pop(token, None)
            elif token in new:
                transaction.handles[token] = command.peer, handle, command.settlement.kind
        self._settled("settlement held", command, handles)

    def _settle_refused(self, command: ask.Settle, handle: object, error: str) -> None:
        if handle is not None:
            self.answers.append(("settle refused", command.peer, handle, error))
        self._mark_failed(command.transaction_id)

    def on_SettleByToken(self, command: ask.SettleByToken) -> None:
        entity, sub = self.find_to_receive(command.path)
        self._check_settlement(sub, command.settlement)
        tokens = list(dict.fromkeys(command.tokens))
        if any(self.locked(entity, sub, token) is None for token in tokens):
            session_id = command.session_id
            in_session = session_id is not None and entity.has_sessions(sub)
            if in_session and self.holder(entity, str(session_id)) is None:
                raise Refusal("SessionLockLost")
            raise Refusal("MessageLockLost")
        self._settle(entity, sub, tokens, command.settlement, command.transaction_id)

    def _settle(
        self,
        entity: ModelEntity,
        sub: int,
        tokens: Sequence[bytes],
        settlement: Settlement,
        transaction_id: bytes | None,
    ) -> None:
        def items() -> list[ModelMessage]:
            found = [self.locked(entity, sub, token) for token in tokens]
            if None in found:
                raise Refusal("MessageLockLost")
            return [item for item in found if item is not None]

        def check() -> None:
            items()

        def run() -> None:
            self.settle(items(), settlement)

        if transaction_id is None:
            run()
            return
        transaction = self.transactions.get(transaction_id)
        if transaction is not None and transaction.tokens & set(tokens):
            raise Refusal("MessageLockLost")
        self._hold(transaction_id, len(tokens), check, run).tokens.update(tokens)

    def on_RenewLocks(self, command: ask.RenewLocks) -> list[int]:
        entity, sub = self.find_to_receive(command.path)
        items = [self.locked(entity, sub, token) for token in command.tokens]
        if None in items:
            raise Refusal("MessageLockLost")
        ends = []
        for item in items:
            assert item is not None
            assert item.lock is not None
            if item.lock.in_session:
                ends.append(item.lock.until_ms)
            else:
                assert not isinstance(entity.definition, TopicDefinition)
                item.lock.until_ms = self.now_ms + entity.definition.lock_duration_ms
                ends.append(item.lock.until_ms)
        return ends
