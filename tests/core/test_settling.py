"""What each settlement does, and what becomes of locks that end without one."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Detach,
    GetEntity,
    Peek,
    Settle,
    SettleByToken,
    Settlement,
    SettlementKind,
)
from broker.core.contract.errors import EntityNotFound, MessageLockLost, NotAllowed
from broker.core.contract.message import MessageState
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
    T1,
    T2,
    T3,
    T4,
    Advance,
    Deliver,
    Named,
    Playbook,
    R,
    Reply,
    Settled,
    SettleRefused,
    attach_receiver,
    credit,
    deleted,
    send,
    text_of,
    token,
    updated,
)

OTHER = Named("OTHER")
DEAD = "q/$DeadLetterQueue"


@pytest.fixture
def book():
    """A queue with `a` and `b` delivered to R under T1 and T2, and no credit left."""
    book = Playbook()
    book.run(send("a", "b"), credit(2))
    return book


def only(book, path="q"):
    (message,) = book.ask(Peek(CLIENT, "peek", path, 0, 10))
    return message


def test_complete_removes_the_message(book):
    """One record and one answer for all."""
    assert (
        book
        >> Settle(R, [T1, T2], ["h1", "h2"], COMPLETE)
        << deleted(1, 2)
        << Settled(R, ["h1", "h2"], COMPLETE)
    )
    assert [] == book.ask(Peek(CLIENT, "peek", "q", 0, 10))


def test_abandon_counts_and_returns_at_once(book):
    """The same message comes next."""
    assert (
        book
        >> Settle(R, [T1], ["h"], ABANDON)
        << updated(1)
        << Settled(R, ["h"], ABANDON)
        >> credit(3)
        << Deliver(R, [1], [T3])
    )
    assert 1 == book.ask(Peek(CLIENT, "peek", "q", 0, 1))[0].delivery_count


def test_release_returns_without_counting_or_writing(book):
    """Nothing about the message has changed."""
    assert (
        book
        >> Settle(R, [T1], ["h"], RELEASE)
        << Settled(R, ["h"], RELEASE)
        >> credit(3)
        << Deliver(R, [1], [T3])
    )
    assert 0 == book.ask(Peek(CLIENT, "peek", "q", 0, 1))[0].delivery_count


def test_dead_letter_moves_with_reason_description_and_properties(book):
    """Readable in the sub-queue, under a number of its own, as old as it was."""
    settlement = Settlement(
        SettlementKind.DEAD_LETTER, {"why": b"because"}, reason="Bad", description="Very bad"
    )
    sent_ms = book.now_ms
    book.run(Advance(1_000))
    assert book >> Settle(R, [T2], ["h"], settlement) << updated(2) << Settled(R, ["h"], settlement)
    dead = only(book, DEAD)
    assert ("Bad", "Very bad") == (
        dead.changes.dead_letter_reason,
        dead.changes.dead_letter_description,
    )
    assert {"why": b"because"} == dead.changes.properties
    assert (1, 2) == (dead.sequence_number, dead.enqueue_sequence_number)
    assert sent_ms == dead.enqueued_time_ms


def test_dead_lettering_without_reason_is_dead_lettering(book):
    """.NET sends none."""
    book.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    assert only(book, DEAD).changes.dead_letter_reason is None


def test_properties_to_modify_add_up(book):
    """Later values win; others stay."""
    for lock, properties in ((T1, {"x": b"1", "y": b"1"}), (T3, {"y": b"2", "z": None})):
        settlement = Settlement(SettlementKind.ABANDON, properties)
        book.run(Settle(R, [lock], ["h"], settlement), credit(3))
    first = book.ask(Peek(CLIENT, "peek", "q", 0, 1))[0]
    assert {"x": b"1", "y": b"2", "z": None} == first.changes.properties


def test_defer_sets_aside_and_counts(book):
    """Skipped by receivers; still there to peek."""
    assert book >> Settle(R, [T1], ["h"], DEFER) << updated(1) << Settled(R, ["h"], DEFER)
    assert book >> credit(5)
    first = book.ask(Peek(CLIENT, "peek", "q", 0, 1))[0]
    assert (MessageState.DEFERRED, 1) == (first.state, first.delivery_count)
    assert 1 == book.ask(GetEntity(CLIENT, "get", "q")).deferred_count


@pytest.mark.parametrize("settlement", [ABANDON, DEFER])
def test_what_counts_can_be_the_last_straw(settlement):
    """A maximum delivery count of one dead-letters on the first failure, deferral included."""
    book = Playbook(QueueDefinition(max_delivery_count=1))
    book.run(send("a"), credit(1))
    assert book >> Settle(R, [T1], ["h"], settlement) << updated(1) << Settled(R, ["h"], settlement)
    assert "MaxDeliveryCountExceeded" == only(book, DEAD).changes.dead_letter_reason


def test_release_never_dead_letters():
    """It is no failure, however often."""
    book = Playbook(QueueDefinition(max_delivery_count=1))
    book.run(send("a"), credit(1))
    for number in range(1, 5):
        assert [1] == [
            m.sequence_number
            for m in book.deliveries(Settle(R, [token(number)], ["h"], RELEASE), credit(number + 1))
        ]


def test_lost_and_live_locks_are_told_apart(book):
    """Tokens are independent; what is lost changes nothing."""
    book.run(Settle(R, [T1], ["h"], COMPLETE))
    assert (
        book
        >> Settle(R, [T1, T2, T3], ["h1", "h2", "h3"], COMPLETE)
        << deleted(2)
        << SettleRefused(R, ["h1", "h3"], MessageLockLost)
        << Settled(R, ["h2"], COMPLETE)
    )


def test_a_token_given_twice_settles_once(book):
    """The second has nothing left to settle."""
    assert (
        book
        >> Settle(R, [T1, T1], ["h1", "h2"], COMPLETE)
        << deleted(1)
        << SettleRefused(R, ["h2"], MessageLockLost)
        << Settled(R, ["h1"], COMPLETE)
    )


def test_a_settled_disposition_is_applied_in_silence(book):
    """Handles of None get no answer, whether it worked or not."""
    assert book >> Settle(R, [T1], [None], COMPLETE) << deleted(1)
    assert book >> Settle(R, [T1], [None], COMPLETE)


def test_an_old_token_is_worth_nothing_after_redelivery(book):
    """Each delivery has its own."""
    book.run(Settle(R, [T1], ["h"], ABANDON), credit(3))
    refused = SettleRefused(R, ["h"], MessageLockLost)
    assert book >> Settle(R, [T1], ["h"], COMPLETE) << refused
    assert book >> Settle(R, [T3], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)


def test_any_link_of_the_queue_may_settle(book):
    """Locks are held by the queue."""
    book.run(attach_receiver(OTHER))
    assert (
        book
        >> Settle(OTHER, [T1], ["h"], COMPLETE)
        << deleted(1)
        << Settled(OTHER, ["h"], COMPLETE)
    )


def test_a_stranger_settles_nothing(book):
    """A link that was never attached."""
    refused = SettleRefused(OTHER, ["h"], MessageLockLost)
    assert book >> Settle(OTHER, [T1], ["h"], COMPLETE) << refused


# --- by token through management -------------------------------------------------------------------


def test_settling_by_token_needs_no_link(book):
    """Whichever link the lock was given to, even one that is gone."""
    book.run(Detach([R]))
    request = SettleByToken(CLIENT, "x", "q", [T1, T2], COMPLETE)
    assert book >> request << deleted(1, 2) << Reply(CLIENT, "x")


def test_settling_by_token_is_all_or_nothing(book):
    """One lost lock refuses all."""
    book.run(Settle(R, [T1], ["h"], COMPLETE))
    request = SettleByToken(CLIENT, "x", "q", [T1, T2], COMPLETE)
    assert book >> request << Reply(CLIENT, "x", None, MessageLockLost)
    assert book >> Settle(R, [T2], ["h"], COMPLETE) << deleted(2) << Settled(R, ["h"], COMPLETE)


def test_settling_by_token_refuses_as_a_link_does(book):
    """No such entity; dead-lettering dead letters."""
    nowhere = SettleByToken(CLIENT, "x", "nowhere", [T1], COMPLETE)
    assert book >> nowhere << Reply(CLIENT, "x", None, EntityNotFound)
    again = SettleByToken(CLIENT, "x", DEAD, [T1], DEAD_LETTER)
    assert book >> again << Reply(CLIENT, "x", None, NotAllowed)


# --- connections and links that end -----------------------------------------------------------------


def test_a_lost_connection_drops_its_locks_each_a_failed_delivery(book):
    """At once, and in order."""
    book.run(attach_receiver(OTHER), credit(5, to=OTHER))
    assert (
        book
        >> Detach([R], connection_lost=True)
        << updated(1, 2)
        << Deliver(OTHER, [1, 2], [T3, T4])
    )
    assert [1, 1] == [m.delivery_count for m in book.ask(Peek(CLIENT, "peek", "q", 0, 5))]


def test_a_message_that_crashes_its_consumer_ends_as_dead_letter():
    """Because each lost connection counts."""
    book = Playbook(QueueDefinition(max_delivery_count=2))
    book.run(send("a"), credit(1))
    book.run(Detach([R], connection_lost=True))
    book.run(attach_receiver(R), credit(1))
    book.run(Detach([R], connection_lost=True))
    assert "MaxDeliveryCountExceeded" == only(book, DEAD).changes.dead_letter_reason


def test_a_detached_link_leaves_its_locks_standing(book):
    """They expire in their time."""
    assert book >> Detach([R])
    book.run(attach_receiver(OTHER))
    assert book >> credit(5, to=OTHER)
    assert book >> Advance(30_000) << updated(1, 2) << Deliver(OTHER, [1, 2], [T3, T4])


def test_locks_of_a_link_detached_earlier_go_with_its_connection(book):
    """The connection's end is the end of all locks taken through it."""
    book.run(Detach([R]))
    assert book >> Detach([R], connection_lost=True) << updated(1, 2)


def test_detached_receivers_are_forgotten_when_their_locks_are():
    """Links come and go by the thousand on one connection."""
    book = Playbook()
    book.run(send(*["m"] * 100))
    for number in range(100):
        peer = Named(f"R{number}")
        book.run(attach_receiver(peer), credit(1, to=peer))
        book.run(Detach([peer]), Settle(peer, [token(number + 1)], ["h"], COMPLETE))
    book.turns.clear()
    links = book.namespace._links
    assert [R] == [*links._receivers, *links._lingering]


def test_locks_can_be_held_after_a_lost_connection():
    """A setting, for those who want the cloud's patience."""
    book = Playbook(hold_locks=True)
    book.run(send("a"), credit(1))
    assert book >> Detach([R], connection_lost=True)
    assert book >> Advance(30_000) << updated(1)


@pytest.mark.parametrize(
    "end",
    [
        Settle(OTHER, [T2], ["h"], ABANDON),
        Settle(OTHER, [T2], ["h"], DEFER),
        SettleByToken(CLIENT, "x", DEAD, [T2], ABANDON),
        Advance(30_000),
        Detach([OTHER], connection_lost=True),
    ],
    ids=["abandon", "defer", "abandon by token", "expire", "break"],
)
def test_nothing_counts_in_a_dead_letter_queue(end):
    """The number a message died with stays, whatever ends its lock."""
    book = Playbook(QueueDefinition(max_delivery_count=2))
    book.run(send("a"), credit(1))
    book.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    book.run(attach_receiver(OTHER, DEAD), credit(1, to=OTHER))
    book.run(end)
    dead = only(book, DEAD)
    assert (0, None) == (dead.delivery_count, dead.lock_token)


def test_settlements_leave_nothing_behind(book):
    """No lock, no deadline, no count, no size: flat cost needs clean books."""
    book.run(Settle(R, [T1], ["h"], ABANDON), credit(3))
    book.run(Settle(R, [T2, T3], ["h", "i"], COMPLETE))
    view = book.ask(GetEntity(CLIENT, "get", "q"))
    assert (0, 0, 0) == (view.active_count, view.locked_count, view.size_bytes)
    assert book.namespace.next_deadline_ms() is None
    assert ["c"] == [text_of(m) for m in book.deliveries(send("c"), credit(4))]
