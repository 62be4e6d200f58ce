"""Time to live: the shorter of the message's and the entity's, and never while locked."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import AttachSender, Detach, GetEntity, Peek, Settle
from broker.core.contract.settlement_values import ABANDON, COMPLETE, DEAD_LETTER
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
    T1,
    Advance,
    CoreDialogue,
    Deliver,
    R,
    S,
    Settled,
    attach_receiver,
    credit,
    deleted,
    message,
    send,
    updated,
)


@pytest.mark.parametrize(
    ("entity_ms", "message_ms", "lives_ms"),
    [(20_000, None, 20_000), (20_000, 10_000, 10_000), (20_000, 30_000, 20_000)],
)
def test_the_shorter_time_counts(entity_ms, message_ms, lives_ms):
    """And shows on the message."""
    dialogue = CoreDialogue(QueueDefinition(default_time_to_live_ms=entity_ms))
    dialogue.run(send(message("a", time_to_live_ms=message_ms)))
    (peeked,) = dialogue.ask(Peek(CLIENT, "p", "q", 0, 5))
    assert (lives_ms, dialogue.now_ms + lives_ms) == (peeked.time_to_live_ms, peeked.expires_at_ms)
    assert dialogue >> Advance(lives_ms - 1)
    assert dialogue >> Advance(1) << deleted(1)


def test_an_expired_message_is_never_delivered():
    """Whether a timer has fired or not."""
    dialogue = CoreDialogue()
    dialogue.run(send(message("a", time_to_live_ms=1_000), "b"))
    dialogue.now_ms += 1_000
    assert dialogue >> credit(1) << deleted(1) << Deliver(R, [2], [T1])


def test_expired_messages_can_be_dead_lettered():
    """If the entity says so, with the reason the SDKs know."""
    dialogue = CoreDialogue(QueueDefinition(dead_lettering_on_expiration=True))
    dialogue.run(send(message("a", time_to_live_ms=1_000)))
    assert dialogue >> Advance(1_000) << updated(1)
    (dead,) = dialogue.ask(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 5))
    assert ("TTLExpiredException", "The message expired and was dead lettered.") == (
        dead.changes.dead_letter_reason,
        dead.changes.dead_letter_description,
    )
    assert 0 == dead.expires_at_ms


def test_dead_letters_do_not_expire():
    """However short their time was."""
    dialogue = CoreDialogue(QueueDefinition(default_time_to_live_ms=10_000))
    dialogue.run(send("a"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    assert dialogue >> Advance(1_000_000)
    assert 1 == dialogue.ask(GetEntity(CLIENT, "g", "q")).dead_letter_count


def test_a_locked_message_can_be_completed_after_its_time():
    """It is not taken away from under its receiver."""
    dialogue = CoreDialogue()
    dialogue.run(send(message("a", time_to_live_ms=1_000)), credit(1))
    assert dialogue >> Advance(20_000)
    assert dialogue >> Settle(R, [T1], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)


def test_given_back_after_its_time_it_is_gone():
    """Abandoned, expired or lost: it does not come again."""
    dialogue = CoreDialogue()
    dialogue.run(send(message("a", time_to_live_ms=1_000)), credit(5))
    dialogue.run(Advance(20_000))
    assert (
        dialogue
        >> Settle(R, [T1], ["h"], ABANDON)
        << updated(1)
        << deleted(1)
        << Settled(R, ["h"], ABANDON)
    )


def test_a_lock_that_expires_after_the_time_to_live_ends_the_message():
    """The count is still written first."""
    dialogue = CoreDialogue()
    dialogue.run(send(message("a", time_to_live_ms=1_000)), credit(5))
    assert dialogue >> Advance(30_000) << updated(1) << deleted(1)


def test_a_closed_session_drops_what_has_expired():
    """Sessions are no exception."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    dialogue.run(send(message("a", session="x", time_to_live_ms=1_000)))
    dialogue.run(attach_receiver(R, session="x"), credit(1))
    dialogue.run(Advance(2_000))
    assert dialogue >> Detach([R]) << deleted(1)


def test_expiry_is_forgotten_with_the_message():
    """Nothing waits for a message that is gone."""
    dialogue = CoreDialogue()
    dialogue.run(send(message("a", time_to_live_ms=10**9)), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    assert dialogue.namespace.next_deadline_ms() is None


@pytest.mark.parametrize("session", [None, "a"])
@pytest.mark.parametrize("dead_letters", [False, True])
def test_nothing_is_kept_of_expired_messages_if_nobody_receives(dead_letters, session):
    """No receiver ever skips them in the list of ready messages."""
    definition = QueueDefinition(
        requires_session=session is not None, dead_lettering_on_expiration=dead_letters
    )
    dialogue = CoreDialogue(definition, attach=False)
    dialogue.run(AttachSender(S, "q"), send(message("stays", session=session)))
    queue = dialogue.namespace._directory.queue("q")
    for _ in range(6):
        expiring = [message("x", time_to_live_ms=1, session=session) for _ in range(600)]
        dialogue.serve(send(*expiring))
        dialogue.serve(Advance(1))
    assert 1 == queue.count
    ready = queue.dispatcher.ready if session is None else queue.sessions.get("a").ready
    assert len(ready) < 2_000
    assert 1 == len([one for one in ready._fresh if one.body is not None])
