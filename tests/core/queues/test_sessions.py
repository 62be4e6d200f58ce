"""Sessions: exclusive, ordered, and outliving their holders."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachReceiver,
    DeleteEntity,
    Detach,
    GetSessionState,
    ListSessions,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    RenewSessionLock,
    RequestOrigin,
    SessionRequest,
    SetSessionState,
    Settle,
    SettleByToken,
)
from broker.core.contract.errors import (
    MessageLockLost,
    MessageNotFound,
    MessageSizeExceeded,
    NotAllowed,
    OperationTimeout,
    QuotaExceeded,
    SessionCannotBeLocked,
    SessionLockLost,
)
from broker.core.contract.records import SessionStateSet
from broker.core.contract.settlement_values import ABANDON, COMPLETE, DEFER, ReceiveMode
from broker.core.queues.locks import SESSION_MESSAGE_LOCKED_UNTIL_MS
from broker.core.queues.receiver import BURST_MAX_BYTES
from broker.core.queues.sessions import LOCK_GRACE_MS, PASSED_OVER_MAX
from config.model.definitions import QueueDefinition
from config.model.limits import Limits
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    T2,
    T3,
    Accepted,
    Advance,
    CoreDialogue,
    CreditNeeded,
    Deliver,
    Detached,
    Drained,
    NamedPeer,
    R,
    ReceiverAttached,
    Refused,
    Reply,
    S,
    Settled,
    attach_receiver,
    credit,
    deleted,
    message,
    send,
    stored,
    text_of,
    updated,
)

OTHER = NamedPeer("OTHER")
UNTIL_MS = START_MS + 30_000
LOST_MS = 30_000 + LOCK_GRACE_MS


def in_session(session, *texts):
    return send(*[message(text, session=session) for text in texts])


@pytest.fixture
def dialogue():
    """A queue with sessions and without receivers."""
    return CoreDialogue(QueueDefinition(requires_session=True))


# --- accepting -------------------------------------------------------------------------------------


def test_a_named_session_is_accepted_even_when_empty(dialogue):
    """A requester waits for its reply in a session that does not exist yet."""
    assert dialogue >> attach_receiver(R, session="x") << ReceiverAttached(R, "x", UNTIL_MS)
    assert dialogue >> credit(5)
    assert (
        dialogue >> in_session("x", "a") << stored(1) << Accepted(S, ["a"]) << Deliver(R, [1], [T1])
    )


def test_a_held_session_cannot_be_accepted(dialogue):
    """One holder at a time."""
    dialogue.run(attach_receiver(R, session="x"))
    assert dialogue >> attach_receiver(OTHER, session="x") << Refused(OTHER, SessionCannotBeLocked)


def test_next_available_takes_the_session_that_waits_longest(dialogue):
    """Fair order."""
    dialogue.run(in_session("x", "a"), in_session("y", "b"), in_session("x", "c"))
    assert dialogue >> attach_receiver(R, any_session=True) << ReceiverAttached(R, "x", UNTIL_MS)
    assert (
        dialogue
        >> attach_receiver(OTHER, any_session=True)
        << ReceiverAttached(OTHER, "y", UNTIL_MS)
    )


def test_a_session_given_back_unfinished_goes_to_the_end(dialogue):
    """So that it cannot keep the others waiting."""
    dialogue.run(in_session("x", "a"), in_session("y", "b"))
    dialogue.run(attach_receiver(R, any_session=True))
    dialogue.run(Detach([R]))
    assert dialogue >> attach_receiver(R, any_session=True) << ReceiverAttached(R, "y", UNTIL_MS)


def test_next_available_waits_for_one(dialogue):
    """The attach is answered when a session has something."""
    assert dialogue >> attach_receiver(R, any_session=True)
    assert (
        dialogue
        >> in_session("x", "a")
        << stored(1)
        << Accepted(S, ["a"])
        << ReceiverAttached(R, "x", UNTIL_MS)
    )


def test_the_newest_of_those_who_wait_is_served(dialogue):
    """An old wait may be what a dead worker left behind."""
    dialogue.run(attach_receiver(R, any_session=True), attach_receiver(OTHER, any_session=True))
    turn = dialogue.run(in_session("x", "a"))
    assert [OTHER] == [e.to for e in turn.effects if isinstance(e, ReceiverAttached)]


def test_no_waiter_of_a_busy_entity_starves(dialogue):
    """Workers that accept a new session after each one do not keep an older receiver waiting
    forever."""
    dialogue.run(attach_receiver(R, any_session=True))
    served = []
    for number in range(PASSED_OVER_MAX + 1):
        worker = NamedPeer(f"worker {number}")
        dialogue.run(attach_receiver(worker, any_session=True))
        turn = dialogue.run(in_session(f"session {number}", "a"))
        served += [e.to for e in turn.effects if isinstance(e, ReceiverAttached)]
    assert [*[False] * PASSED_OVER_MAX, True] == [one is R for one in served]


def test_waiting_ends_in_time(dialogue):
    """With the SDKs' wording."""
    assert dialogue >> attach_receiver(R, any_session=True, timeout_ms=65_000)
    assert dialogue >> Advance(64_999)
    turn = dialogue.run(Advance(1))
    (refused,) = turn.effects
    assert isinstance(refused.error, OperationTimeout)
    assert "within the allotted timeout of 00:01:05." in str(refused.error)
    assert dialogue >> in_session("x", "a") << stored(1) << Accepted(S, ["a"])


def test_who_leaves_while_waiting_takes_no_lock(dialogue):
    """The session stays available for others."""
    dialogue.run(attach_receiver(R, any_session=True))
    assert dialogue >> Detach([R], connection_lost=True)
    dialogue.run(in_session("x", "a"))
    assert (
        dialogue
        >> attach_receiver(OTHER, any_session=True)
        << ReceiverAttached(OTHER, "x", UNTIL_MS)
    )


def test_credit_given_while_waiting_counts(dialogue):
    """Clients pipeline it with the attach."""
    dialogue.run(attach_receiver(R, any_session=True), credit(1))
    turn = dialogue.run(in_session("x", "a"))
    assert 1 == sum(isinstance(e, Deliver) for e in turn.effects)


def test_a_session_with_only_deferred_messages_is_not_available(dialogue):
    """There would be nothing to deliver."""
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEFER))
    dialogue.run(Detach([R]))
    assert dialogue >> attach_receiver(OTHER, any_session=True)


# --- receiving -------------------------------------------------------------------------------------


def test_each_session_goes_only_to_its_holder(dialogue):
    """Unheld sessions deliver to no one."""
    dialogue.run(attach_receiver(R, session="x"), attach_receiver(OTHER, session="y"))
    dialogue.run(credit(10), credit(10, to=OTHER))
    turn = dialogue.run(send(*[message(t + s, session=s) for t in "12" for s in ("x", "y", "z")]))
    got = {e.to: [text_of(m) for m in e.messages] for e in turn.effects if isinstance(e, Deliver)}
    assert {R: ["1x", "2x"], OTHER: ["1y", "2y"]} == got


def test_an_abandoned_message_comes_next(dialogue):
    """Before those behind it."""
    dialogue.run(in_session("x", "a", "b", "c"), attach_receiver(R, session="x"), credit(1))
    assert (
        dialogue
        >> Settle(R, [T1], ["h"], ABANDON)
        << updated(1)
        << Settled(R, ["h"], ABANDON)
        >> credit(3)
        << Deliver(R, [1, 2], [T2, T3])
    )


def test_messages_of_a_session_are_locked_without_an_end_of_their_own(dialogue):
    """The session lock is the umbrella: it alone expires, and its end is on the session."""
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"))
    dialogue.run(Advance(10_000))
    (delivered,) = dialogue.deliveries(credit(1))
    assert SESSION_MESSAGE_LOCKED_UNTIL_MS == delivered.locked_until_ms


def test_receive_and_delete_works_in_a_session(dialogue):
    """Nothing is locked then but the session."""
    dialogue.run(in_session("x", "a"))
    dialogue.run(attach_receiver(R, session="x", mode=ReceiveMode.RECEIVE_AND_DELETE))
    assert dialogue >> credit(1) << deleted(1) << Deliver(R, [1], [None])


def test_draining_a_session(dialogue):
    """As anywhere."""
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"))
    assert dialogue >> credit(5, drain=True) << Deliver(R, [1], [T1]) << Drained(R)
    assert dialogue >> credit(0, drain=True) << Drained(R)


def test_draining_a_session_goes_on_burst_by_burst(dialogue):
    """As without sessions: the link grants credit again after a burst is written."""
    half = "h" * (BURST_MAX_BYTES // 2)
    dialogue.run(in_session("x", half, half, "last"), attach_receiver(R, session="x"))
    assert dialogue >> credit(5, drain=True) << Deliver(R, [1, 2], [T1, T2]) << CreditNeeded(R)
    assert dialogue >> credit(5, drain=True) << Deliver(R, [3], [T3]) << Drained(R)


# --- ending ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("connection_lost", [False, True])
def test_a_closed_session_returns_its_messages_uncounted(dialogue, connection_lost):
    """They go to the next holder, in order."""
    dialogue.run(in_session("x", "a", "b"), attach_receiver(R, session="x"), credit(2))
    assert dialogue >> Detach([R], connection_lost=connection_lost)
    assert dialogue >> attach_receiver(OTHER, session="x") << ReceiverAttached(OTHER, "x", UNTIL_MS)
    assert [("a", 0), ("b", 0)] == [
        (text_of(m), m.delivery_count) for m in dialogue.deliveries(credit(5, to=OTHER))
    ]


def test_an_expired_session_counts_and_detaches_its_holder(dialogue):
    """Each message it had is a failed delivery."""
    dialogue.run(in_session("x", "a", "b"), attach_receiver(R, session="x"), credit(1))
    assert dialogue >> Advance(LOST_MS) << updated(1) << Detached(R, SessionLockLost)
    assert (
        dialogue
        >> attach_receiver(OTHER, any_session=True)
        << ReceiverAttached(OTHER, "x", UNTIL_MS + LOST_MS)
    )
    assert [1, 0] == [m.delivery_count for m in dialogue.deliveries(credit(5, to=OTHER))]


def test_an_expired_session_can_dead_letter(dialogue):
    """The maximum delivery count holds here too."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True, max_delivery_count=1))
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"), credit(1))
    dialogue.run(Advance(LOST_MS))
    (dead,) = dialogue.ask(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 5))
    assert "MaxDeliveryCountExceeded" == dead.changes.dead_letter_reason


def test_settling_after_the_session_is_lost_changes_nothing(dialogue):
    """By link or by token."""
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"), credit(1))
    dialogue.run(Advance(LOST_MS))
    turn = dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    assert isinstance(turn.effects[0].error, MessageLockLost)
    with pytest.raises(SessionLockLost):
        dialogue.ask(SettleByToken(CLIENT, "x", "q", [T1], COMPLETE, session_id="x"))


def test_settling_twice_in_a_session_that_is_held_loses_a_message_not_the_session(dialogue):
    """The .NET SDK takes a lost session for the end of its receiver."""
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"), credit(1))
    again = SettleByToken(CLIENT, "x", "q", [T1], COMPLETE, session_id="x")
    dialogue.ask(again)
    with pytest.raises(MessageLockLost):
        dialogue.ask(again)


def test_renewing_a_session_keeps_everything_in_it_locked(dialogue):
    """Any number of times."""
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"), credit(1))
    for _ in range(3):
        dialogue.run(Advance(20_000))
        assert dialogue.now_ms + 30_000 == dialogue.ask(RenewSessionLock(CLIENT, "r", "q", "x"))
    ends_ms = dialogue.ask(RenewLocks(CLIENT, "r", "q", [T1]))
    assert [SESSION_MESSAGE_LOCKED_UNTIL_MS] == ends_ms
    assert dialogue >> Settle(R, [T1], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)


@pytest.mark.parametrize("late_ms", [0, LOCK_GRACE_MS - 1])
def test_a_session_lock_outlasts_its_announced_end_a_little(dialogue, late_ms):
    """For its holder alone: it still renews, settles, receives and keeps state."""
    dialogue.run(in_session("x", "a", "b"), attach_receiver(R, session="x"), credit(1))
    dialogue.run(Advance(30_000 + late_ms))
    assert dialogue >> attach_receiver(OTHER, session="x") << Refused(OTHER, SessionCannotBeLocked)
    assert dialogue >> Settle(R, [T1], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)
    assert dialogue >> credit(2) << Deliver(R, [2], [T2])
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"state"))
    assert dialogue.now_ms + 30_000 == dialogue.ask(RenewSessionLock(CLIENT, "r", "q", "x"))
    dialogue.run(Advance(30_000))
    dialogue.ask(SettleByToken(CLIENT, "x", "q", [T2], COMPLETE, session_id="x"))


def test_a_session_lock_is_lost_when_the_grace_is_over(dialogue):
    """And not one millisecond later."""
    dialogue.run(attach_receiver(R, session="x"), attach_receiver(OTHER, any_session=True))
    assert dialogue >> Advance(LOST_MS - 1)
    assert dialogue >> Advance(1) << Detached(R, SessionLockLost)
    with pytest.raises(SessionLockLost):
        dialogue.ask(RenewSessionLock(CLIENT, "r", "q", "x"))


def test_a_session_nobody_holds_cannot_be_renewed(dialogue):
    """Nor can one that does not exist."""
    dialogue.run(attach_receiver(R, session="x"), Detach([R]))
    for session in ("x", "never"):
        with pytest.raises(SessionLockLost):
            dialogue.ask(RenewSessionLock(CLIENT, "r", "q", session))


@pytest.mark.parametrize(
    "stale",
    [RequestOrigin("one", "old"), RequestOrigin("one"), RequestOrigin("two", "old")],
    ids=["another connection", "without a name", "the same connection"],
)
def test_the_earlier_holder_of_a_session_can_do_nothing_with_it(dialogue, stale):
    """Requests name only the session, and its next holder may have it already. The earlier holder learns that its
    lock is lost, and the state, the lock and the deferred messages belong to the next one."""
    lock, wanted = ReceiveMode.PEEK_LOCK, SessionRequest("x")
    dialogue.run(
        in_session("x", "a"), AttachReceiver(R, "q", lock, wanted, "one", "old"), credit(1)
    )
    dialogue.run(Settle(R, [T1], ["h"], DEFER))
    dialogue.run(Advance(LOST_MS), AttachReceiver(OTHER, "q", lock, wanted, "two", "new"))
    for request in requests_about_session(stale):
        with pytest.raises(SessionLockLost):
            dialogue.ask(request)
    own = RequestOrigin("two", "new")
    assert None is dialogue.ask(GetSessionState(CLIENT, "g", "q", "x", own))
    for request in requests_about_session(own)[:4]:
        dialogue.ask(request)
    assert b"state" == dialogue.ask(GetSessionState(CLIENT, "g", "q", "x", RequestOrigin("two")))


def requests_about_session(origin):
    """Requests that only the holder of the session `x` may send."""
    return [
        SetSessionState(CLIENT, "s", "q", "x", b"state", origin),
        GetSessionState(CLIENT, "g", "q", "x", origin),
        RenewSessionLock(CLIENT, "r", "q", "x", origin),
        ReceiveDeferred(CLIENT, "d", "q", [1], ReceiveMode.RECEIVE_AND_DELETE, "x", origin),
        SettleByToken(CLIENT, "t", "q", [T1], COMPLETE, "x", None, *origin),
    ]


def test_sessions_leave_nothing_behind(dialogue):
    """Once empty and without state, a session is forgotten."""
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    dialogue.run(Detach([R]))
    assert [] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 100))
    assert dialogue.namespace.next_deadline_ms() is None


# --- state -----------------------------------------------------------------------------------------


def test_state_is_null_until_set_and_null_again_when_cleared(dialogue):
    """Null and empty are different values for the SDKs."""
    dialogue.run(attach_receiver(R, session="x"))
    assert None is dialogue.ask(GetSessionState(CLIENT, "g", "q", "x"))
    entity_id = 1
    assert (
        dialogue
        >> SetSessionState(CLIENT, "s", "q", "x", b"state")
        << SessionStateSet(entity_id, "x", b"state", START_MS)
        << Reply(CLIENT, "s")
    )
    assert b"state" == dialogue.ask(GetSessionState(CLIENT, "g", "q", "x"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", None))
    assert None is dialogue.ask(GetSessionState(CLIENT, "g", "q", "x"))


def test_state_outlives_messages_and_holders(dialogue):
    """A session exists while it has either."""
    dialogue.run(attach_receiver(R, session="x"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"state"))
    dialogue.run(Detach([R]))
    assert ["x"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 100))
    dialogue.run(attach_receiver(OTHER, session="x"))
    assert b"state" == dialogue.ask(GetSessionState(CLIENT, "g", "q", "x"))


def test_state_needs_the_session_lock(dialogue):
    """To read and to write."""
    for command in (
        GetSessionState(CLIENT, "g", "q", "x"),
        SetSessionState(CLIENT, "s", "q", "x", b"state"),
    ):
        with pytest.raises(SessionLockLost):
            dialogue.ask(command)


def test_state_has_a_size_limit():
    """And the number of states is bounded."""
    limits = Limits(session_state_max_bytes=4, session_states_per_entity_max=1)
    dialogue = CoreDialogue(QueueDefinition(requires_session=True), limits=limits)
    dialogue.run(attach_receiver(R, session="x"), attach_receiver(OTHER, session="y"))
    with pytest.raises(MessageSizeExceeded):
        dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"12345"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"1234"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"4321"))
    with pytest.raises(QuotaExceeded):
        dialogue.ask(SetSessionState(CLIENT, "s", "q", "y", b"1"))


def test_the_states_of_a_namespace_are_bounded_together():
    """They are in memory. What is cleared, or goes with its entity, makes room."""
    session_queue = QueueDefinition(requires_session=True)
    dialogue = CoreDialogue(
        entities={"q": session_queue, "other": session_queue},
        limits=Limits(session_states_max_bytes=10),
    )
    dialogue.run(attach_receiver(R, session="x"), attach_receiver(OTHER, "other", session="y"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"1234567"))
    dialogue.ask(SetSessionState(CLIENT, "s", "other", "y", b"123"))
    with pytest.raises(QuotaExceeded):
        dialogue.ask(SetSessionState(CLIENT, "s", "other", "y", b"1234"))
    assert b"123" == dialogue.ask(GetSessionState(CLIENT, "g", "other", "y"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"123456"))
    dialogue.ask(SetSessionState(CLIENT, "s", "other", "y", b"1234"))
    dialogue.ask(DeleteEntity(CLIENT, "d", "q"))
    dialogue.ask(SetSessionState(CLIENT, "s", "other", "y", b"1234567890"))


def test_state_is_no_larger_than_a_message():
    """The limit of the entity it is in."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True, max_message_size_kilobytes=1))
    dialogue.run(attach_receiver(R, session="a"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "a", bytes(1024)))
    with pytest.raises(MessageSizeExceeded):
        dialogue.ask(SetSessionState(CLIENT, "s", "q", "a", bytes(1025)))
    assert bytes(1024) == dialogue.ask(GetSessionState(CLIENT, "g", "q", "a"))


def test_state_counts_toward_the_size_of_the_entity():
    """As messages do."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True, max_size_megabytes=1))
    dialogue.run(attach_receiver(R, session="x"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"s" * 1_000_000))
    with pytest.raises(QuotaExceeded):
        dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"s" * 1_100_000))
    turn = dialogue.run(in_session("x", "m" * 100_000))
    assert isinstance(turn.effects[0].error, QuotaExceeded)


# --- listing ---------------------------------------------------------------------------------------


def test_sessions_are_listed_page_by_page(dialogue):
    """Those with messages or state."""
    dialogue.run(*[in_session(name, "a") for name in "cabde"])
    assert ["a", "b"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 2))
    assert ["c", "d"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 2, 2))
    assert ["e"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 4, 2))
    assert ["d", "e"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 9, None, "c"))


def test_pages_of_many_sessions_follow_each_other(dialogue):
    """The first pages are found without sorting all sessions."""
    ids = [f"{number:03}" for number in range(100)]
    dialogue.run(*[in_session(one, "a") for one in reversed(ids)])
    by_skip = [dialogue.ask(ListSessions(CLIENT, "l", "q", at, 4)) for at in range(0, 104, 4)]
    assert ids == [one for page in by_skip for one in page]
    by_last: list[str] = []
    while page := dialogue.ask(
        ListSessions(CLIENT, "l", "q", 50, 4, None, by_last[-1] if by_last else "")
    ):
        by_last += page
    assert ids == by_last


def test_sessions_are_listed_by_when_their_state_changed(dialogue):
    """Those whose state was set after a time."""
    dialogue.run(attach_receiver(R, session="x"), attach_receiver(OTHER, session="y"))
    dialogue.run(in_session("z", "a"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", b"1"))
    dialogue.run(Advance(1_000))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "y", b"1"))
    assert ["y"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 9, START_MS))
    assert ["x", "y"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 9, START_MS - 1))


def test_session_requests_need_sessions():
    """On a plain entity they are not allowed."""
    for command in (
        ListSessions(CLIENT, "l", "q", 0, 9),
        RenewSessionLock(CLIENT, "r", "q", "x"),
        GetSessionState(CLIENT, "g", "q", "x"),
    ):
        with pytest.raises(NotAllowed):
            CoreDialogue().ask(command)


# --- looking into sessions -------------------------------------------------------------------------


def test_peeking_into_one_session(dialogue):
    """Or into all of them."""
    dialogue.run(send(*[message(t + s, session=s) for t in "12" for s in "xy"]))
    assert ["1y", "2y"] == [
        text_of(m) for m in dialogue.ask(Peek(CLIENT, "p", "q", 0, 9, session_id="y"))
    ]
    assert ["2y"] == [
        text_of(m) for m in dialogue.ask(Peek(CLIENT, "p", "q", 3, 9, session_id="y"))
    ]
    assert ["1x", "1y", "2x", "2y"] == [
        text_of(m) for m in dialogue.ask(Peek(CLIENT, "p", "q", 0, 9))
    ]
    assert [] == dialogue.ask(Peek(CLIENT, "p", "q", 0, 9, session_id="none"))


def test_deferred_messages_of_a_session_need_its_lock(dialogue):
    """And are fetched under it."""
    dialogue.run(in_session("x", "a"), attach_receiver(R, session="x"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEFER))
    fetch = ReceiveDeferred(CLIENT, "f", "q", [1], ReceiveMode.PEEK_LOCK, "x")
    with pytest.raises(MessageNotFound):
        dialogue.ask(fetch._replace(session_id="y"))
    ((fetched, lock),) = dialogue.ask(fetch)
    until_ms = SESSION_MESSAGE_LOCKED_UNTIL_MS
    assert ("a", T2, until_ms) == (text_of(fetched), lock, fetched.locked_until_ms)
    dialogue.run(Detach([R]))
    with pytest.raises(SessionLockLost):
        dialogue.ask(fetch)
