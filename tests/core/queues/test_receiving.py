"""What a receiver is promised: order, exclusive locks, credit, and no more than it asked for."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachReceiver,
    Detach,
    GetEntity,
    Peek,
    RenewLocks,
    Settle,
)
from broker.core.contract.errors import (
    EntityDisabled,
    EntityNotFound,
    MessageLockLost,
    NotAllowed,
    QuotaExceeded,
)
from broker.core.contract.settlement_values import COMPLETE, DEAD_LETTER, ReceiveMode
from broker.core.queues.receiver import BURST_MAX_BYTES, BURST_MAX_MESSAGES
from config.model.definitions import (
    EntityStatus,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import Limits
from tests.support.core_dialogue import (
    CLIENT,
    T1,
    T2,
    T3,
    Accepted,
    Advance,
    CoreDialogue,
    CreditNeeded,
    Deliver,
    Drained,
    NamedPeer,
    R,
    ReceiverAttached,
    Refused,
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


def test_peek_lock_delivers_in_order_and_writes_nothing():
    """A lock is memory only: a delivery costs no record."""
    assert (
        CoreDialogue()
        >> send("a", "b", "c")
        << stored(1, 2, 3)
        << Accepted(S, ["a", "b", "c"])
        >> credit(2)
        << Deliver(R, [1, 2], [T1, T2])
        >> credit(3)
        << Deliver(R, [3], [T3])
    )


def test_a_message_goes_out_in_the_turn_it_came_in():
    """Waiting credit meets an arriving message at once."""
    assert (
        CoreDialogue()
        >> credit(1)
        >> send("a")
        << stored(1)
        << Accepted(S, ["a"])
        << Deliver(R, [1], [T1])
    )


def test_receive_and_delete_writes_the_delete_before_delivering():
    """Consumed the moment it is put on the wire."""
    dialogue = CoreDialogue(attach=False)
    assert (
        dialogue >> attach_receiver(R, mode=ReceiveMode.RECEIVE_AND_DELETE) << ReceiverAttached(R)
    )
    dialogue = CoreDialogue()
    dialogue.run(attach_receiver(OTHER, mode=ReceiveMode.RECEIVE_AND_DELETE), send("a", "b"))
    assert dialogue >> credit(5, to=OTHER) << deleted(1, 2) << Deliver(OTHER, [1, 2], [None, None])
    assert [] == dialogue.ask(Peek(CLIENT, "peek", "q", 0, 10))


def test_a_locked_message_is_invisible_to_others():
    """Competing receivers get the next unlocked ones."""
    dialogue = CoreDialogue()
    dialogue.run(attach_receiver(OTHER), send("a", "b"))
    assert dialogue >> credit(1) << Deliver(R, [1], [T1])
    assert dialogue >> credit(5, to=OTHER) << Deliver(OTHER, [2], [T2])


def test_credit_is_never_exceeded():
    """Limits are absolute: repeating one grants nothing more."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b", "c"))
    assert dialogue >> credit(1) << Deliver(R, [1], [T1])
    assert dialogue >> credit(1)
    assert dialogue >> credit(0)
    assert dialogue >> credit(2) << Deliver(R, [2], [T2])


def test_credit_can_be_taken_back():
    """A lower limit stops deliveries that have not been made."""
    dialogue = CoreDialogue()
    dialogue.run(credit(5))
    dialogue.run(credit(0))
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"])


def test_receivers_take_turns():
    """One message each while there is credit. The receiver that gave credit first comes first."""
    dialogue = CoreDialogue()
    third = NamedPeer("third")
    dialogue.run(attach_receiver(OTHER), attach_receiver(third))
    dialogue.run(credit(10), credit(2, to=OTHER), credit(10, to=third))
    turn = dialogue.run(send(*"abcdefgh"))
    got = {e.to: "".join(map(text_of, e.messages)) for e in turn.effects if isinstance(e, Deliver)}
    assert 8 == sum(map(len, got.values()))
    assert "be" == got[OTHER]
    assert {3} == {len(got[R]), len(got[third])}


def test_the_next_in_turn_gets_the_next_message():
    """Fairness holds across turns, one message at a time."""
    dialogue = CoreDialogue()
    dialogue.run(attach_receiver(OTHER), credit(10), credit(10, to=OTHER))
    takers = []
    for text in "abcdef":
        turn = dialogue.run(send(text))
        takers += [e.to for e in turn.effects if isinstance(e, Deliver)]
    assert [R, OTHER, R, OTHER, R, OTHER] == takers


def test_a_burst_is_bounded_in_messages():
    """A receiver with much credit gets the other messages when it grants credit again."""
    dialogue = CoreDialogue()
    dialogue.run(send(*["m"] * (BURST_MAX_MESSAGES + 10)))
    assert BURST_MAX_MESSAGES == len(dialogue.deliveries(credit(5_000)))
    assert [] == dialogue.deliveries(send("more"))
    assert 11 == len(dialogue.deliveries(credit(5_000)))


def test_only_a_full_burst_asks_for_credit_again():
    """After any other delivery the receiver's credit still counts, so its link has nothing to say."""
    dialogue = CoreDialogue()
    dialogue.run(credit(5_000))
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"]) << Deliver(R, [1], [T1])
    turn = dialogue.run(send(*["m"] * (BURST_MAX_MESSAGES + 10)))
    assert [CreditNeeded(R)] == turn.effects[2:]


def test_a_burst_is_bounded_in_bytes():
    """Large messages too; at least one is always delivered."""
    dialogue = CoreDialogue()
    half = "h" * (BURST_MAX_BYTES // 2)
    dialogue.run(send(half, half, half, "x" * BURST_MAX_BYTES, "last"))
    assert 2 == len(dialogue.deliveries(credit(100)))
    assert 2 == len(dialogue.deliveries(credit(100)))
    assert 1 == len(dialogue.deliveries(credit(100)))


def test_others_get_what_a_full_receiver_cannot_take():
    """A burst that ends does not hold up the queue."""
    dialogue = CoreDialogue()
    dialogue.run(attach_receiver(OTHER))
    half = "h" * (BURST_MAX_BYTES // 2)
    dialogue.run(send(*[half] * 6))
    turn = dialogue.run(credit(100), credit(100, to=OTHER))
    assert 4 <= sum(len(e.messages) for e in turn.effects if isinstance(e, Deliver))


def test_draining_delivers_what_there_is_and_gives_back_the_rest():
    """All available messages are delivered, and the remaining credit is returned."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"))
    assert dialogue >> credit(5, drain=True) << Deliver(R, [1], [T1]) << Drained(R)
    assert dialogue >> send("b") << stored(2) << Accepted(S, ["b"])
    assert dialogue >> credit(2) << Deliver(R, [2], [T2])


def test_draining_an_empty_queue_is_answered_at_once():
    """Also with no credit at all: Python closes like that."""
    assert CoreDialogue() >> credit(0, drain=True) << Drained(R)
    assert CoreDialogue() >> credit(5, drain=True) << Drained(R)


def test_draining_takes_all_there_is_in_bursts():
    """No more than one burst is in flight, however many messages there are and however slow the
    receiver is."""
    dialogue = CoreDialogue()
    dialogue.run(send(*["m"] * (BURST_MAX_MESSAGES + 5)))
    turn = dialogue.run(credit(10_000, drain=True))
    assert BURST_MAX_MESSAGES == len(turn.effects[0].messages)
    assert [CreditNeeded(R)] == turn.effects[1:]
    turn = dialogue.run(credit(10_000, drain=True))
    assert 5 == len(turn.effects[0].messages)
    assert [Drained(R)] == turn.effects[1:]


def test_draining_ends_with_the_credit():
    """Nothing is left to ask for, also where a burst ends there."""
    dialogue = CoreDialogue()
    dialogue.run(send(*["m"] * (BURST_MAX_MESSAGES + 5)))
    turn = dialogue.run(credit(BURST_MAX_MESSAGES, drain=True))
    assert BURST_MAX_MESSAGES == len(turn.effects[0].messages)
    assert [Drained(R)] == turn.effects[1:]


def test_a_detached_receiver_gets_nothing():
    """Its credit is gone with it."""
    dialogue = CoreDialogue()
    dialogue.run(credit(5), Detach([R]))
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"])


# --- who may receive -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("nowhere", EntityNotFound),
        ("nowhere/$DeadLetterQueue", EntityNotFound),
        ("t", NotAllowed),
    ],
)
def test_receivers_need_a_queue_of_messages(path, error):
    """Topics keep none."""
    dialogue = CoreDialogue(entities={"t": TopicDefinition()}, attach=False)
    assert dialogue >> attach_receiver(R, path) << Refused(R, error)


@pytest.mark.parametrize(
    "path",
    [
        "q",
        "Q/$DeadLetterQueue",
        "q/$deadletterqueue",
        "q/$Transfer/$DeadLetterQueue",
        "t/subscriptions/S",
        "t/Subscriptions/s/$DeadLetterQueue",
    ],
)
def test_queues_subscriptions_and_sub_queues_take_receivers(path):
    """In any spelling."""
    dialogue = CoreDialogue(
        entities={
            "q": QueueDefinition(),
            "t": TopicDefinition(),
            "t/Subscriptions/s": SubscriptionDefinition(),
        },
        attach=False,
    )
    assert dialogue >> attach_receiver(R, path) << ReceiverAttached(R)


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED])
def test_a_disabled_entity_takes_no_receivers(status):
    """`com.microsoft:entity-disabled`."""
    dialogue = CoreDialogue(QueueDefinition(status=status), attach=False)
    assert dialogue >> attach_receiver(R) << Refused(R, EntityDisabled)


def test_a_session_receiver_needs_sessions():
    """On a plain entity it is refused."""
    dialogue = CoreDialogue(attach=False)
    assert dialogue >> attach_receiver(R, session="x") << Refused(R, NotAllowed)


def test_a_plain_receiver_is_refused_where_sessions_are_required():
    """It would get messages of sessions it does not hold."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True), attach=False)
    assert dialogue >> attach_receiver(R) << Refused(R, NotAllowed)


def test_the_dead_letter_queue_of_a_session_entity_has_no_sessions():
    """It is received from like any other."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True), attach=False)
    assert dialogue >> attach_receiver(R, "q/$DeadLetterQueue") << ReceiverAttached(R)


def test_receivers_of_an_entity_are_bounded():
    """One more than the limit is refused."""
    dialogue = CoreDialogue(limits=Limits(receivers_per_entity_max=1))
    assert dialogue >> attach_receiver(OTHER) << Refused(OTHER, QuotaExceeded)
    dialogue.run(Detach([R]))
    assert dialogue >> attach_receiver(OTHER) << ReceiverAttached(OTHER)


# --- locks -----------------------------------------------------------------------------------------


def test_an_expired_lock_returns_the_message_to_the_front():
    """Counted as a failed delivery, and before everything later."""
    dialogue = CoreDialogue(QueueDefinition(lock_duration_ms=30_000))
    dialogue.run(send("a", "b", "c"))
    assert dialogue >> credit(1) << Deliver(R, [1], [T1])
    assert dialogue >> Advance(29_999)
    assert dialogue >> Advance(1) << updated(1)
    assert dialogue >> credit(3) << Deliver(R, [1, 2], [T2, T3])
    assert 1 == dialogue.ask(Peek(CLIENT, "peek", "q", 1, 1))[0].delivery_count


def test_messages_come_back_in_their_old_order():
    """The order in which they are released does not matter."""
    dialogue = CoreDialogue()
    dialogue.run(attach_receiver(OTHER), send(*"abcd"))
    dialogue.run(credit(2))
    dialogue.run(Advance(1_000), credit(2, to=OTHER))
    dialogue.run(Advance(30_000))
    assert ["a", "b", "c", "d"] == [text_of(m) for m in dialogue.deliveries(credit(6))]


def test_settling_after_expiry_is_refused():
    """Even before any timer has fired: time alone decides."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(1))
    dialogue.now_ms += 30_000
    turn = dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    (refused,) = [e for e in turn.effects if not isinstance(e, Deliver)]
    assert isinstance(refused.error, MessageLockLost)
    assert ["h"] == refused.handles


def test_renewing_extends_the_lock_from_now():
    """Any number of times."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(1))
    for _ in range(3):
        dialogue.run(Advance(20_000))
        assert [dialogue.now_ms + 30_000] == dialogue.ask(RenewLocks(CLIENT, "r", "q", [T1]))
    assert dialogue >> Settle(R, [T1], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)


def test_renewing_a_lost_lock_is_refused_and_renews_none():
    """All or nothing."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b"), credit(2))
    dialogue.run(Settle(R, [T2], ["h"], COMPLETE))
    with pytest.raises(MessageLockLost):
        dialogue.ask(RenewLocks(CLIENT, "r", "q", [T1, T2]))
    assert dialogue >> Advance(30_000) << updated(1)


def test_a_changed_lock_duration_is_used_for_the_next_lock():
    """Set per queue."""
    dialogue = CoreDialogue(QueueDefinition(lock_duration_ms=5_000))
    dialogue.run(send("a"), credit(1))
    assert dialogue >> Advance(5_000) << updated(1)


def test_the_tenth_failed_delivery_dead_letters():
    """When the count reaches the maximum, with reason and description."""
    dialogue = CoreDialogue(QueueDefinition(max_delivery_count=2))
    dialogue.run(send("a"), credit(10))
    assert dialogue >> Advance(30_000) << updated(1) << Deliver(R, [1], [T2])
    assert dialogue >> Advance(30_000) << updated(1)
    (dead,) = dialogue.ask(Peek(CLIENT, "peek", "q/$DeadLetterQueue", 0, 10))
    assert "MaxDeliveryCountExceeded" == dead.changes.dead_letter_reason
    assert "Message could not be consumed after 2 delivery attempts." == (
        dead.changes.dead_letter_description
    )
    assert 2 == dead.delivery_count
    view = dialogue.ask(GetEntity(CLIENT, "get", "q"))
    assert (0, 1) == (view.active_count, view.dead_letter_count)


# --- in a dead-letter queue --------------------------------------------------------------------------


@pytest.fixture
def dead_letters():
    """A dialogue whose `q/$DeadLetterQueue` holds one message, received by OTHER."""
    dialogue = CoreDialogue(QueueDefinition(max_delivery_count=1))
    dialogue.run(send("a"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    dialogue.run(attach_receiver(OTHER, "q/$DeadLetterQueue"), credit(10, to=OTHER))
    return dialogue


def test_lock_expiry_in_a_dead_letter_queue_does_not_count(dead_letters):
    """And there is no maximum delivery count."""
    for _ in range(3):
        (delivered,) = dead_letters.deliveries(Advance(30_000))
        assert 0 == delivered.delivery_count


def test_a_dead_letter_cannot_be_dead_lettered_again(dead_letters):
    """Refused, and still locked."""
    turn = dead_letters.run(Settle(OTHER, [T2], ["h"], DEAD_LETTER))
    assert isinstance(turn.effects[0].error, NotAllowed)
    assert (
        dead_letters
        >> Settle(OTHER, [T2], ["h"], COMPLETE)
        << deleted(1)
        << Settled(OTHER, ["h"], COMPLETE)
    )


def test_a_receiver_of_another_mode_can_share_the_queue():
    """Modes belong to receivers, not to queues."""
    dialogue = CoreDialogue()
    dialogue.run(AttachReceiver(OTHER, "q", ReceiveMode.RECEIVE_AND_DELETE), send("a", "b"))
    assert dialogue >> credit(1) << Deliver(R, [1], [T1])
    assert dialogue >> credit(1, to=OTHER) << deleted(2) << Deliver(OTHER, [2], [None])


def test_a_message_without_properties_needs_no_reading():
    """A plain queue takes what no reader could read: bodies stay bytes."""
    dialogue = CoreDialogue()
    assert ["undecodable"] == [
        text_of(m) for m in dialogue.deliveries(send("undecodable"), credit(1))
    ]
    assert message().body is not None
