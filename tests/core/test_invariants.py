"""Whatever is asked, in whatever order: what must always hold does.

Hypothesis plays clients against a namespace with every feature switched on somewhere. After every
turn the live state is checked against the store's, and against itself; at the end everything must
still be deliverable, also after a restart.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.core.contract.commands import (
    AttachSender,
    CancelScheduled,
    Declare,
    DeleteMessages,
    Detach,
    Discharge,
    PayloadsLoaded,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    Schedule,
    Send,
    SendBatch,
    SetSessionState,
    Settle,
    SettleByToken,
    UpdateEntity,
)
from broker.core.contract.message import MessageState
from broker.core.contract.settlement_values import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    ReceiveMode,
)
from broker.core.queues.deadlines import Due
from broker.core.queues.locks import group_of
from broker.core.queues.session import Session
from broker.core.queues.sessions import LOCK_GRACE_MS
from config.model.definitions import (
    CorrelationFilter,
    EntityDefinition,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.support.core_dialogue import (
    CLIENT,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
    PayloadsNeeded,
    Reply,
    attach_receiver,
    credit,
    message,
)

RED = CorrelationFilter(properties={"color": "red"})

ENTITIES: dict[str, EntityDefinition] = {
    "plain": QueueDefinition(max_delivery_count=3),
    "short": QueueDefinition(
        default_time_to_live_ms=20_000,
        dead_lettering_on_expiration=True,
        forward_dead_letters_to="plain",
    ),
    "once": QueueDefinition(requires_duplicate_detection=True, duplicate_window_ms=20_000),
    "sessions": QueueDefinition(requires_session=True, max_delivery_count=2),
    "forward": QueueDefinition(forward_to="topic"),
    "topic": TopicDefinition(),
    "topic/Subscriptions/all": SubscriptionDefinition(max_delivery_count=2),
    "topic/Subscriptions/red": SubscriptionDefinition(
        rules=(
            RuleDefinition("red", RED),
            RuleDefinition("act", RED, SqlAction("SET color = 'blue'")),
        )
    ),
    "topic/Subscriptions/on": SubscriptionDefinition(forward_to="once"),
    "topic/Subscriptions/sessions": SubscriptionDefinition(requires_session=True),
}
SENDABLE = [path for path in ENTITIES if "Subscriptions" not in path]
RECEIVABLE = [
    path
    for path, definition in ENTITIES.items()
    if path not in ("topic", "forward", "topic/Subscriptions/on")
    and not getattr(definition, "requires_session", False)
]
RECEIVABLE += ["plain/$DeadLetterQueue", "forward/$DeadLetterQueue", "sessions/$DeadLetterQueue"]
SESSIONFUL = ["sessions", "topic/Subscriptions/sessions"]
SESSIONS = ["x", "y", "z"]

messages = st.builds(
    message,
    st.sampled_from(["a", "bb", "cccccccc"]),
    session=st.sampled_from([None, *SESSIONS]),
    message_id=st.sampled_from([None, "1", "2"]),
    time_to_live_ms=st.sampled_from([None, None, 5_000, 50_000]),
    color=st.sampled_from(["red", "green"]),
)
settlements = st.sampled_from([COMPLETE, COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE])


class Clients(RuleBasedStateMachine):
    """Senders, receivers and administrators without a plan."""

    @initialize(budget_bytes=st.sampled_from([None, 0, 20]), hold_locks=st.booleans())
    def start(self, budget_bytes, hold_locks):
        self.dialogue = CoreDialogue(
            entities=ENTITIES, attach=False, budget_bytes=budget_bytes, hold_locks=hold_locks
        )
        self.senders = {path: NamedPeer(f"to {path}") for path in SENDABLE}
        self.run(*[AttachSender(peer, path) for path, peer in self.senders.items()])
        self.receivers: dict[NamedPeer, int] = {}
        """What each has been given so far."""
        self.limits: dict[NamedPeer, int] = {}
        self.held: list[tuple[NamedPeer, bytes]] = []
        self.transactions: list[bytes] = []
        self.needed: list[int] = []
        self.attached = 0

    def run(self, *steps):
        turn = self.dialogue.run(*steps)
        self.dialogue.commit()
        for effect in turn.effects:
            if isinstance(effect, Deliver):
                self.receivers[effect.to] += len(effect.messages)
                assert self.receivers[effect.to] <= self.limits[effect.to]
                self.held += [(effect.to, token) for token in effect.tokens if token]
                assert all(message.body is not None for message in effect.messages)
            if isinstance(effect, PayloadsNeeded):
                self.needed += effect.payload_ids
        return turn.effects

    def pick(self, data, things):
        return data.draw(st.sampled_from(things))

    # --- what clients do --------------------------------------------------------------------

    @rule(path=st.sampled_from(SENDABLE), sent=st.lists(messages, min_size=1, max_size=4))
    def send(self, path, sent):
        self.run(Send(self.senders[path], sent, list(range(len(sent)))))

    @rule(path=st.sampled_from(SENDABLE), sent=st.lists(messages, min_size=1, max_size=3))
    def send_batch(self, path, sent):
        self.run(SendBatch(self.senders[path], sent, "batch"))

    @rule(path=st.sampled_from(SENDABLE), sent=messages, after_ms=st.integers(1, 30_000))
    def schedule(self, path, sent, after_ms):
        sent.scheduled_enqueue_time_ms = self.dialogue.now_ms + after_ms
        self.run(Schedule(CLIENT, "s", path, [sent]))

    @rule(path=st.sampled_from(SENDABLE), number=st.integers(1, 20))
    def cancel(self, path, number):
        self.run(CancelScheduled(CLIENT, "c", path, [number]))

    @rule(
        path=st.sampled_from(RECEIVABLE),
        mode=st.sampled_from([*ReceiveMode, ReceiveMode.PEEK_LOCK]),
        limit=st.integers(0, 5),
    )
    def attach(self, path, mode, limit):
        self._attach(path, limit, mode=mode)

    @rule(
        path=st.sampled_from(SESSIONFUL),
        session=st.sampled_from([None, *SESSIONS]),
        limit=st.integers(0, 5),
    )
    def attach_session(self, path, session, limit):
        self._attach(path, limit, session=session, any_session=session is None)

    def _attach(self, path, limit, **wanted):
        self.attached += 1
        peer = NamedPeer(f"R{self.attached} on {path}")
        self.receivers[peer] = 0
        self.limits[peer] = limit
        self.run(attach_receiver(peer, path, **wanted), credit(limit, to=peer))

    @rule(data=st.data(), more=st.integers(0, 5), drain=st.booleans())
    def grant(self, data, more, drain):
        if self.receivers:
            peer = self.pick(data, list(self.receivers))
            self.limits[peer] = self.receivers[peer] + more
            self.run(credit(self.limits[peer], to=peer, drain=drain))

    @rule(data=st.data(), lost=st.booleans())
    def detach(self, data, lost):
        if self.receivers:
            self.run(Detach([self.pick(data, list(self.receivers))], connection_lost=lost))

    @rule(data=st.data(), settlement=settlements, size=st.integers(1, 3), by_token=st.booleans())
    def settle(self, data, settlement, size, by_token):
        if self.held:
            peer, token = self.pick(data, self.held)
            tokens = [token, *[held for owner, held in self.held if owner == peer][: size - 1]]
            self.held = [entry for entry in self.held if entry[1] not in tokens]
            if by_token:
                path = peer.name.partition(" on ")[2]
                self.run(SettleByToken(CLIENT, "x", path, tokens, settlement))
            else:
                self.run(Settle(peer, tokens, list(tokens), settlement))

    @rule(data=st.data())
    def renew(self, data):
        if self.held:
            peer, token = self.pick(data, self.held)
            self.run(RenewLocks(CLIENT, "r", peer.name.partition(" on ")[2], [token]))

    @rule(path=st.sampled_from([*RECEIVABLE, *SESSIONFUL]), number=st.integers(1, 10))
    def fetch_deferred(self, path, number):
        self.run(ReceiveDeferred(CLIENT, "f", path, [number], ReceiveMode.PEEK_LOCK))

    @rule(path=st.sampled_from([*RECEIVABLE, *SESSIONFUL]), number=st.integers(0, 10))
    def peek(self, path, number):
        for effect in self.run(Peek(CLIENT, "p", path, number, 5)):
            if isinstance(effect, Reply) and effect.value:
                assert all(message.body is not None for message in effect.value)

    @rule(path=st.sampled_from(RECEIVABLE))
    def delete_oldest(self, path):
        self.run(DeleteMessages(CLIENT, "d", path, 2, self.dialogue.now_ms))

    @rule(session=st.sampled_from(SESSIONS), state=st.sampled_from([None, b"state"]))
    def set_state(self, session, state):
        self.run(SetSessionState(CLIENT, "s", "sessions", session, state))

    @rule(ms=st.sampled_from([1, 1_000, 10_000, 30_000]))
    def time_passes(self, ms):
        self.run(Advance(ms))

    @rule()
    def bodies_are_read(self):
        needed, self.needed = self.needed, []
        self.run(PayloadsLoaded(self.dialogue.store.read_payloads(needed)))

    @rule(on=st.booleans())
    def forwarding_is_switched(self, on):
        definition = QueueDefinition(forward_to="sessions" if on else None)
        self.run(UpdateEntity(CLIENT, "u", "short", _short(definition)))

    # --- transactions -----------------------------------------------------------------------

    @rule()
    def declare(self):
        for effect in self.run(Declare(CLIENT, "declare")):
            if isinstance(effect, Reply):
                self.transactions.append(effect.value)

    @rule(data=st.data(), path=st.sampled_from(SENDABLE), sent=messages, settlement=settlements)
    def work_in_transaction(self, data, path, sent, settlement):
        if self.transactions:
            transaction = self.pick(data, self.transactions)
            self.run(Send(self.senders[path], [sent], ["h"], transaction))
            if self.held:
                peer, token = self.pick(data, self.held)
                self.run(Settle(peer, [token], ["h"], settlement, transaction))

    @rule(data=st.data(), fail=st.booleans())
    def discharge(self, data, fail):
        if self.transactions:
            transaction = self.pick(data, self.transactions)
            self.transactions.remove(transaction)
            self.run(Discharge(CLIENT, "discharge", transaction, fail))

    # --- what always holds ------------------------------------------------------------------

    @property
    def queues(self) -> list[Any]:
        return [queue for entity in self.dialogue.namespace._directory for queue in entity.queues]

    @invariant()
    def every_stored_message_is_in_exactly_one_queue(self):
        live = [one for queue in self.queues for one in queue.index.walk()]
        rows = self.dialogue.store.rows
        assert len(live) == len(rows)
        for one in live:
            row = rows[one.id]
            assert (row.entity_id, row.sub_queue) == (
                one.queue.entity_id,
                one.queue.sub_queue,
            )
            assert row.sequence_number == one.sequence_number
            assert row.delivery_count == one.delivery_count
            assert row.state == one.state
            assert row.expires_at_ms == one.expires_at_ms
            assert row.payload_id == one.payload_id

    @invariant()
    def every_payload_is_referred_to_by_a_message(self):
        referred = {row.payload_id for row in self.dialogue.store.rows.values()}
        assert referred == set(self.dialogue.store.payloads)

    @invariant()
    def numbers_rise_and_books_balance(self):
        accounts: dict[int, int] = {}
        for queue in self.queues:
            live = list(queue.index.walk())
            numbers = [one.sequence_number for one in live]
            assert numbers == sorted(set(numbers))
            assert not numbers or numbers[-1] <= queue.last_sequence_number
            assert queue.count == len(live)
            assert queue.size_bytes == sum(one.size for one in live)
            for state, counted in (
                (MessageState.DEFERRED, queue.deferred_count),
                (MessageState.SCHEDULED, queue.scheduled_count),
            ):
                assert counted == sum(one.state is state for one in live)
            states = queue.sessions.state_bytes if queue.sessions is not None else 0
            account = id(queue.usage)
            accounts[account] = accounts.get(account, 0) + queue.size_bytes + states
        for queue in self.queues:
            assert accounts[id(queue.usage)] == queue.usage.size_bytes

    @invariant()
    def a_message_has_at_most_one_lock_and_a_lock_has_its_message(self):
        deadlines = self.dialogue.namespace._context.deadlines
        waiting = {
            one
            for bucket in deadlines._buckets.values()
            for group in bucket.get(Due.MESSAGE_LOCK, ())
            for one in group
        }
        expected = set()
        for queue in self.queues:
            locked = {m for m in queue.index.walk() if m.lock_token is not None}
            assert locked == set(queue.locks.messages(queue.locks))
            for token, one in queue.locks.items():
                assert token == one.lock_token
                holder = group_of(one).holder
                assert one in holder.locked
                if isinstance(holder.source, Session):
                    assert queue.sessions.of(one).holder is holder
                else:
                    expected.add(one)
        assert expected == waiting
        links = self.dialogue.namespace._links
        for receiver in (*links._receivers.values(), *links._detached.values()):
            assert all(group.holder is receiver for group in receiver.lock_groups)
            assert all(one.lock_token in receiver.queue.locks for one in receiver.locked)

    @invariant()
    def a_held_session_has_one_deadline_and_no_other_has(self):
        deadlines = self.dialogue.namespace._context.deadlines
        waiting = [
            (at_ms, session)
            for at_ms, bucket in deadlines._buckets.items()
            for session in bucket.get(Due.SESSION_LOCK, ())
        ]
        held = [
            (session.locked_until_ms + LOCK_GRACE_MS, session)
            for queue in self.queues
            if queue.sessions is not None
            for session in queue.sessions._by_id.values()
            if session.holder is not None
        ]
        assert len(held) == len(waiting)
        assert set(held) == set(waiting)

    @invariant()
    def memory_is_accounted_for(self):
        live = [one for queue in self.queues for one in queue.index.walk()]
        resident = sum(one.size for one in live if one.body is not None)
        payloads = self.dialogue.namespace._context.payloads
        assert resident == payloads.resident_bytes
        shared: dict[int, int] = {}
        for one in live:
            shared[one.payload_id] = shared.get(one.payload_id, 0) + 1
        assert all(shared[i] == count for i, count in payloads.references.items())
        assert all(payloads.references.get(i, 1) == count for i, count in shared.items())

    @invariant()
    def no_receiver_waits_beside_a_message_it_could_have(self):
        for queue in self.queues:
            first = queue.dispatcher.ready.first
            assert first is None or first.body is None or not queue.dispatcher._with_credit
            if queue.sessions is not None:
                for session in queue.sessions._by_id.values():
                    first = session.ready.first
                    assert not session.is_empty
                    holder = session.holder
                    assert not (holder and first and first.body is not None and holder.room > 0)
                    if holder is None and first is not None:
                        assert not queue.sessions._waiting

    # --- how it ends ------------------------------------------------------------------------

    def teardown(self):
        if not hasattr(self, "dialogue"):
            return
        self.bodies_are_read()
        before = _summary(self.dialogue)
        later = self.dialogue.restarted()
        assert before == _summary(later)
        self._everything_can_be_received(later)

    def _everything_can_be_received(self, later):
        """Long after, nothing is locked, scheduled or waiting for a body that never comes."""
        later.serve(Advance(10**9))
        for path in RECEIVABLE:
            peer = NamedPeer(f"last on {path}")
            later.serve(
                attach_receiver(peer, path, mode=ReceiveMode.RECEIVE_AND_DELETE),
                credit(10**6, to=peer),
            )
        for path in SESSIONFUL:
            for session in SESSIONS:
                peer = NamedPeer(f"last on {path} {session}")
                wanted = attach_receiver(
                    peer, path, session=session, mode=ReceiveMode.RECEIVE_AND_DELETE
                )
                later.serve(wanted, credit(10**6, to=peer))
        left = {
            message.state
            for entity in later.namespace._directory
            for queue in entity.queues
            if queue.path in (*RECEIVABLE, *SESSIONFUL)
            for message in queue.index.walk()
        }
        assert left <= {MessageState.DEFERRED}


def _short(definition: QueueDefinition) -> QueueDefinition:
    return QueueDefinition(
        default_time_to_live_ms=20_000,
        dead_lettering_on_expiration=True,
        forward_dead_letters_to="plain",
        forward_to=definition.forward_to,
    )


def _summary(dialogue: CoreDialogue) -> dict[str, list[tuple[object, ...]]]:
    return {
        queue.path: [
            (m.id, m.sequence_number, m.state, m.delivery_count, m.session_id, m.changes)
            for m in queue.index.walk()
        ]
        for entity in dialogue.namespace._directory
        for queue in entity.queues
    }


Clients.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestClients = Clients.TestCase
