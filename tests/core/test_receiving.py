"""What a receiver is promised: order, exclusive locks, credit, and no more than it asked for."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    COMPLETE,
    DEAD_LETTER,
    AttachReceiver,
    Detach,
    GetEntity,
    Peek,
    ReceiveMode,
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
from broker.core.queues.dispatcher import BURST_MAX_BYTES, BURST_MAX_MESSAGES
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
    Deliver,
    Drained,
    DrainGoesOn,
    Named,
    Playbook,
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

OTHER = Named("OTHER")


def test_peek_lock_delivers_in_order_and_writes_nothing():
    """A lock is memory only: a delivery costs no record."""
    assert (
        Playbook()
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
        Playbook()
        >> credit(1)
        >> send("a")
        << stored(1)
        << Accepted(S, ["a"])
        << Deliver(R, [1], [T1])
    )


def test_receive_and_delete_writes_the_delete_before_delivering():
    """Consumed the moment it is put on the wire."""
    book = Playbook(attach=False)
    assert book >> attach_receiver(R, mode=ReceiveMode.RECEIVE_AND_DELETE) << ReceiverAttached(R)
    book = Playbook()
    book.run(attach_receiver(OTHER, mode=ReceiveMode.RECEIVE_AND_DELETE), send("a", "b"))
    assert book >> credit(5, to=OTHER) << deleted(1, 2) << Deliver(OTHER, [1, 2], [None, None])
    assert [] == book.ask(Peek(CLIENT, "peek", "q", 0, 10))


def test_a_locked_message_is_invisible_to_others():
    """Competing receivers get the next unlocked ones."""
    book = Playbook()
    book.run(attach_receiver(OTHER), send("a", "b"))
    assert book >> credit(1) << Deliver(R, [1], [T1])
    assert book >> credit(5, to=OTHER) << Deliver(OTHER, [2], [T2])


def test_credit_is_never_exceeded():
    """Limits are absolute: repeating one grants nothing more."""
    book = Playbook()
    book.run(send("a", "b", "c"))
    assert book >> credit(1) << Deliver(R, [1], [T1])
    assert book >> credit(1)
    assert book >> credit(0)
    assert book >> credit(2) << Deliver(R, [2], [T2])


def test_credit_can_be_taken_back():
    """A lower limit stops deliveries that have not been made."""
    book = Playbook()
    book.run(credit(5))
    book.run(credit(0))
    assert book >> send("a") << stored(1) << Accepted(S, ["a"])


def test_receivers_take_turns():
    """One message each as long as credit lasts, whoever asked first going first."""
    book = Playbook()
    third = Named("third")
    book.run(attach_receiver(OTHER), attach_receiver(third))
    book.run(credit(10), credit(2, to=OTHER), credit(10, to=third))
    turn = book.run(send(*"abcdefgh"))
    got = {e.to: "".join(map(text_of, e.messages)) for e in turn.effects if isinstance(e, Deliver)}
    assert 8 == sum(map(len, got.values()))
    assert "be" == got[OTHER]
    assert {3} == {len(got[R]), len(got[third])}


def test_the_next_in_turn_gets_the_next_message():
    """Fairness holds across turns, one message at a time."""
    book = Playbook()
    book.run(attach_receiver(OTHER), credit(10), credit(10, to=OTHER))
    takers = []
    for text in "abcdef":
        turn = book.run(send(text))
        takers += [e.to for e in turn.effects if isinstance(e, Deliver)]
    assert [R, OTHER, R, OTHER, R, OTHER] == takers


def test_a_burst_is_bounded_in_messages():
    """A receiver with much credit gets the rest when it asks again."""
    book = Playbook()
    book.run(send(*["m"] * (BURST_MAX_MESSAGES + 10)))
    assert BURST_MAX_MESSAGES == len(book.deliveries(credit(5_000)))
    assert [] == book.deliveries(send("more"))
    assert 11 == len(book.deliveries(credit(5_000)))


def test_a_burst_is_bounded_in_bytes():
    """Large messages too; at least one is always delivered."""
    book = Playbook()
    half = "h" * (BURST_MAX_BYTES // 2)
    book.run(send(half, half, half, "x" * BURST_MAX_BYTES, "last"))
    assert 2 == len(book.deliveries(credit(100)))
    assert 2 == len(book.deliveries(credit(100)))
    assert 1 == len(book.deliveries(credit(100)))


def test_others_get_what_a_full_receiver_cannot_take():
    """A burst that ends does not hold up the queue."""
    book = Playbook()
    book.run(attach_receiver(OTHER))
    half = "h" * (BURST_MAX_BYTES // 2)
    book.run(send(*[half] * 6))
    turn = book.run(credit(100), credit(100, to=OTHER))
    assert 4 <= sum(len(e.messages) for e in turn.effects if isinstance(e, Deliver))


def test_draining_delivers_what_there_is_and_gives_back_the_rest():
    """What was available has been delivered; the rest of the credit is gone."""
    book = Playbook()
    book.run(send("a"))
    assert book >> credit(5, drain=True) << Deliver(R, [1], [T1]) << Drained(R)
    assert book >> send("b") << stored(2) << Accepted(S, ["b"])
    assert book >> credit(2) << Deliver(R, [2], [T2])


def test_draining_an_empty_queue_is_answered_at_once():
    """Also with no credit at all: Python closes like that."""
    assert Playbook() >> credit(0, drain=True) << Drained(R)
    assert Playbook() >> credit(5, drain=True) << Drained(R)


def test_draining_takes_all_there_is_in_bursts():
    """However much there is, and however slow the receiver, no more than a burst is on its way."""
    book = Playbook()
    book.run(send(*["m"] * (BURST_MAX_MESSAGES + 5)))
    turn = book.run(credit(10_000, drain=True))
    assert BURST_MAX_MESSAGES == len(turn.effects[0].messages)
    assert [DrainGoesOn(R)] == turn.effects[1:]
    turn = book.run(credit(10_000, drain=True))
    assert 5 == len(turn.effects[0].messages)
    assert [Drained(R)] == turn.effects[1:]


def test_draining_ends_with_the_credit():
    """Nothing is left to ask for, also where a burst ends there."""
    book = Playbook()
    book.run(send(*["m"] * (BURST_MAX_MESSAGES + 5)))
    turn = book.run(credit(BURST_MAX_MESSAGES, drain=True))
    assert BURST_MAX_MESSAGES == len(turn.effects[0].messages)
    assert [Drained(R)] == turn.effects[1:]


def test_a_detached_receiver_gets_nothing():
    """Its credit is gone with it."""
    book = Playbook()
    book.run(credit(5), Detach([R]))
    assert book >> send("a") << stored(1) << Accepted(S, ["a"])


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
    book = Playbook(entities={"t": TopicDefinition()}, attach=False)
    assert book >> attach_receiver(R, path) << Refused(R, error)


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
    book = Playbook(
        entities={
            "q": QueueDefinition(),
            "t": TopicDefinition(),
            "t/Subscriptions/s": SubscriptionDefinition(),
        },
        attach=False,
    )
    assert book >> attach_receiver(R, path) << ReceiverAttached(R)


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED])
def test_a_disabled_entity_takes_no_receivers(status):
    """`com.microsoft:entity-disabled`."""
    book = Playbook(QueueDefinition(status=status), attach=False)
    assert book >> attach_receiver(R) << Refused(R, EntityDisabled)


def test_a_session_receiver_needs_sessions():
    """On a plain entity it is refused."""
    book = Playbook(attach=False)
    assert book >> attach_receiver(R, session="x") << Refused(R, NotAllowed)


def test_a_plain_receiver_is_refused_where_sessions_are_required():
    """It would get messages of sessions it does not hold."""
    book = Playbook(QueueDefinition(requires_session=True), attach=False)
    assert book >> attach_receiver(R) << Refused(R, NotAllowed)


def test_the_dead_letter_queue_of_a_session_entity_has_no_sessions():
    """It is received from like any other."""
    book = Playbook(QueueDefinition(requires_session=True), attach=False)
    assert book >> attach_receiver(R, "q/$DeadLetterQueue") << ReceiverAttached(R)


def test_receivers_of_an_entity_are_bounded():
    """One more than the limit is refused."""
    book = Playbook(limits=Limits(receivers_per_entity_max=1))
    assert book >> attach_receiver(OTHER) << Refused(OTHER, QuotaExceeded)
    book.run(Detach([R]))
    assert book >> attach_receiver(OTHER) << ReceiverAttached(OTHER)


# --- locks -----------------------------------------------------------------------------------------


def test_an_expired_lock_returns_the_message_to_the_front():
    """Counted as a failed delivery, and before everything later."""
    book = Playbook(QueueDefinition(lock_duration_ms=30_000))
    book.run(send("a", "b", "c"))
    assert book >> credit(1) << Deliver(R, [1], [T1])
    assert book >> Advance(29_999)
    assert book >> Advance(1) << updated(1)
    assert book >> credit(3) << Deliver(R, [1, 2], [T2, T3])
    assert 1 == book.ask(Peek(CLIENT, "peek", "q", 1, 1))[0].delivery_count


def test_messages_come_back_in_their_old_order():
    """Whatever the order in which they were given back."""
    book = Playbook()
    book.run(attach_receiver(OTHER), send(*"abcd"))
    book.run(credit(2))
    book.run(Advance(1_000), credit(2, to=OTHER))
    book.run(Advance(30_000))
    assert ["a", "b", "c", "d"] == [text_of(m) for m in book.deliveries(credit(6))]


def test_settling_after_expiry_is_refused():
    """Even before any timer has fired: time alone decides."""
    book = Playbook()
    book.run(send("a"), credit(1))
    book.now_ms += 30_000
    turn = book.run(Settle(R, [T1], ["h"], COMPLETE))
    (refused,) = [e for e in turn.effects if not isinstance(e, Deliver)]
    assert isinstance(refused.error, MessageLockLost)
    assert ["h"] == refused.handles


def test_renewing_extends_the_lock_from_now():
    """Any number of times."""
    book = Playbook()
    book.run(send("a"), credit(1))
    for _ in range(3):
        book.run(Advance(20_000))
        assert [book.now_ms + 30_000] == book.ask(RenewLocks(CLIENT, "r", "q", [T1]))
    assert book >> Settle(R, [T1], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)


def test_renewing_a_lost_lock_is_refused_and_renews_none():
    """All or nothing."""
    book = Playbook()
    book.run(send("a", "b"), credit(2))
    book.run(Settle(R, [T2], ["h"], COMPLETE))
    with pytest.raises(MessageLockLost):
        book.ask(RenewLocks(CLIENT, "r", "q", [T1, T2]))
    assert book >> Advance(30_000) << updated(1)


def test_a_changed_lock_duration_is_used_for_the_next_lock():
    """Set per queue."""
    book = Playbook(QueueDefinition(lock_duration_ms=5_000))
    book.run(send("a"), credit(1))
    assert book >> Advance(5_000) << updated(1)


def test_the_tenth_failed_delivery_dead_letters():
    """When the count reaches the maximum, with reason and description."""
    book = Playbook(QueueDefinition(max_delivery_count=2))
    book.run(send("a"), credit(10))
    assert book >> Advance(30_000) << updated(1) << Deliver(R, [1], [T2])
    assert book >> Advance(30_000) << updated(1)
    (dead,) = book.ask(Peek(CLIENT, "peek", "q/$DeadLetterQueue", 0, 10))
    assert "MaxDeliveryCountExceeded" == dead.changes.dead_letter_reason
    assert "Message could not be consumed after 2 delivery attempts." == (
        dead.changes.dead_letter_description
    )
    assert 2 == dead.delivery_count
    view = book.ask(GetEntity(CLIENT, "get", "q"))
    assert (0, 1) == (view.active_count, view.dead_letter_count)


# --- in a dead-letter queue --------------------------------------------------------------------------


@pytest.fixture
def dead_letters():
    """A playbook whose `q/$DeadLetterQueue` holds one message, received by OTHER."""
    book = Playbook(QueueDefinition(max_delivery_count=1))
    book.run(send("a"), credit(1))
    book.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    book.run(attach_receiver(OTHER, "q/$DeadLetterQueue"), credit(10, to=OTHER))
    return book


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
    book = Playbook()
    book.run(AttachReceiver(OTHER, "q", ReceiveMode.RECEIVE_AND_DELETE), send("a", "b"))
    assert book >> credit(1) << Deliver(R, [1], [T1])
    assert book >> credit(1, to=OTHER) << deleted(2) << Deliver(OTHER, [2], [None])


def test_a_message_without_properties_needs_no_reading():
    """A plain queue takes what no reader could read: bodies stay bytes."""
    book = Playbook()
    assert ["undecodable"] == [text_of(m) for m in book.deliveries(send("undecodable"), credit(1))]
    assert message().body is not None
