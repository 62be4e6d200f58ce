"""The control API changes messages between the clients, and everything that must hold still does.

The clients of `test_invariants.py` go on with their work meanwhile. After each turn, a watch must have noticed each
queue that the turn has changed, since waits look again only then.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from broker.core.contract import control_operations as control
from broker.core.contract.commands import ControlRequest, Send, Settle
from broker.core.contract.errors import BrokerError
from broker.core.contract.settlement_values import ABANDON, DEFER
from tests.core.test_invariants import ENTITIES, SENDABLE, SESSIONS, Clients, messages
from tests.support.core_dialogue import CLIENT, Reply

SUFFIXES = ("", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue")
QUEUES = [path + suffix for path in ENTITIES for suffix in SUFFIXES]
BUSY = [
    "plain",
    "plain/$DeadLetterQueue",
    "sessions",
    "sessions/$DeadLetterQueue",
    "short",
    "topic",
]
BUSY += ["topic/Subscriptions/all", "topic/Subscriptions/all/$DeadLetterQueue", "once"]
paths = st.sampled_from([*BUSY, *QUEUES])
STATES = ["active", "locked", "deferred", "scheduled"]


class ControlClients(Clients):
    """The clients, and tests that use the control API."""

    def run(self, *steps):
        if not hasattr(self, "watches"):
            namespace = self.dialogue.namespace
            self.watches = {path: namespace.watch(path) for path in QUEUES}
            self.watch_of_all = namespace.watch(None)
            self.seen = self._contents()
        found = super().run(*steps)
        turn = self.dialogue.turns[-1]
        now = self._contents()
        noticed = {path for path, watch in self.watches.items() if watch.has_changed(turn)}
        changed = {path for path in QUEUES if now[path] != self.seen[path]}
        assert changed <= noticed
        assert self.watch_of_all.has_changed(turn) or not changed
        self.seen = now
        return found

    def _contents(self):
        """What waits can depend on, by queue."""
        directory = self.dialogue.namespace._directory
        return {path: _content(directory.queue(path)) for path in QUEUES}

    def ask(self, operation):
        """Returns the value of an operation, or None if it is refused or waits for bodies."""
        for effect in self.run(ControlRequest(CLIENT, "control", operation)):
            if isinstance(effect, Reply) and effect.request == "control":
                assert effect.error is None or isinstance(effect.error, BrokerError)
                return effect.value
        return None

    def some(self, data):
        """A queue that has messages if there is one, and numbers of some of its messages, of a state if there are
        any, and perhaps one of no message."""
        directory = self.dialogue.namespace._directory
        by_state: dict[tuple[str, str], list[int]] = {}
        for path in QUEUES:
            for one in directory.queue(path).index.walk():
                by_state.setdefault((path, _state(one)), []).append(one.sequence_number)
        if not by_state:
            return "plain", [99]
        states = sorted({state for _, state in by_state})
        state = data.draw(st.sampled_from(states))
        path, _ = data.draw(st.sampled_from([one for one in by_state if one[1] == state]))
        present = by_state[path, state]
        wrong = [99] if data.draw(st.integers(0, 9)) == 0 else []
        return path, data.draw(st.lists(st.sampled_from(present), min_size=1, max_size=3)) + wrong

    # --- looking ----------------------------------------------------------------------------

    @rule(path=paths, state=st.sampled_from([None, *STATES]), size=st.integers(1, 4))
    def read_messages(self, path, state, size):
        """Pages contain each message once, in order, and reading changes nothing."""
        before, store = self._contents(), dict(self.dialogue.store.rows)
        found: list[int] = []
        after: int | None = 0
        while after is not None:
            page = self.ask(control.ReadMessages(path, after, size, size, state))
            assert page is not None
            found += [view.message.sequence_number for view in page.messages]
            assert all(state in (None, view.state) for view in page.messages)
            assert all(
                (view.lock is not None) == (view.state == "locked") for view in page.messages
            )
            after = page.next_after
        queue = self.dialogue.namespace._directory.queue(path)
        assert found == [
            one.sequence_number
            for one in queue.index.walk()
            if state is None or state == _state(one)
        ]
        assert (before, store) == (self._contents(), self.dialogue.store.rows)

    @rule(path=st.sampled_from(list(ENTITIES)))
    def read_counts(self, path):
        """Counts are those of the messages."""
        state = self.ask(control.GetEntityState(path))
        entity = self.dialogue.namespace._directory.entity(path)
        for queue, counts in zip(
            entity.queues,
            (state.main, state.dead_letter, state.transfer_dead_letter),
            strict=True,
        ):
            states = [_state(one) for one in queue.index.walk()]
            assert counts == tuple(states.count(one) for one in STATES)
        totals = self.ask(control.ReadTotals([path], [path, None]))
        assert totals.queues == [state.main]

    @rule(path=paths)
    def read_sessions(self, path):
        self.ask(control.ReadSessions(path, "", 10))

    # --- changing ---------------------------------------------------------------------------

    @rule(
        sent=st.lists(messages, min_size=2, max_size=4),
        settlement=st.sampled_from([DEFER, ABANDON]),
    )
    def receive_and_settle_one(self, sent, settlement):
        """There are locked and deferred messages, which the clients alone rarely leave."""
        self.run(Send(self.senders["plain"], sent, list(range(len(sent)))))
        self._attach("plain", 5)
        if self.held:
            peer, token = self.held.pop()
            self.run(Settle(peer, [token], [token], settlement))

    @rule(path=st.sampled_from(SENDABLE), sent=st.lists(messages, min_size=1, max_size=3))
    def send_json(self, path, sent):
        self.ask(control.SendMessages(path, sent))

    @rule(path=st.sampled_from(QUEUES))
    def purge(self, path):
        done = self.ask(control.PurgePart(path, None))
        if done is not None:
            assert done.is_done
            assert not self.dialogue.namespace._directory.queue(path).count

    @rule(data=st.data())
    def delete_by_number(self, data):
        path, numbers = self.some(data)
        self.ask(control.DeleteByNumber(path, numbers))

    @rule(data=st.data())
    def dead_letter_by_number(self, data):
        path, numbers = self.some(data)
        self.ask(control.DeadLetterByNumber(path, numbers, "Bad", None))

    @rule(data=st.data())
    def release_by_number(self, data):
        path, numbers = self.some(data)
        self.ask(control.ReleaseByNumber(path, numbers))

    @rule(data=st.data(), all_of_them=st.booleans())
    def expire_locks(self, data, all_of_them):
        path, numbers = self.some(data)
        self.ask(control.ExpireLocks(path, None if all_of_them else numbers))

    @rule(data=st.data())
    def expire_locks_by_token(self, data):
        path, numbers = self.some(data)
        queue = self.dialogue.namespace._directory.queue(path)
        found = [one for one in map(queue.index.get, numbers) if one is not None]
        tokens = {one.lock_token for one in found if one.lock_token is not None}
        asked = [*tokens, b"of no message"]
        assert len(tokens) == self.ask(control.ExpireLocks(path, None, None, asked))
        assert not tokens & set(queue.locks)

    @rule(path=st.sampled_from(["sessions", "plain"]), session=st.sampled_from(SESSIONS))
    def expire_session(self, path, session):
        self.ask(control.ExpireLocks(path, None, session))

    @rule(data=st.data(), to=st.sampled_from([None, None, *SENDABLE]))
    def resubmit(self, data, to):
        path, numbers = self.some(data)
        self.ask(control.Resubmit(path, numbers, to))

    @rule(purges=st.booleans(), dice=st.integers(0, 3))
    def reset(self, purges, dice):
        if dice:
            return  # a reset empties nearly everything, so it comes rarely
        left = self.ask(control.ResetEntities(ENTITIES))
        directory = self.dialogue.namespace._directory
        assert set(left) == {path for path in QUEUES if directory.queue(path).count}
        assert all(one.state is None for one in directory.queue("sessions").sessions)
        for path in left if purges else ():
            self.ask(control.PurgePart(path, None))


def _state(message) -> str:
    if message.lock_token is not None:
        return "locked"
    return {0: "active", 1: "deferred", 2: "scheduled"}[message.state]


def _content(queue):
    held = []
    if queue.sessions is not None:
        held = [(one.id, one.holder) for one in queue.sessions if one.holder is not None]
    return held, [
        (one.sequence_number, _state(one), one.lock_token, one.delivery_count, one.changes)
        for one in queue.index.walk()
    ]


ControlClients.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestControlClients = ControlClients.TestCase
