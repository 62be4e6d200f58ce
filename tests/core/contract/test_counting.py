"""What a turn counts: each message once, under the queue that it happened in."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CancelScheduled,
    Declare,
    DeleteMessages,
    Detach,
    Discharge,
    Schedule,
    Send,
    SendBatch,
    Settle,
    SettleByToken,
)
from broker.core.contract.counting import DeadLetterCause, Outcome
from broker.core.contract.settlement_values import COMPLETE, RELEASE, Settlement, SettlementKind
from config.model.definitions import QueueDefinition, SubscriptionDefinition, TopicDefinition
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    T2,
    Advance,
    CoreDialogue,
    NamedPeer,
    R,
    S,
    attach_receiver,
    credit,
    message,
    send,
)

OTHER = NamedPeer("OTHER")
LOCK_MS = 30_000


def counted(dialogue, path="q"):
    """What the turns so far have counted for a queue; "" for what concerns none."""
    namespace = dialogue.namespace
    counts = namespace._directory.queue(path).counts if path else namespace.counts
    totals: Counter[Outcome | DeadLetterCause] = Counter()
    for turn in dialogue.turns:
        for where, what, number in turn.counts:
            if where is counts:
                totals[what] += number
    return {what: number for what, number in totals.items() if number}


def test_nothing_is_counted_before_its_turn_is_durable():
    """A queue's counts change when the turn is released, and not by running it."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b"))
    assert {} == dialogue.namespace._directory.queue("q").counts
    assert {Outcome.ACCEPTED: 2} == counted(dialogue)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([Advance(LOCK_MS)], {Outcome.LOCK_LOST: 2}),
        ([Detach([R], connection_lost=True)], {Outcome.LOCK_LOST: 2}),
        ([Detach([R])], {}),
        ([Settle(R, [T1, T2], [None, None], RELEASE)], {Outcome.RELEASED: 2}),
        (
            [Settle(R, [T1, T1, b"x" * 16], ["h", "i", "j"], COMPLETE)],
            {Outcome.COMPLETED: 1, Outcome.SETTLE_REFUSED: 2},
        ),
        (
            [SettleByToken(CLIENT, "r", "q", [T1], Settlement(SettlementKind.DEAD_LETTER))],
            {Outcome.DEAD_LETTERED: 1, DeadLetterCause.APPLICATION: 1},
        ),
    ],
    ids=["expired", "lost", "detached", "released", "refused", "dead-lettered"],
)
def test_locks_end_in_one_outcome(steps, expected):
    """Each message is counted once, regardless of how its lock ends."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b"), credit(2))
    dialogue.run(*steps)
    assert {Outcome.ACCEPTED: 2, Outcome.DELIVERED: 2, **expected} == counted(dialogue)


def test_a_transaction_counts_when_it_commits():
    """What was rolled back never happened."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(1))
    for number, commit in ((1, False), (2, True)):
        transaction_id = dialogue.ask(Declare(CLIENT, "declare"))
        dialogue.run(
            Send(S, [message(f"in {number}")], ["h"], transaction_id),
            Settle(R, [T1], ["i"], COMPLETE, transaction_id),
        )
        assert {Outcome.ACCEPTED: 1, Outcome.DELIVERED: 1} == counted(dialogue)
        dialogue.run(Discharge(CLIENT, "discharge", transaction_id, not commit))
    assert {Outcome.ACCEPTED: 2, Outcome.DELIVERED: 1, Outcome.COMPLETED: 1} == counted(dialogue)


def test_what_is_scheduled_or_deleted_unread():
    """By the requests for it."""
    dialogue = CoreDialogue()
    later = message("later", at_ms=START_MS + 1_000)
    numbers = dialogue.ask(Schedule(CLIENT, "schedule", "q", [later]))
    dialogue.ask(CancelScheduled(CLIENT, "cancel", "q", numbers))
    dialogue.run(send("a", "b"))
    dialogue.run(Advance(1))
    dialogue.ask(DeleteMessages(CLIENT, "delete", "q", 2, START_MS + 10))
    assert {Outcome.ACCEPTED: 3, Outcome.CANCELLED: 1, Outcome.DELETED: 2} == counted(dialogue)


def test_what_no_link_asked_for_concerns_no_entity():
    """Names that clients make up have no counts of their own."""
    dialogue = CoreDialogue()
    dialogue.run(
        AttachSender(OTHER, "made up"),
        attach_receiver(OTHER, "made up/$DeadLetterQueue"),
        Settle(OTHER, [T1], ["h"], COMPLETE),
        SendBatch(OTHER, [message("a")], "h"),
    )
    assert {
        Outcome.ATTACH_REFUSED: 2,
        Outcome.SETTLE_REFUSED: 1,
        Outcome.SEND_REFUSED: 1,
    } == counted(dialogue, "")


def test_forwarding_and_its_failures():
    """The source counts what it sent on, and what it could not."""
    dialogue = CoreDialogue(
        entities={
            "end": QueueDefinition(),
            "q": QueueDefinition(forward_to="end"),
            "with-sessions": QueueDefinition(requires_session=True),
            "stuck": QueueDefinition(forward_to="with-sessions"),
        },
        attach=False,
    )
    dialogue.run(AttachSender(S, "q"), AttachSender(OTHER, "stuck"))
    dialogue.run(send("a", "b"), send("c", to=OTHER))
    assert {Outcome.ACCEPTED: 2, Outcome.FORWARDED: 2} == counted(dialogue)
    assert {} == counted(dialogue, "end")
    assert {
        Outcome.ACCEPTED: 1,
        Outcome.DEAD_LETTERED: 1,
        DeadLetterCause.NO_SESSION_ID: 1,
    } == counted(dialogue, "stuck")


def test_a_topic_counts_what_it_takes_and_a_subscription_what_dies_there():
    """A copy for a subscription with sessions needs a session id."""
    dialogue = CoreDialogue(
        entities={
            "q": TopicDefinition(),
            "q/Subscriptions/s": SubscriptionDefinition(requires_session=True),
        },
        attach=False,
    )
    dialogue.run(AttachSender(S, "q"), send("a"))
    assert {Outcome.ACCEPTED: 1} == counted(dialogue)
    (told,) = [told for turn in dialogue.turns for told in turn.dead_lettered]
    assert ("ns", "q/Subscriptions/s", 1) == (told.namespace, told.path, told.message_count)
    assert {Outcome.DEAD_LETTERED: 1, DeadLetterCause.NO_SESSION_ID: 1} == counted(
        dialogue, "q/Subscriptions/s"
    )


def test_duplicates_are_accepted_and_dropped():
    """The sender gets `SendAccepted`, so they count as accepted."""
    dialogue = CoreDialogue(QueueDefinition(requires_duplicate_detection=True))
    dialogue.run(send(message("a", message_id="1"), message("b", message_id="1")))
    assert {Outcome.ACCEPTED: 2, Outcome.DEDUPLICATED: 1} == counted(dialogue)
