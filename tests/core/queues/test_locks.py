"""Messages that are locked at once share a deadline, and each lock still ends by itself."""

from __future__ import annotations

from broker.core.contract.commands import Detach, RenewLocks, Settle
from broker.core.contract.settlement_values import COMPLETE
from broker.core.queues.deadlines import Due
from broker.core.queues.locks import group_of
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
    T1,
    T2,
    T3,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
    R,
    Settled,
    attach_receiver,
    credit,
    deleted,
    send,
    token,
    updated,
)

LOCK_MS = 60_000
OTHER = NamedPeer("OTHER")


def dialogue_with(*texts: str) -> CoreDialogue:
    dialogue = CoreDialogue(QueueDefinition(lock_duration_ms=LOCK_MS))
    dialogue.run(send(*texts))
    return dialogue


def lock_deadlines(dialogue: CoreDialogue) -> int:
    buckets = dialogue.namespace._context.deadlines._buckets.values()
    return sum(len(bucket.get(Due.MESSAGE_LOCK, ())) for bucket in buckets)


def test_a_delivery_has_one_deadline():
    """It goes with the last lock."""
    dialogue = dialogue_with("a", "b", "c")
    dialogue.run(credit(3))
    assert 1 == lock_deadlines(dialogue)
    dialogue.run(Settle(R, [T1, T3], [1, 3], COMPLETE))
    assert 1 == lock_deadlines(dialogue)
    dialogue.run(Settle(R, [T2], [2], COMPLETE))
    assert 0 == lock_deadlines(dialogue)


def test_a_group_does_not_keep_the_messages_that_are_settled():
    """A client may keep one message of a thousand for minutes. The bodies of the others must go."""
    dialogue = dialogue_with(*["m"] * 100)
    messages = dialogue.deliveries(credit(100))
    group = group_of(messages[0])
    tokens = [token(number) for number in range(1, 101)]
    for one in tokens[1:]:
        dialogue.run(Settle(R, [one], [one], COMPLETE))
    assert messages[:1] == list(group)
    assert 16 >= len(group._messages)
    assert dialogue >> Settle(R, [T1], [1], COMPLETE) << deleted(1) << Settled(R, [1], COMPLETE)


def test_a_renewed_lock_outlives_the_locks_that_began_with_it():
    """The others end at their time, also if a request names a token twice."""
    dialogue = dialogue_with("a", "b", "c")
    dialogue.run(credit(3))
    dialogue.run(Advance(LOCK_MS // 2))
    until_ms = dialogue.now_ms + LOCK_MS
    ends = dialogue.ask(RenewLocks(CLIENT, "request", "q", [T2, T2]))
    assert [until_ms, until_ms] == ends
    assert dialogue >> Advance(LOCK_MS // 2) << updated(1, 3)
    assert dialogue >> Advance(LOCK_MS // 2) << updated(2)
    assert 0 == lock_deadlines(dialogue)


def test_locks_of_different_receivers_are_renewed_together():
    """By token, whoever holds them. A lost connection ends those of its own receiver only."""
    dialogue = dialogue_with("a", "b")
    dialogue.run(attach_receiver(OTHER))
    assert dialogue >> credit(1) << Deliver(R, [1], [T1])
    assert dialogue >> credit(1, to=OTHER) << Deliver(OTHER, [2], [T2])
    dialogue.ask(RenewLocks(CLIENT, "request", "q", [T1, T2]))
    assert 2 == lock_deadlines(dialogue)
    assert dialogue >> Detach([OTHER], connection_lost=True) << updated(2)
    assert dialogue >> Advance(LOCK_MS) << updated(1)
