"""What each settlement does, and what becomes of locks that end without one."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import Detach, GetEntity, Peek, Settle, SettleByToken
from broker.core.contract.errors import EntityNotFound, MessageLockLost, NotAllowed
from broker.core.contract.message import MessageState
from broker.core.contract.settlement_values import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Settlement,
    SettlementKind,
)
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
    T1,
    T2,
    T3,
    T4,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
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

OTHER = NamedPeer("OTHER")
DEAD = "q/$DeadLetterQueue"


@pytest.fixture
def dialogue():
    """A queue with `a` and `b` delivered to R under T1 and T2, and no credit left."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b"), credit(2))
    return dialogue


def only(dialogue, path="q"):
    (message,) = dialogue.ask(Peek(CLIENT, "peek", path, 0, 10))
    return message


def test_complete_removes_the_message(dialogue):
    """One record and one answer for all."""
    assert (
        dialogue
        >> Settle(R, [T1, T2], ["h1", "h2"], COMPLETE)
        << deleted(1, 2)
        << Settled(R, ["h1", "h2"], COMPLETE)
    )
    assert [] == dialogue.ask(Peek(CLIENT, "peek", "q", 0, 10))


def test_abandon_counts_and_returns_at_once(dialogue):
    """The same message comes next."""
    assert (
        dialogue
        >> Settle(R, [T1], ["h"], ABANDON)
        << updated(1)
        << Settled(R, ["h"], ABANDON)
        >> credit(3)
        << Deliver(R, [1], [T3])
    )
    assert 1 == dialogue.ask(Peek(CLIENT, "peek", "q", 0, 1))[0].delivery_count


def test_release_returns_without_counting_or_writing(dialogue):
    """Nothing about the message has changed."""
    assert (
        dialogue
        >> Settle(R, [T1], ["h"], RELEASE)
        << Settled(R, ["h"], RELEASE)
        >> credit(3)
        << Deliver(R, [1], [T3])
    )
    assert 0 == dialogue.ask(Peek(CLIENT, "peek", "q", 0, 1))[0].delivery_count


def test_dead_letter_moves_with_reason_description_and_properties(dialogue):
    """The message in the sub-queue has a new sequence number, and its old enqueued time."""
    settlement = Settlement(
        SettlementKind.DEAD_LETTER, {"why": b"because"}, reason="Bad", description="Very bad"
    )
    sent_ms = dialogue.now_ms
    dialogue.run(Advance(1_000))
    assert (
        dialogue
        >> Settle(R, [T2], ["h"], settlement)
        << updated(2)
        << Settled(R, ["h"], settlement)
    )
    dead = only(dialogue, DEAD)
    assert ("Bad", "Very bad") == (
        dead.changes.dead_letter_reason,
        dead.changes.dead_letter_description,
    )
    assert {"why": b"because"} == dead.changes.properties
    assert (1, 2) == (dead.sequence_number, dead.enqueue_sequence_number)
    assert sent_ms == dead.enqueued_time_ms


def test_dead_lettering_without_reason_is_dead_lettering(dialogue):
    """.NET sends none."""
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    assert only(dialogue, DEAD).changes.dead_letter_reason is None


def test_properties_to_modify_add_up(dialogue):
    """Later values win; others stay."""
    for lock, properties in ((T1, {"x": b"1", "y": b"1"}), (T3, {"y": b"2", "z": None})):
        settlement = Settlement(SettlementKind.ABANDON, properties)
        dialogue.run(Settle(R, [lock], ["h"], settlement), credit(3))
    first = dialogue.ask(Peek(CLIENT, "peek", "q", 0, 1))[0]
    assert {"x": b"1", "y": b"2", "z": None} == first.changes.properties


def test_defer_sets_aside_and_counts(dialogue):
    """Skipped by receivers; still there to peek."""
    assert dialogue >> Settle(R, [T1], ["h"], DEFER) << updated(1) << Settled(R, ["h"], DEFER)
    assert dialogue >> credit(5)
    first = dialogue.ask(Peek(CLIENT, "peek", "q", 0, 1))[0]
    assert (MessageState.DEFERRED, 1) == (first.state, first.delivery_count)
    assert 1 == dialogue.ask(GetEntity(CLIENT, "get", "q")).deferred_count


@pytest.mark.parametrize("settlement", [ABANDON, DEFER])
def test_what_counts_can_be_the_last_straw(settlement):
    """A maximum delivery count of one dead-letters on the first failure, deferral included."""
    dialogue = CoreDialogue(QueueDefinition(max_delivery_count=1))
    dialogue.run(send("a"), credit(1))
    assert (
        dialogue
        >> Settle(R, [T1], ["h"], settlement)
        << updated(1)
        << Settled(R, ["h"], settlement)
    )
    assert "MaxDeliveryCountExceeded" == only(dialogue, DEAD).changes.dead_letter_reason


def test_release_never_dead_letters():
    """It is no failure, however often."""
    dialogue = CoreDialogue(QueueDefinition(max_delivery_count=1))
    dialogue.run(send("a"), credit(1))
    for number in range(1, 5):
        assert [1] == [
            m.sequence_number
            for m in dialogue.deliveries(
                Settle(R, [token(number)], ["h"], RELEASE), credit(number + 1)
            )
        ]


def test_lost_and_live_locks_get_different_answers(dialogue):
    """Tokens are independent; what is lost changes nothing."""
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    assert (
        dialogue
        >> Settle(R, [T1, T2, T3], ["h1", "h2", "h3"], COMPLETE)
        << deleted(2)
        << SettleRefused(R, ["h1", "h3"], MessageLockLost)
        << Settled(R, ["h2"], COMPLETE)
    )


def test_a_token_given_twice_settles_once(dialogue):
    """The second has nothing left to settle."""
    assert (
        dialogue
        >> Settle(R, [T1, T1], ["h1", "h2"], COMPLETE)
        << deleted(1)
        << SettleRefused(R, ["h2"], MessageLockLost)
        << Settled(R, ["h1"], COMPLETE)
    )


def test_a_settled_disposition_is_applied_in_silence(dialogue):
    """Handles of None get no answer, whether it worked or not."""
    assert dialogue >> Settle(R, [T1], [None], COMPLETE) << deleted(1)
    assert dialogue >> Settle(R, [T1], [None], COMPLETE)


def test_an_old_token_is_worth_nothing_after_redelivery(dialogue):
    """Each delivery has its own."""
    dialogue.run(Settle(R, [T1], ["h"], ABANDON), credit(3))
    refused = SettleRefused(R, ["h"], MessageLockLost)
    assert dialogue >> Settle(R, [T1], ["h"], COMPLETE) << refused
    assert dialogue >> Settle(R, [T3], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)


def test_any_link_of_the_queue_may_settle(dialogue):
    """Locks are held by the queue."""
    dialogue.run(attach_receiver(OTHER))
    assert (
        dialogue
        >> Settle(OTHER, [T1], ["h"], COMPLETE)
        << deleted(1)
        << Settled(OTHER, ["h"], COMPLETE)
    )


def test_a_stranger_settles_nothing(dialogue):
    """A link that was never attached."""
    refused = SettleRefused(OTHER, ["h"], MessageLockLost)
    assert dialogue >> Settle(OTHER, [T1], ["h"], COMPLETE) << refused


# --- by token through management -------------------------------------------------------------------


def test_settling_by_token_needs_no_link(dialogue):
    """Any link may have locked the message, also one that is detached."""
    dialogue.run(Detach([R]))
    request = SettleByToken(CLIENT, "x", "q", [T1, T2], COMPLETE)
    assert dialogue >> request << deleted(1, 2) << Reply(CLIENT, "x")


def test_settling_by_token_is_all_or_nothing(dialogue):
    """One lost lock refuses all."""
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    request = SettleByToken(CLIENT, "x", "q", [T1, T2], COMPLETE)
    assert dialogue >> request << Reply(CLIENT, "x", None, MessageLockLost)
    assert dialogue >> Settle(R, [T2], ["h"], COMPLETE) << deleted(2) << Settled(R, ["h"], COMPLETE)


def test_settling_by_token_refuses_as_a_link_does(dialogue):
    """No such entity; dead-lettering dead letters."""
    nowhere = SettleByToken(CLIENT, "x", "nowhere", [T1], COMPLETE)
    assert dialogue >> nowhere << Reply(CLIENT, "x", None, EntityNotFound)
    again = SettleByToken(CLIENT, "x", DEAD, [T1], DEAD_LETTER)
    assert dialogue >> again << Reply(CLIENT, "x", None, NotAllowed)


# --- connections and links that end -----------------------------------------------------------------


def test_a_lost_connection_drops_its_locks_each_a_failed_delivery(dialogue):
    """At once, and in order."""
    dialogue.run(attach_receiver(OTHER), credit(5, to=OTHER))
    assert (
        dialogue
        >> Detach([R], connection_lost=True)
        << updated(1, 2)
        << Deliver(OTHER, [1, 2], [T3, T4])
    )
    assert [1, 1] == [m.delivery_count for m in dialogue.ask(Peek(CLIENT, "peek", "q", 0, 5))]


def test_a_message_that_crashes_its_consumer_ends_as_dead_letter():
    """Because each lost connection counts."""
    dialogue = CoreDialogue(QueueDefinition(max_delivery_count=2))
    dialogue.run(send("a"), credit(1))
    dialogue.run(Detach([R], connection_lost=True))
    dialogue.run(attach_receiver(R), credit(1))
    dialogue.run(Detach([R], connection_lost=True))
    assert "MaxDeliveryCountExceeded" == only(dialogue, DEAD).changes.dead_letter_reason


def test_a_detached_link_leaves_its_locks_standing(dialogue):
    """They expire in their time."""
    assert dialogue >> Detach([R])
    dialogue.run(attach_receiver(OTHER))
    assert dialogue >> credit(5, to=OTHER)
    assert dialogue >> Advance(30_000) << updated(1, 2) << Deliver(OTHER, [1, 2], [T3, T4])


def test_locks_of_a_link_detached_earlier_go_with_its_connection(dialogue):
    """The connection's end is the end of all locks taken through it."""
    dialogue.run(Detach([R]))
    assert dialogue >> Detach([R], connection_lost=True) << updated(1, 2)


def test_detached_receivers_are_forgotten_when_their_locks_are():
    """One connection may attach and detach thousands of links."""
    dialogue = CoreDialogue()
    dialogue.run(send(*["m"] * 100))
    for number in range(100):
        peer = NamedPeer(f"R{number}")
        dialogue.run(attach_receiver(peer), credit(1, to=peer))
        dialogue.run(Detach([peer]), Settle(peer, [token(number + 1)], ["h"], COMPLETE))
    dialogue.turns.clear()
    links = dialogue.namespace._links
    assert [R] == [*links._receivers, *links._detached]


def test_locks_can_be_held_after_a_lost_connection():
    """With this setting, locks stay until they expire, as in the cloud."""
    dialogue = CoreDialogue(hold_locks=True)
    dialogue.run(send("a"), credit(1))
    assert dialogue >> Detach([R], connection_lost=True)
    assert dialogue >> Advance(30_000) << updated(1)


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
def test_delivery_counts_do_not_rise_in_a_dead_letter_queue(end):
    """The delivery count with which a message was dead-lettered stays, however its lock ends."""
    dialogue = CoreDialogue(QueueDefinition(max_delivery_count=2))
    dialogue.run(send("a"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    dialogue.run(attach_receiver(OTHER, DEAD), credit(1, to=OTHER))
    dialogue.run(end)
    dead = only(dialogue, DEAD)
    assert (0, None) == (dead.delivery_count, dead.lock_token)


def test_settlements_leave_nothing_behind(dialogue):
    """No lock, no deadline, no count, no size: flat cost needs clean books."""
    dialogue.run(Settle(R, [T1], ["h"], ABANDON), credit(3))
    dialogue.run(Settle(R, [T2, T3], ["h", "i"], COMPLETE))
    view = dialogue.ask(GetEntity(CLIENT, "get", "q"))
    assert (0, 0, 0) == (view.active_count, view.locked_count, view.size_bytes)
    assert dialogue.namespace.next_deadline_ms() is None
    assert ["c"] == [text_of(m) for m in dialogue.deliveries(send("c"), credit(4))]
