"""The sessions of a queue: who holds them, and who waits for one. `session_states.py` counts their states.

A session has at most one holder, and its messages are delivered only to the holder. Ids that differ
only in case name the same session, which has the id that was used first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from broker.core.contract.counting import Outcome
from broker.core.contract.effects import AttachRefused, Detached, ReceiverAttached
from broker.core.contract.errors import (
    NotAllowed,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)
from broker.core.messages.session_ids import session_key
from broker.core.queues.deadlines import Due
from broker.core.queues.packed_messages import PackedMessages, is_active, session_ids_of
from broker.core.queues.session import Session, SessionWait
from broker.core.queues.session_read_ahead import SessionReadAhead
from broker.core.queues.session_states import SessionStates
from broker.core.queues.settlement import release_locks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.commands import RequestOrigin, SessionRequest
    from broker.core.contract.message import Message
    from broker.core.contract.records import SessionStateSet
    from broker.core.contract.turn import Turn
    from broker.core.queues.dispatcher import MessageForwarder
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver

LOCK_GRACE_MS = 1_000
"""How long a session lock lasts after its announced end. Until then the holder can renew, settle
and receive, and no other receiver gets the session. The service does not detach in the same
millisecond either, and receivers that wait exactly the lock time rely on that. The JavaScript SDK's
tests expect a lost session one second after the end."""

PASSED_OVER_MAX = 10
"""How many sessions go to newer receivers before one goes to the oldest: see `Sessions.dispatch`.
"""


class Sessions:
    """All sessions of a queue. Implements `DeliverySource`."""

    requires_sessions = True

    __slots__ = (
        "_ahead",
        "_available",
        "_by_id",
        "_by_key",
        "_given",
        "_queue",
        "_states",
        "_waiting",
        "held_count",
    )

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._by_id: dict[str | None, Session] = {}
        """Sessions by id. The key type allows None only because `Message.session_id` does."""
        self._by_key: dict[str, Session] = {}
        """Sessions by `session_key` of their ids."""
        self._states = SessionStates(queue)
        self._available: OrderedDict[Session, None] = OrderedDict()
        """Sessions without a holder that have ready messages, longest available first. A session
        that its holder returns goes to the end, so that other sessions get their turn."""
        self._ahead = SessionReadAhead(self._available, queue.context.payloads)
        self._waiting: dict[Receiver, SessionWait] = {}
        """Receivers that wait for the next available session, oldest first."""
        self._given = 0
        """How many sessions have been given to waiting receivers."""
        self.held_count = 0
        """How many sessions are held."""

    def get(self, session_id: str) -> Session | None:
        """Returns the session, or None."""
        return self._by_id.get(session_id) or self._by_key.get(session_key(session_id))

    def __iter__(self) -> Iterator[Session]:
        """Returns all sessions: with messages, a state or a holder."""
        return iter(self._by_id.values())

    @property
    def waiting_count(self) -> int:
        """Returns how many receivers wait for the next available session."""
        return len(self._waiting)

    # --- messages ---------------------------------------------------------------------------

    def enter(self, messages: Iterable[Message]) -> None:
        """See `DeliverySource.enter`."""
        by_id = self._by_id
        for message in messages:
            session = by_id.get(message.session_id) or self._of_new(message)
            message.session_id = session.id  # all messages share one string
            session.messages.add(message)

    def enter_late(self, messages: Sequence[Message]) -> None:
        """See `DeliverySource.enter_late`."""
        for message in messages:
            message.session_id = self._of_new(message).id
        for session, late in self._by_session(messages):
            session.messages.add_late(late)

    def _of_new(self, message: Message) -> Session:
        """Returns the session of a message that enters the queue."""
        assert message.session_id is not None
        return self.get(message.session_id) or self._open(message.session_id)

    def leave(self, messages: Sequence[Message]) -> None:
        """See `DeliverySource.leave`."""
        for session, left in self._by_session(messages):
            session.messages.remove(left)
            if not session.messages:
                self._withdraw(session)
                self._forget_if_empty(session)

    def _by_session(self, messages: Sequence[Message]) -> Iterable[tuple[Session, list[Message]]]:
        """Returns sessions with their messages, in order. A settlement nearly always has those of one session."""
        ids = [message.session_id for message in messages]
        if ids and ids.count(ids[0]) == len(ids):
            return ((self._by_id[ids[0]], list(messages)),)
        by_session: dict[Session, list[Message]] = {}
        for message in messages:
            by_session.setdefault(self._by_id[message.session_id], []).append(message)
        return by_session.items()

    def of(self, message: Message) -> Session:
        """Returns the session of a message in the queue."""
        return self._by_id[message.session_id]

    @property
    def _is_forwarding(self) -> bool:
        """Whether the queue forwards messages. The dispatcher has the ready messages then, because
        forwarding follows the sequence numbers and not the sessions."""
        return self._queue.dispatcher.forwarder is not None

    def add_ready(self, messages: Sequence[Message]) -> None:
        """See `DeliverySource.add_ready`."""
        if self._is_forwarding:
            self._queue.dispatcher.add_ready(messages)
            return
        by_id, available, touched = self._by_id, self._available, self._queue.context.touched
        for message in messages:
            session = by_id[message.session_id]
            session.ready.add_one(message)
            if session.holder is not None:
                touched[session] = None
            elif session not in available:
                available[session] = None
        if self._waiting and available:
            touched[self] = None

    def put_back(self, messages: Iterable[Message]) -> None:
        """See `DeliverySource.put_back`."""
        if self._is_forwarding:
            self._queue.dispatcher.put_back(messages)
            return
        for message in messages:
            session = self.of(message)
            session.ready.put_back((message,))
            self._offer(session)

    def set_forwarder(self, forwarder: MessageForwarder | None) -> None:
        """See `DeliverySource.set_forwarder`."""
        dispatcher = self._queue.dispatcher
        was_forwarding = self._is_forwarding
        dispatcher.set_forwarder(forwarder)
        if was_forwarding and forwarder is None:
            self.put_back(dispatcher.ready.take_all())
        elif forwarder is not None and not was_forwarding:
            self._available.clear()
            self._ahead.forget_all()
            sessions = self._by_id.values()
            dispatcher.put_back([m for session in sessions for m in session.ready.take_all()])

    def discard_ready(self, messages: Sequence[Message]) -> None:
        """See `DeliverySource.discard_ready`."""
        if self._is_forwarding:
            self._queue.dispatcher.discard_ready(messages)
            return
        for session_id, count in Counter([message.session_id for message in messages]).items():
            session = self._by_id.get(session_id)
            if session is not None:
                session.ready.discard(count)

    def restore(self, messages: Sequence[Message | PackedMessages]) -> None:
        """See `DeliverySource.restore`."""
        session_ids = session_ids_of(one for one in messages if isinstance(one, PackedMessages))
        by_id, available = self._by_id, self._available
        for one in messages:
            active = is_active(one)
            if not isinstance(one, PackedMessages):
                self.enter((one,))
                if active:
                    self.add_ready((one,))
                continue
            for session_id, count in Counter(next(session_ids)).items():
                session = by_id.get(session_id) or self.get(session_id) or self._open(session_id)
                session.messages.add_packed(one, count)
                if active:
                    session.ready.add_packed(one, count)
                    available[session] = None
        self.touch_all()

    def pack(self, messages: Sequence[Message], packed: PackedMessages) -> bool:
        """See `DeliverySource.pack`."""
        if self._is_forwarding:
            return False
        by_session = self._by_session(messages)
        if not packed.is_scheduled:
            if not all(session.ready.may_pack(own) for session, own in by_session):
                return False
            for session, own in by_session:
                session.ready.pack(own, packed)
        for session, own in by_session:
            session.messages.pack(own, packed)
        return True

    def unpack(self, packed: PackedMessages, messages: Sequence[Message]) -> None:
        """See `DeliverySource.unpack`."""
        for message in messages:
            message.session_id = self._of_new(message).id
        for session, own in self._by_session(messages):
            session.messages.unpack(packed, own)
            if not packed.is_scheduled:
                session.ready.unpack(packed, own)

    def touch_for(self, messages: Iterable[Message]) -> None:
        """See `DeliverySource.touch_for`."""
        if self._is_forwarding:
            self._queue.dispatcher.touch()
            return
        for message in messages:
            self.of(message).touch()

    def touch_all(self) -> None:
        """See `DeliverySource.touch_all`."""
        self._queue.dispatcher.touch()
        for session in self._by_id.values():
            session.touch()
        if self._available and self._waiting:
            self._queue.context.touched[self] = None

    def _offer(self, session: Session) -> None:
        if session.holder is not None:
            session.touch()
            return
        self._available[session] = None
        if self._waiting:
            self._queue.context.touched[self] = None

    def walk_session(self, session_id: str, from_number: int) -> Iterator[Message]:
        """See `DeliverySource.walk_session`."""
        session = self.get(session_id)
        return iter(()) if session is None else session.messages.from_number(from_number)

    def close(self) -> None:
        """See `DeliverySource.close`. The states are deleted with the sessions."""
        self._states.forget_all()

    # --- holding ----------------------------------------------------------------------------

    def check_attach(self, session: SessionRequest | None) -> None:
        """See `DeliverySource.check_attach`."""
        if session is None:
            raise NotAllowed(
                "It is not possible for an entity that requires sessions to create a "
                "non-sessionful message receiver."
            )

    def attach(
        self, receiver: Receiver, request: SessionRequest | None, now_ms: int, turn: Turn
    ) -> None:
        """See `DeliverySource.attach`."""
        assert request is not None
        if request.session_id is not None:
            session = self.get(request.session_id) or self._open(request.session_id)
            if session.holder is not None:
                raise SessionCannotBeLocked(session.id)
            self._hold(session, receiver, now_ms, turn)
            return
        until_ms = now_ms + request.timeout_ms
        wait = SessionWait(self, receiver, until_ms, request.timeout_ms, self._given)
        receiver.source = self
        receiver.waits_for_session = True
        self._waiting[receiver] = wait
        self._queue.context.deadlines.add(Due.SESSION_WAIT, until_ms, (wait,))
        self._queue.context.touched[self] = None

    def grant(self, receiver: Receiver) -> None:
        """See `ReceiverSource.grant`. The credit counts when the receiver has a session."""

    def detach(self, receiver: Receiver, now_ms: int, turn: Turn) -> None:
        """See `ReceiverSource.detach`. The receiver stops waiting for a session."""
        del now_ms, turn
        receiver.source = None
        self._stop_waiting(receiver)

    def dispatch(self, now_ms: int, turn: Turn) -> None:
        """Give available sessions to waiting receivers. The newest comes first, because an old wait
        may belong to a worker that no longer exists. But a receiver that has seen many sessions go
        to others comes before, so that it does not wait forever."""
        while self._waiting and self._available and not self._queue.overdue_ms:
            session = next(iter(self._available))
            if session.ready.first is None:
                self._withdraw(session)
                continue
            receiver, wait = next(iter(self._waiting.items()))
            if self._given - wait.given_before < PASSED_OVER_MAX:
                receiver = next(reversed(self._waiting))
            self._given += 1
            self._stop_waiting(receiver)
            self._hold(session, receiver, now_ms, turn)

    def _stop_waiting(self, receiver: Receiver) -> None:
        wait = self._waiting.pop(receiver, None)
        if wait is not None:
            self._queue.context.deadlines.discard(Due.SESSION_WAIT, wait.until_ms, (wait,))

    def time_out(self, receiver: Receiver, turn: Turn) -> None:
        """Refuse the attach of a receiver that has waited too long."""
        receiver.source = None
        seconds = self._waiting.pop(receiver).timeout_ms // 1000
        error = OperationTimeout(
            "The operation did not complete within the allotted timeout of "
            f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}."
        )
        turn.count(self._queue.counts, Outcome.ATTACH_REFUSED, 1)
        turn.effects.append(AttachRefused(receiver.peer, error))

    def _hold(self, session: Session, receiver: Receiver, now_ms: int, turn: Turn) -> None:
        self._withdraw(session)
        session.holder = receiver
        self.held_count += 1
        self._queue.context.session_lock_changes += 1
        receiver.source = session
        receiver.waits_for_session = False
        self.renew(session, now_ms)
        turn.effects.append(ReceiverAttached(receiver.peer, session.id, session.locked_until_ms))
        session.touch()
        payloads = self._queue.context.payloads
        if payloads.any_paged:
            before = payloads.message_count
            payloads.request([*session.ready.to_read_ahead(), *self._ahead.to_read(before)], turn)

    def _withdraw(self, session: Session) -> None:
        """Do not offer a session to waiting receivers any more."""
        self._available.pop(session, None)
        self._ahead.forget(session)

    def renew(self, session: Session, now_ms: int) -> int:
        """Renew the lock of a held session. Returns its new end."""
        deadlines = self._queue.context.deadlines
        deadlines.discard(Due.SESSION_LOCK, session.locked_until_ms + LOCK_GRACE_MS, (session,))
        session.locked_until_ms = now_ms + self._queue.lock_duration_ms
        deadlines.add(Due.SESSION_LOCK, session.locked_until_ms + LOCK_GRACE_MS, (session,))
        return session.locked_until_ms

    def held(self, session_id: str, origin: RequestOrigin) -> Session:
        """Returns a session that the sender of a request holds. Raises `SessionLockLost` otherwise. If another
        receiver holds it, the sender may have held it before, and not know yet that its lock has ended."""
        session = self.get(session_id)
        if session is None or session.holder is None or not session.holder.is_origin(origin):
            raise SessionLockLost(session_id)
        return session

    def check_session_held(self, session_id: str, origin: RequestOrigin) -> None:
        """See `DeliverySource.check_session_held`."""
        self.held(session_id, origin)

    def close_session(self, session: Session, now_ms: int, turn: Turn) -> None:
        """The holder releases the session. Its unsettled messages are unlocked without a failed
        delivery."""
        receiver = self._end_hold(session)
        release_locks(receiver, now_ms, turn, failed=False)
        self._make_available_or_remove(session)

    def expire(self, session: Session, now_ms: int, turn: Turn) -> None:
        """The session lock has ended. Each locked message counts as a failed delivery."""
        receiver = self._end_hold(session)
        turn.effects.append(Detached(receiver.peer, SessionLockLost(session.id)))
        self._queue.forget_receiver(receiver)
        release_locks(receiver, now_ms, turn, failed=True)
        self._make_available_or_remove(session)

    def _end_hold(self, session: Session) -> Receiver:
        receiver = session.holder
        assert receiver is not None
        self._queue.context.deadlines.discard(
            Due.SESSION_LOCK, session.locked_until_ms + LOCK_GRACE_MS, (session,)
        )
        session.holder = None
        self.held_count -= 1
        self._queue.context.session_lock_changes += 1
        session.locked_until_ms = 0
        receiver.source = None
        return receiver

    def _make_available_or_remove(self, session: Session) -> None:
        if session.ready.first is not None:
            self._offer(session)
        self._forget_if_empty(session)

    # --- state ------------------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """See `DeliverySource.state_bytes`."""
        return self._states.size_bytes

    @property
    def state_count(self) -> int:
        """How many sessions have a state."""
        return self._states.count

    def set_state(
        self, session: Session, state: bytes | None, now_ms: int
    ) -> list[SessionStateSet]:
        """Set or clear the state of a session. Returns the records for the store."""
        records = self._states.set(session, state, now_ms)
        self._forget_if_empty(session)
        return records

    def restore_state(self, stored: SessionStateSet) -> None:
        """Add a state from the store: see `SessionStates.restore`."""
        session = self.get(stored.session_id) or self._open(stored.session_id)
        self._states.restore(session, stored)
        self._forget_if_empty(session)

    def states(self) -> Iterator[tuple[str, bytes, int]]:
        """Returns the states that are set: session id, state, and when it was set."""
        for session in self:
            if session.state is not None:
                yield session.id, session.state, session.state_updated_ms

    def _open(self, session_id: str) -> Session:
        session = self._by_id[session_id] = Session(self, self._queue, session_id)
        self._by_key[session_key(session_id)] = session
        return session

    def _forget_if_empty(self, session: Session) -> None:
        if session.is_empty and self._by_id.pop(session.id, None) is not None:
            del self._by_key[session_key(session.id)]
