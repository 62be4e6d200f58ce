"""What each command must do, told by the naive world: who is answered what, and what changes.

Owns refusals and their order, transactions and the passing of time. Answers are plain tuples;
nothing is delivered here: see `dispatch.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from broker.core.commands import ReceiveMode, SettlementKind
from config.entities import SubscriptionDefinition, TopicDefinition
from tests.model.naive import (
    ACTIVE,
    DEAD,
    DEFERRED,
    MAIN,
    NO_RECEIVING,
    NO_SENDING,
    SCHEDULED,
    TRANSFER_DEAD,
    Item,
    Listener,
    Lock,
    Place,
    Refusal,
    World,
    item_from,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from broker.core import commands as ask
    from broker.core.commands import Peer, Settlement
    from config.entities import EntityDefinition
    from config.limits import Limits

DEAD_SUFFIX = "/$DeadLetterQueue"
TRANSFER_DEAD_SUFFIX = "/$Transfer/$DeadLetterQueue"

REPLY_MAX_BYTES = 1024 * 1024
"""What a peek shows must fit into one answer, unless it is a single message."""

# Kinds of events. At one moment they come in this order.
SESSION_LOCK, MESSAGE_LOCK, DUE, OLD, WAIT, TRANSACTION = range(6)


@dataclass(eq=False)
class Bundle:
    """An open transaction: steps that are checked, and those that then do it."""

    owner: Peer
    until_ms: int
    steps: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)
    tokens: set[bytes] = field(default_factory=set)
    operations: int = 0
    doomed: bool = False
    forgotten: list[Callable[[], list[Item]]] = field(default_factory=list)
    """By step: what receivers settled on their side and will not settle again."""


class Route(NamedTuple):
    """Where a sender's messages go."""

    place: Place
    onward: str | None = None
    """The entity they go on to at once, if `place` is only on their way."""


class Model(World):
    """The naive broker: `apply` commands, then let `dispatch.py` hand out messages."""

    def __init__(self, limits: Limits, *, hold_locks: bool = False) -> None:
        super().__init__(limits)
        self.hold_locks = hold_locks
        self.senders: dict[Peer, Route] = {}
        self.bundles: dict[bytes, Bundle] = {}
        self.declared: list[tuple[object, Bundle]] = []
        """Transactions the broker has not named yet."""

    def declare(self, entities: Mapping[str, EntityDefinition]) -> None:
        """Begin with these entities."""
        self.places.update({path: Place(path, one) for path, one in entities.items()})

    def apply(self, command: Any, now_ms: int) -> None:
        """What falls due by then, then what the command asks."""
        self.pass_time(now_ms)
        handler: Callable[[Any], object] = getattr(self, f"on_{type(command).__name__}")
        if not hasattr(command, "request"):
            handler(command)
            return
        try:
            value = handler(command)
        except Refusal as refusal:
            self.answers.append(("reply", command.request, None, refusal.error))
            self._doom(getattr(command, "transaction_id", None))
        else:
            self.answers.append(("reply", command.request, value, None))

    # --- time -------------------------------------------------------------------------------

    def pass_time(self, now_ms: int) -> None:
        """Everything that is due happens, the earliest first and each at its own time."""
        while due := [event for event in self.events() if event[0] <= now_ms]:
            self.now_ms, kind = min(event[:2] for event in due)
            subjects = [subject for at, of, subject in due if (at, of) == (self.now_ms, kind)]
            self._happen(kind, subjects)
        self.now_ms = now_ms

    def events(self) -> Iterator[tuple[int, int, Any]]:
        """All that will fall due: when, of which kind, to whom."""
        for listener in self.listeners:
            if listener.attached and listener.session_id is not None:
                yield listener.session_until_ms, SESSION_LOCK, listener
            if listener.attached and listener.waits_until_ms:
                yield listener.waits_until_ms, WAIT, listener
        for item in self.items:
            if item.lock is not None and not item.lock.in_session:
                yield item.lock.until_ms, MESSAGE_LOCK, item
            if item.state == SCHEDULED:
                yield item.scheduled_for_ms, DUE, item
            if item.state == ACTIVE and item.lock is None and item.expires_ms:
                yield item.expires_ms, OLD, item
        for bundle in self.bundles.values():
            yield bundle.until_ms, TRANSACTION, bundle

    def _happen(self, kind: int, subjects: list[Any]) -> None:
        if kind == SESSION_LOCK:
            for listener in sorted(subjects, key=lambda listener: listener.session_id):
                self.answers.append(("detached", listener.peer, "SessionLockLost"))
                self.end_session(listener, failed=True)
                listener.attached = False
        elif kind == MESSAGE_LOCK:
            self.lose_locks(subjects, failed=True)
        elif kind == DUE:
            for item in sorted(subjects, key=lambda item: item.number):
                self.items.remove(item)
                item.first_number = 0
                item.state = ACTIVE
                (self.publish if item.place.is_topic else self.enqueue)(item.place, item)
        elif kind == OLD:
            self.expire(sorted(subjects, key=lambda item: item.number))
        elif kind == WAIT:
            for listener in subjects:
                self.answers.append(("refused", listener.peer, "OperationTimeout"))
                self.stop_listening(listener)
        else:
            for bundle in subjects:
                self._roll_back(bundle)

    # --- paths ------------------------------------------------------------------------------

    def find(self, path: str) -> tuple[Place, int]:
        """Entity and sub-queue of a path."""
        sub = MAIN
        for suffix, number in ((TRANSFER_DEAD_SUFFIX, TRANSFER_DEAD), (DEAD_SUFFIX, DEAD)):
            if sub == MAIN and path.endswith(suffix):
                path, sub = path.removesuffix(suffix), number
        if path not in self.places:
            raise Refusal("EntityNotFound")
        return self.places[path], sub

    def find_to_send(self, path: str) -> Place:
        place, sub = self.find(path)
        if sub != MAIN or isinstance(place.definition, SubscriptionDefinition):
            raise Refusal("NotAllowed")
        return place

    def find_to_receive(self, path: str) -> tuple[Place, int]:
        place, sub = self.find(path)
        if place.is_topic and sub == MAIN:
            raise Refusal("NotAllowed")
        return place, sub

    def find_sessions(self, path: str) -> Place:
        place, sub = self.find_to_receive(path)
        if not place.has_sessions(sub):
            raise Refusal("NotAllowed")
        return place

    @staticmethod
    def check_sending(place: Place) -> None:
        if place.definition.status in NO_SENDING:
            raise Refusal("EntityDisabled")

    @staticmethod
    def check_receiving(place: Place) -> None:
        if place.definition.status in NO_RECEIVING:
            raise Refusal("EntityDisabled")

    # --- links ------------------------------------------------------------------------------

    def on_AttachSender(self, command: ask.AttachSender) -> None:
        try:
            place = self.find_to_send(command.path)
            self.check_sending(place)
            if command.via is not None:
                self.find_to_send(command.via)
        except Refusal as refusal:
            self.answers.append(("refused", command.peer, refusal.error))
        else:
            self.senders[command.peer] = Route(place, command.via)
            self.answers.append(("sender attached", command.peer))

    def on_AttachReceiver(self, command: ask.AttachReceiver) -> None:
        try:
            listener = self._attach(command)
        except Refusal as refusal:
            self.answers.append(("refused", command.peer, refusal.error))
        else:
            self.listeners.append(listener)

    def _attach(self, command: ask.AttachReceiver) -> Listener:
        place, sub = self.find_to_receive(command.path)
        self.check_receiving(place)
        if place.has_sessions(sub) != (command.session is not None):
            raise Refusal("NotAllowed")
        if sub == MAIN and getattr(place.definition, "forward_to", None) is not None:
            raise Refusal("NotAllowed")
        listener = Listener(command.peer, place, sub, command.mode)
        if command.session is None:
            self.answers.append(("receiver attached", command.peer, None, 0))
        elif command.session.session_id is None:
            listener.waits_until_ms = self.now_ms + command.session.timeout_ms
        elif self.holder(place, command.session.session_id) is not None:
            raise Refusal("SessionCannotBeLocked")
        else:
            self.give_session(listener, command.session.session_id)
        return listener

    def give_session(self, listener: Listener, session_id: str) -> None:
        """A receiver has a session from now on."""
        assert not isinstance(listener.place.definition, TopicDefinition)
        listener.waits_until_ms = 0
        listener.session_id = session_id
        listener.session_until_ms = self.now_ms + listener.place.definition.lock_duration_ms
        self.answers.append(
            ("receiver attached", listener.peer, session_id, listener.session_until_ms)
        )

    def on_Detach(self, command: ask.Detach) -> None:
        for peer in command.peers:
            for bundle in [b for b in self.bundles.values() if b.owner is peer]:
                self._roll_back(bundle)
            self.senders.pop(peer, None)
        for peer in command.peers:
            for listener in self.listeners:
                if listener.peer is peer:
                    self.stop_listening(listener)
                    if command.connection_lost and not self.hold_locks:
                        self.lose_locks(self._locked_by(listener), failed=True)

    def _locked_by(self, listener: Listener) -> list[Item]:
        return [i for i in self.items if i.lock is not None and i.lock.by is listener]

    def on_Credit(self, command: ask.Credit) -> None:
        for listener in self.listeners:
            if listener.peer is command.peer and listener.attached:
                listener.limit = command.limit
                listener.full = False
                listener.draining = command.drain

    # --- sending ----------------------------------------------------------------------------

    def _route(self, peer: Peer) -> Route:
        if peer not in self.senders:
            raise Refusal("NotAllowed")
        return self.senders[peer]

    def _destination(self, route: Route) -> Place:
        """Where messages are to be stored, if they may be sent that way now."""
        if self.places.get(route.place.path) is not route.place:
            raise Refusal("EntityNotFound")
        self.check_sending(route.place)
        return route.place if route.onward is None else self.find(route.onward)[0]

    def on_Send(self, command: ask.Send) -> None:
        taken: list[Item] = []
        handles = list(command.handles)
        try:
            route = self._route(command.peer)
            destination = self._destination(route)
            handles = []
            for message, handle in zip(command.messages, command.handles, strict=True):
                item = item_from(message, destination)
                error = self.refusal(destination, item, sum(i.size for i in taken))
                if error is not None:
                    self.answers.append(("send refused", command.peer, handle, error))
                    self._doom(command.transaction_id)
                else:
                    taken.append(item)
                    handles.append(handle)
            self._take(route, taken, command.transaction_id)
        except Refusal as refusal:
            for handle in handles:
                self.answers.append(("send refused", command.peer, handle, refusal.error))
            self._doom(command.transaction_id)
        else:
            self._accepted(command.peer, handles)

    def on_SendBatch(self, command: ask.SendBatch) -> None:
        try:
            route = self._route(command.peer)
            items = [item_from(message, route.place) for message in command.messages]
            self._check_all(route, items)
            self._take(route, items, command.transaction_id)
        except Refusal as refusal:
            self.answers.append(("send refused", command.peer, command.handle, refusal.error))
            self._doom(command.transaction_id)
        else:
            self._accepted(command.peer, [command.handle])

    def _accepted(self, peer: Peer, handles: Sequence[object]) -> None:
        for handle in handles:
            if handle is not None:
                self.answers.append(("accepted", peer, handle))

    def _check_all(self, route: Route, items: Sequence[Item]) -> None:
        destination = self._destination(route)
        before_bytes = 0
        for item in items:
            error = self.refusal(destination, item, before_bytes)
            if error is not None:
                raise Refusal(error)
            before_bytes += item.size

    def _take(self, route: Route, items: Sequence[Item], transaction_id: bytes | None) -> None:
        if transaction_id is None:
            self._run_send(route, items)
            return
        self._hold(
            transaction_id,
            len(items),
            lambda: self._check_all(route, items),
            lambda: self._run_send(route, items),
        )

    def _run_send(self, route: Route, items: Sequence[Item]) -> None:
        destination = self._destination(route)
        if route.onward is not None:
            for item in items:
                item.first_number = self._void(route.place)
            if destination.definition.status in NO_SENDING:
                for item in items:
                    self.bury_transfer(route.place, item, "EntityDisabled")
                return
        # Of what is sent to a topic together, the scheduled is numbered first: a number that
        # holds only until then says nothing about order.
        later = [item for item in items if item.scheduled_for_ms > self.now_ms]
        first = later if destination.is_topic else []
        for item in [*first, *[item for item in items if item not in first]]:
            self.arrive(destination, item)

    # --- transactions -----------------------------------------------------------------------

    def _hold(
        self,
        transaction_id: bytes,
        operations: int,
        check: Callable[[], None],
        run: Callable[[], None],
    ) -> Bundle:
        bundle = self.bundles.get(transaction_id)
        if bundle is None:
            raise Refusal("TransactionUnknown")
        if bundle.operations + operations > self.limits.transaction_max_operations:
            raise Refusal("QuotaExceeded")
        bundle.operations += operations
        bundle.steps.append((check, run))
        return bundle

    def _doom(self, transaction_id: bytes | None) -> None:
        """Something was refused under a transaction, which can then only be rolled back."""
        if transaction_id in self.bundles:
            self.bundles[transaction_id].doomed = True

    def on_Declare(self, command: ask.Declare) -> object:
        owned = [b for b in self.bundles.values() if b.owner is command.peer]
        owned += [b for _, b in self.declared if b.owner is command.peer]
        if len(owned) >= self.limits.transactions_per_connection_max:
            raise Refusal("QuotaExceeded")
        bundle = Bundle(command.peer, self.now_ms + self.limits.transaction_timeout_ms)
        self.declared.append((command.request, bundle))
        return "any id"

    def on_Discharge(self, command: ask.Discharge) -> None:
        bundle = self.bundles.get(command.transaction_id)
        if bundle is None:
            raise Refusal("TransactionUnknown")
        if command.fail:
            self._roll_back(bundle)
            return
        try:
            if bundle.doomed:
                raise Refusal("whatever was refused under it")
            for check, _ in bundle.steps:
                check()
        except Refusal:
            self._roll_back(bundle)
            raise Refusal("TransactionRolledBack") from None
        del self.bundles[command.transaction_id]
        for _, run in bundle.steps:
            run()

    def _roll_back(self, bundle: Bundle) -> None:
        self.bundles = {k: b for k, b in self.bundles.items() if b is not bundle}
        for items in bundle.forgotten:
            self.lose_locks(items(), failed=True)

    # --- settling ---------------------------------------------------------------------------

    def _check_settlement(self, sub: int, settlement: Settlement) -> None:
        if settlement.kind is SettlementKind.DEAD_LETTER and sub != MAIN:
            raise Refusal("NotAllowed")

    def on_Settle(self, command: ask.Settle) -> None:
        listener = next(one for one in self.listeners if one.peer is command.peer)
        place, sub = listener.place, listener.sub
        live: dict[bytes, object] = {}
        for token, handle in zip(command.tokens, command.handles, strict=True):
            if token in live or self.locked(place, sub, token) is None:
                self._settle_refused(command, handle, "MessageLockLost")
            else:
                live[token] = handle
        if not live:
            return
        try:
            self._check_settlement(sub, command.settlement)
            self._settle(place, sub, list(live), command.settlement, command.transaction_id)
            if command.transaction_id is not None:
                forgotten = [token for token, handle in live.items() if handle is None]
                self.bundles[command.transaction_id].forgotten.append(
                    lambda: [
                        item for token in forgotten if (item := self.locked(place, sub, token))
                    ]
                )
        except Refusal as refusal:
            for handle in live.values():
                self._settle_refused(command, handle, refusal.error)
            return
        for handle in live.values():
            if handle is not None:
                self.answers.append(("settled", command.peer, handle, command.settlement.kind))

    def _settle_refused(self, command: ask.Settle, handle: object, error: str) -> None:
        if handle is not None:
            self.answers.append(("settle refused", command.peer, handle, error))
        self._doom(command.transaction_id)

    def on_SettleByToken(self, command: ask.SettleByToken) -> None:
        place, sub = self.find_to_receive(command.path)
        self._check_settlement(sub, command.settlement)
        tokens = list(dict.fromkeys(command.tokens))
        if any(self.locked(place, sub, token) is None for token in tokens):
            # Under a session the lock that covers the message is the session's.
            raise Refusal("MessageLockLost" if command.session_id is None else "SessionLockLost")
        self._settle(place, sub, tokens, command.settlement, command.transaction_id)

    def _settle(
        self,
        place: Place,
        sub: int,
        tokens: Sequence[bytes],
        settlement: Settlement,
        transaction_id: bytes | None,
    ) -> None:
        def items() -> list[Item]:
            found = [self.locked(place, sub, token) for token in tokens]
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
        bundle = self.bundles.get(transaction_id)
        if bundle is not None and bundle.tokens & set(tokens):
            raise Refusal("MessageLockLost")
        self._hold(transaction_id, len(tokens), check, run).tokens.update(tokens)

    def on_RenewLocks(self, command: ask.RenewLocks) -> list[int]:
        place, sub = self.find_to_receive(command.path)
        items = [self.locked(place, sub, token) for token in command.tokens]
        if None in items:
            raise Refusal("MessageLockLost")
        ends = []
        for item in items:
            assert item is not None
            assert item.lock is not None
            if item.lock.in_session:
                assert item.session_id is not None
                holder = self.holder(place, item.session_id)
                assert holder is not None
                ends.append(holder.session_until_ms)
            else:
                assert not isinstance(place.definition, TopicDefinition)
                item.lock.until_ms = self.now_ms + place.definition.lock_duration_ms
                ends.append(item.lock.until_ms)
        return ends

    # --- looking and fetching ---------------------------------------------------------------

    def on_Peek(self, command: ask.Peek) -> list[tuple[object, ...]]:
        found = [
            item
            for item in self.content(*self.find(command.path))
            if item.number >= command.from_sequence_number
            and command.session_id in (None, item.session_id)
        ][: command.count]
        while len(found) > 1 and sum(item.size for item in found) > REPLY_MAX_BYTES:
            found.pop()
        return [shown(item) for item in found]

    def on_ReceiveDeferred(self, command: ask.ReceiveDeferred) -> list[tuple[object, ...]]:
        place, sub = self.find_to_receive(command.path)
        self.check_receiving(place)
        if len(command.sequence_numbers) > self.limits.receive_deferred_max_messages:
            raise Refusal("ArgumentOutOfRange")
        items = []
        for number in dict.fromkeys(command.sequence_numbers):
            found = [i for i in self.content(place, sub) if i.number == number]
            if not found or found[0].state != DEFERRED or found[0].lock is not None:
                raise Refusal("MessageNotFound")
            if command.session_id not in (None, found[0].session_id):
                raise Refusal("MessageNotFound")
            items += found
        holder = self._holder_of_all(place, sub, items)
        if expired := [item for item in items if self.is_expired(item)]:
            self.expire(expired)
            raise Refusal("MessageNotFound")
        assert not isinstance(place.definition, TopicDefinition)
        if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
            self.delete(items)
        elif holder is not None:
            for item in items:
                item.lock = Lock(None, holder.session_until_ms, holder, in_session=True)
        else:
            for item in items:
                item.lock = Lock(None, self.now_ms + place.definition.lock_duration_ms, None)
        return [shown(item) for item in items]

    def _holder_of_all(self, place: Place, sub: int, items: Sequence[Item]) -> Listener | None:
        """The holder of the one session all these messages are of; None where there are none."""
        if not place.has_sessions(sub):
            return None
        session_id = items[0].session_id
        if any(item.session_id != session_id for item in items):
            raise Refusal("MessageNotFound")
        assert session_id is not None
        holder = self.holder(place, session_id)
        if holder is None:
            raise Refusal("SessionLockLost")
        return holder

    def on_DeleteMessages(self, command: ask.DeleteMessages) -> int:
        place, sub = self.find_to_receive(command.path)
        if not 0 < command.count <= self.limits.delete_max_messages:
            raise Refusal("ArgumentOutOfRange")
        chosen = [
            item
            for item in self.ready(place, sub)
            if item.enqueued_ms < command.before_ms
            and command.session_id in (None, item.session_id)
        ][: command.count]
        self.delete(chosen)
        return len(chosen)

    # --- scheduling -------------------------------------------------------------------------

    def on_Schedule(self, command: ask.Schedule) -> list[int]:
        place = self.find_to_send(command.path)
        route = Route(place)
        items = [item_from(message, place) for message in command.messages]
        self._check_all(route, items)
        if command.transaction_id is None:
            self._run_send(route, items)
            return [item.number or item.first_number or self._void(place) for item in items]
        numbers: list[int] = []

        def run() -> None:
            self._run_send(route, items)
            for item, number in zip(items, numbers, strict=True):
                if item.state == SCHEDULED and item in self.items:
                    item.number = item.first_number = number

        self._hold(command.transaction_id, len(items), lambda: self._check_all(route, items), run)
        for _ in items:
            place.last_number[MAIN] += 1
            numbers.append(place.last_number[MAIN])
        return numbers

    @staticmethod
    def _void(place: Place) -> int:
        """A number under which nothing is found: for what is repeated, or only on its way."""
        place.last_number[MAIN] += 1
        return place.last_number[MAIN]

    def on_CancelScheduled(self, command: ask.CancelScheduled) -> None:
        place = self.find_to_send(command.path)
        items = [
            item
            for number in dict.fromkeys(command.sequence_numbers)
            for item in self.content(place, MAIN)
            if item.number == number and item.state == SCHEDULED
        ]
        if len(items) < len(set(command.sequence_numbers)):
            raise Refusal("MessageNotFound")
        self.delete(items)

    # --- sessions ---------------------------------------------------------------------------

    def _held(self, path: str, session_id: str) -> tuple[Place, Listener]:
        place = self.find_sessions(path)
        holder = self.holder(place, session_id)
        if holder is None:
            raise Refusal("SessionLockLost")
        return place, holder

    def on_RenewSessionLock(self, command: ask.RenewSessionLock) -> int:
        place, holder = self._held(command.path, command.session_id)
        assert not isinstance(place.definition, TopicDefinition)
        holder.session_until_ms = self.now_ms + place.definition.lock_duration_ms
        return holder.session_until_ms

    def on_SetSessionState(self, command: ask.SetSessionState) -> None:
        place, _ = self._held(command.path, command.session_id)
        if command.state is None:
            place.states.pop(command.session_id, None)
            return
        before, _ = place.states.get(command.session_id, (b"", 0))
        grows_by = len(command.state) - len(before)
        if grows_by > 0 and self.is_full(place, grows_by):
            raise Refusal("QuotaExceeded")
        place.states[command.session_id] = command.state, self.now_ms

    def on_GetSessionState(self, command: ask.GetSessionState) -> bytes | None:
        place, _ = self._held(command.path, command.session_id)
        return place.states.get(command.session_id, (None, 0))[0]

    def on_ListSessions(self, command: ask.ListSessions) -> list[str]:
        place = self.find_sessions(command.path)
        since_ms = command.updated_since_ms
        if since_ms is None:
            ids = {item.session_id for item in self.content(place, MAIN)} | set(place.states)
        else:
            ids = {one for one, (_, set_ms) in place.states.items() if set_ms > since_ms}
        known = sorted(one for one in ids if one is not None)
        return known[command.skip : command.skip + command.top]

    # --- entities ---------------------------------------------------------------------------

    def on_CreateEntity(self, command: ask.CreateEntity) -> object:
        if command.path in self.places:
            raise Refusal("EntityAlreadyExists")
        topic = command.path.partition("/Subscriptions/")[0]
        if topic != command.path and topic not in self.places:
            raise Refusal("EntityNotFound")
        self.places[command.path] = Place(command.path, command.definition)
        return self.view(self.places[command.path])

    def on_UpdateEntity(self, command: ask.UpdateEntity) -> object:
        place, _ = self.find(command.path)
        before = place.definition
        place.definition = command.definition
        if isinstance(before, SubscriptionDefinition):
            assert isinstance(command.definition, SubscriptionDefinition)
            place.definition = replace(command.definition, rules=before.rules)
        if place.definition.status in NO_RECEIVING:
            self.detach_all(place, "EntityDisabled", (MAIN, DEAD, TRANSFER_DEAD))
        if getattr(place.definition, "forward_to", None) is not None:
            self.detach_all(place, "NotAllowed", (MAIN,))
        return self.view(place)

    def on_DeleteEntity(self, command: ask.DeleteEntity) -> None:
        place, _ = self.find(command.path)
        for gone in (*self.subscriptions(place), place) if place.is_topic else (place,):
            self.detach_all(gone, "EntityNotFound", (MAIN, DEAD, TRANSFER_DEAD))
            for peer, route in self.senders.items():
                if route.place is gone:
                    self.answers.append(("detached", peer, "EntityNotFound"))
            self.delete([item for item in self.items if item.place is gone])
            del self.places[gone.path]

    def on_AddRule(self, command: ask.AddRule) -> None:
        place = self._find_rules(command.path)
        definition = place.definition
        assert isinstance(definition, SubscriptionDefinition)
        if command.rule.name in [rule.name for rule in definition.rules]:
            raise Refusal("EntityAlreadyExists")
        place.definition = replace(definition, rules=(*definition.rules, command.rule))

    def on_RemoveRule(self, command: ask.RemoveRule) -> None:
        place = self._find_rules(command.path)
        definition = place.definition
        assert isinstance(definition, SubscriptionDefinition)
        rules = tuple(rule for rule in definition.rules if rule.name != command.name)
        if len(rules) == len(definition.rules):
            raise Refusal("EntityNotFound")
        place.definition = replace(definition, rules=rules)

    def _find_rules(self, path: str) -> Place:
        place, _ = self.find(path)
        if not isinstance(place.definition, SubscriptionDefinition):
            raise Refusal("NotAllowed")
        return place

    def on_GetEntity(self, command: ask.GetEntity) -> object:
        return self.view(self.find(command.path)[0])

    def view(self, place: Place) -> tuple[object, ...]:
        """Path, definition and counts."""
        states = [item.state for item in self.content(place, MAIN)]
        return (
            place.path,
            undated(place.definition),
            states.count(ACTIVE),
            states.count(DEFERRED),
            states.count(SCHEDULED),
            len(self.content(place, DEAD)),
            len(self.content(place, TRANSFER_DEAD)),
            len([item for item in self.content(place, MAIN) if item.lock is not None]),
            self.used_bytes(place),
        )

    def on_Tick(self, command: ask.Tick) -> None:
        """Time has passed already."""

    # --- a new beginning --------------------------------------------------------------------

    def restart(self) -> None:
        """The broker starts again from its store: links, locks and transactions are gone."""
        self.senders.clear()
        self.listeners.clear()
        self.bundles.clear()
        self.declared.clear()
        self.answers.clear()
        for item in self.items:
            item.lock = None


def undated(definition: EntityDefinition) -> EntityDefinition:
    """A definition without the times when its rules were made."""
    if not isinstance(definition, SubscriptionDefinition):
        return definition
    rules = tuple(replace(rule, created_time_ms=0) for rule in definition.rules)
    return replace(definition, rules=rules)


def shown(item: Item) -> tuple[object, ...]:
    """A message as a peek shows it."""
    return (
        item.mark,
        item.number,
        item.first_number,
        item.state,
        item.count,
        item.reason,
        item.source,
        tuple(sorted(item.properties.items())),
        item.enqueued_ms,
        item.expires_ms,
    )
