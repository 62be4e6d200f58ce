"""Deferred messages: set aside, and fetched by number."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    Detach,
    GetEntity,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    Settle,
    SettleByToken,
)
from broker.core.contract.errors import ArgumentOutOfRange, MessageNotFound
from broker.core.contract.message import MessageState
from broker.core.contract.settlement_values import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    ReceiveMode,
)
from config.model.definitions import QueueDefinition
from config.model.limits import Limits
from tests.support.core_dialogue import (
    CLIENT,
    T1,
    T2,
    T3,
    T4,
    Advance,
    CoreDialogue,
    R,
    Reply,
    credit,
    deleted,
    message,
    send,
    text_of,
    updated,
)


def fetch(*numbers, mode=ReceiveMode.PEEK_LOCK):
    return ReceiveDeferred(CLIENT, "fetch", "q", numbers, mode)


@pytest.fixture
def dialogue():
    """A queue in which `a` and `b` are deferred and `c` is not."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b", "c"), credit(2))
    dialogue.run(Settle(R, [T1, T2], ["h", "i"], DEFER))
    return dialogue


def test_deferred_messages_are_fetched_and_locked_by_number(dialogue):
    """In the order asked for, each with a token."""
    (second, second_lock), (first, first_lock) = dialogue.ask(fetch(2, 1))
    assert [("b", T3), ("a", T4)] == [
        (text_of(second), second_lock),
        (text_of(first), first_lock),
    ]
    assert dialogue.now_ms + 30_000 == first.locked_until_ms


def test_a_fetched_message_is_settled_by_token(dialogue):
    """Gone when completed."""
    dialogue.ask(fetch(1))
    request = SettleByToken(CLIENT, "x", "q", [T3], COMPLETE)
    assert dialogue >> request << deleted(1) << Reply(CLIENT, "x")
    assert 1 == dialogue.ask(GetEntity(CLIENT, "get", "q")).deferred_count


def test_a_fetched_message_can_be_renewed(dialogue):
    """Its lock is like any other."""
    dialogue.ask(fetch(1))
    dialogue.run(Advance(20_000))
    assert [dialogue.now_ms + 30_000] == dialogue.ask(RenewLocks(CLIENT, "r", "q", [T3]))


@pytest.mark.parametrize(("settlement", "count"), [(ABANDON, 2), (RELEASE, 1), (DEFER, 2)])
def test_given_back_it_stays_deferred(dialogue, settlement, count):
    """No receiver ever gets it by itself again."""
    dialogue.ask(fetch(1))
    dialogue.ask(SettleByToken(CLIENT, "x", "q", [T3], settlement))
    assert ["c"] == [text_of(m) for m in dialogue.deliveries(credit(9))]
    first = dialogue.ask(Peek(CLIENT, "p", "q", 0, 1))[0]
    assert (MessageState.DEFERRED, count) == (first.state, first.delivery_count)
    assert 2 == dialogue.ask(GetEntity(CLIENT, "get", "q")).deferred_count
    assert 1 == len(dialogue.ask(fetch(1)))


def test_an_expired_lock_leaves_it_deferred_and_counts(dialogue):
    """Then it can be fetched again."""
    dialogue.ask(fetch(1))
    assert dialogue >> Advance(30_000) << updated(1)
    ((first, _),) = dialogue.ask(fetch(1))
    assert 2 == first.delivery_count


def test_a_fetched_message_can_be_dead_lettered(dialogue):
    """And is an ordinary dead letter then."""
    dialogue.ask(fetch(1))
    dialogue.ask(SettleByToken(CLIENT, "x", "q", [T3], DEAD_LETTER))
    (dead,) = dialogue.ask(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 5))
    assert MessageState.ACTIVE is dead.state
    assert 1 == dialogue.ask(GetEntity(CLIENT, "get", "q")).deferred_count


def test_fetched_in_receive_and_delete_it_is_gone(dialogue):
    """No token, no second chance."""
    turn = dialogue.run(fetch(1, mode=ReceiveMode.RECEIVE_AND_DELETE))
    ((first, lock),) = turn.effects[0].value
    assert ("a", None) == (text_of(first), lock)
    assert [(1,)] == [tuple(record.ids) for record in turn.records]


@pytest.mark.parametrize("numbers", [(3,), (1, 3), (99,), (1, 99)])
def test_fetching_is_all_or_nothing(dialogue, numbers):
    """A number that is active or absent refuses all of them."""
    with pytest.raises(MessageNotFound) as refusal:
        dialogue.ask(fetch(*numbers))
    assert "Failed to lock one or more specified messages." in str(refusal.value)
    assert 1 == len(dialogue.ask(fetch(1)))


def test_a_locked_message_cannot_be_fetched_again(dialogue):
    """Another receiver has locked it."""
    dialogue.ask(fetch(1))
    with pytest.raises(MessageNotFound):
        dialogue.ask(fetch(1))


def test_fetching_is_bounded():
    """More than the limit is out of range."""
    dialogue = CoreDialogue(limits=Limits(receive_deferred_max_messages=1))
    with pytest.raises(ArgumentOutOfRange):
        dialogue.ask(fetch(1, 2))


@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_deferred_message_outlives_its_time_until_it_is_asked_for(dead_letters):
    """Then it has expired, and is dropped or dead-lettered like others."""
    dialogue = CoreDialogue(QueueDefinition(dead_lettering_on_expiration=dead_letters))
    dialogue.run(send(message("a", time_to_live_ms=10_000)), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEFER))
    assert dialogue >> Advance(20_000)
    assert 1 == len(dialogue.ask(Peek(CLIENT, "p", "q", 0, 5)))
    with pytest.raises(MessageNotFound):
        dialogue.ask(fetch(1))
    assert [] == dialogue.ask(Peek(CLIENT, "p", "q", 0, 5))
    dead = dialogue.ask(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 5))
    assert dead_letters == bool(dead)


@pytest.mark.parametrize(
    ("connection_lost", "count"), [(True, 2), (False, 1)], ids=["lost", "detached"]
)
def test_a_fetched_message_is_given_up_with_the_connection_it_was_fetched_through(
    dialogue, connection_lost, count
):
    """As any other lock is. It stays deferred, and the delivery has failed."""
    dialogue.ask(fetch(1))
    dialogue.run(Detach([CLIENT], connection_lost=connection_lost))
    (peeked,) = dialogue.ask(Peek(CLIENT, "p", "q", 1, 1))
    assert (MessageState.DEFERRED, count) == (peeked.state, peeked.delivery_count)
    if connection_lost:
        assert [1] == [one.sequence_number for one, _ in dialogue.ask(fetch(1))]
    else:
        with pytest.raises(MessageNotFound):
            dialogue.ask(fetch(1))


def test_few_bytes_are_fetched_at_once():
    """The answer is in memory as a whole. One message alone may be as large as messages are."""
    dialogue = CoreDialogue(limits=Limits(receive_deferred_max_bytes=1_000))
    dialogue.run(send("a" * 600, "b" * 600, "c" * 2_000), credit(3))
    dialogue.run(Settle(R, [T1, T2, T3], ["h", "i", "j"], DEFER))
    assert dialogue >> fetch(1, 2) << Reply(CLIENT, "fetch", None, ArgumentOutOfRange)
    assert ["c" * 2_000] == [text_of(fetched) for fetched, _ in dialogue.ask(fetch(3))]


@pytest.mark.parametrize("mode", ReceiveMode)
def test_fetching_no_numbers_fetches_nothing(dialogue, mode):
    """No lock is made for nothing: it would never be settled, and stay with its receiver."""
    assert [] == dialogue.ask(fetch(mode=mode))
    assert CLIENT not in dialogue.namespace._links._detached
