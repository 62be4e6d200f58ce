"""Looking at messages without touching them, and deleting the oldest."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    DeleteMessages,
    GetEntity,
    Peek,
    ReplyAfterEarlier,
    Settle,
    UpdateEntity,
)
from broker.core.contract.effects import SendAccepted
from broker.core.contract.errors import ArgumentOutOfRange, EntityDisabled, EntityNotFound
from broker.core.contract.settlement_values import COMPLETE, DEFER
from broker.core.operations.message_requests import PEEK_MAX_BYTES
from config.model.definitions import EntityStatus, QueueDefinition
from config.model.limits import Limits
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    T2,
    Advance,
    CoreDialogue,
    Deliver,
    R,
    Reply,
    credit,
    deleted,
    message,
    send,
    text_of,
)


def peek(dialogue, from_number=0, count=100, path="q"):
    return [text_of(m) for m in dialogue.ask(Peek(CLIENT, "p", path, from_number, count))]


def test_peek_shows_everything_in_order_and_changes_nothing():
    """Locked, deferred and scheduled messages too."""
    dialogue = CoreDialogue()
    later = message("later", at_ms=START_MS + 60_000)
    dialogue.run(send("locked", "deferred", later, "active"), credit(2))
    dialogue.run(Settle(R, [T2], ["h"], DEFER))
    turn = dialogue.run(Peek(CLIENT, "p", "q", 0, 100))
    assert ["locked", "deferred", "later", "active"] == [text_of(m) for m in turn.effects[0].value]
    assert [] == turn.records
    assert ["active"] == [text_of(m) for m in dialogue.deliveries(credit(9))]


@pytest.mark.parametrize(
    ("from_number", "count", "expected"),
    [(0, 2, "ab"), (1, 2, "ab"), (2, 2, "bc"), (3, 9, "cd"), (5, 9, ""), (0, 0, ""), (-1, 1, "a")],
)
def test_peek_starts_at_a_number(from_number, count, expected):
    """Ascending from there, as many as asked for."""
    dialogue = CoreDialogue()
    dialogue.run(send(*"abcd"))
    assert list(expected) == peek(dialogue, from_number, count)


def test_peek_finds_its_way_through_gaps():
    """However many messages are gone."""
    dialogue = CoreDialogue()
    dialogue.run(send(*[str(number) for number in range(1, 3001)]))
    for _ in range(3):
        delivered = dialogue.deliveries(credit(3000))
        done = [m.lock_token or b"" for m in delivered if m.id not in (700, 2999)]
        dialogue.run(Settle(R, done, done, COMPLETE))
    assert ["700", "2999"] == peek(dialogue)
    assert ["2999"] == peek(dialogue, 701)
    assert [] == peek(dialogue, 3000)


def test_peeked_messages_are_as_they_were_then():
    """What happens later does not show in them."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"))
    (peeked,) = dialogue.ask(Peek(CLIENT, "p", "q", 0, 1))
    dialogue.run(credit(1), Advance(30_000))
    assert 0 == peeked.delivery_count


def test_a_peek_is_bounded_in_size_and_number():
    """At least one message, and no more than fit into a reply."""
    dialogue = CoreDialogue(limits=Limits(peek_max_messages=3))
    dialogue.run(send("x" * (PEEK_MAX_BYTES + 1), "a", "b", "c", "d"))
    assert 1 == len(peek(dialogue))
    assert ["a", "b", "c"] == peek(dialogue, 2)


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED])
@pytest.mark.parametrize(
    "request_",
    [Peek(CLIENT, "p", "q", 0, 1), DeleteMessages(CLIENT, "d", "q", 1, START_MS + 1)],
    ids=["peek", "delete"],
)
def test_what_cannot_be_received_can_neither_be_seen_nor_deleted(status, request_):
    """With a receiver, whose attach is refused, and without one."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"))
    dialogue.ask(UpdateEntity(CLIENT, "u", "q", QueueDefinition(status=status)))
    with pytest.raises(EntityDisabled):
        dialogue.ask(request_)


def test_requests_about_no_entity_are_refused():
    """404, in words some SDKs look for."""
    with pytest.raises(EntityNotFound) as refusal:
        CoreDialogue().ask(Peek(CLIENT, "p", "nowhere", 0, 1))
    assert "The messaging entity 'nowhere' could not be found." == str(refusal.value)


def test_deleting_takes_the_oldest_unlocked_messages():
    """Only messages that were enqueued before a time. The others stay."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b", "c"), credit(1))
    dialogue.run(Advance(1_000), send("d"))
    request = DeleteMessages(CLIENT, "d", "q", 100, START_MS + 1_000)
    assert dialogue >> request << deleted(2, 3) << Reply(CLIENT, "d", 2)
    assert ["a", "d"] == peek(dialogue)
    assert ["d"] == [text_of(m) for m in dialogue.deliveries(credit(9))]


def test_deleting_stops_at_the_count():
    """Oldest first."""
    dialogue = CoreDialogue()
    dialogue.run(send(*"abcd"))
    assert 2 == dialogue.ask(DeleteMessages(CLIENT, "d", "q", 2, START_MS + 1))
    assert ["c", "d"] == peek(dialogue)


def test_deleting_leaves_what_is_deferred_or_scheduled():
    """They are asked for by number."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", message("b", at_ms=START_MS + 60_000)), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEFER))
    assert 0 == dialogue.ask(DeleteMessages(CLIENT, "d", "q", 9, START_MS + 10**6))


@pytest.mark.parametrize("count", [0, -1, 4_001])
def test_deleting_out_of_range_is_refused(count):
    """500 or 4,000 at once, by tier."""
    with pytest.raises(ArgumentOutOfRange):
        CoreDialogue().ask(DeleteMessages(CLIENT, "d", "q", count, START_MS))


def test_deleting_within_a_session():
    """Only its messages."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    dialogue.run(send(*[message(t + s, session=s) for t in "12" for s in "xy"]))
    assert 2 == dialogue.ask(DeleteMessages(CLIENT, "d", "q", 9, START_MS + 1, session_id="x"))
    assert ["1y", "2y"] == peek(dialogue)


def test_deleting_what_waits_lets_the_next_through():
    """A receiver with credit gets what comes after, in order."""
    dialogue = CoreDialogue()
    dialogue.run(send(*"abc"))
    dialogue.ask(DeleteMessages(CLIENT, "d", "q", 2, START_MS + 1))
    assert dialogue >> credit(1) << Deliver(R, [3], [T1])


def test_counts_follow_every_state():
    """Active includes what is locked."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b", "c", message("d", at_ms=START_MS + 60_000)), credit(2))
    dialogue.run(Settle(R, [T1], ["h"], DEFER))
    view = dialogue.ask(GetEntity(CLIENT, "g", "q"))
    assert (2, 1, 1, 1) == (
        view.active_count,
        view.locked_count,
        view.deferred_count,
        view.scheduled_count,
    )


def test_a_reply_after_earlier_commands_is_the_last_of_their_answers_and_changes_nothing():
    """Faults wait for it before they end a link."""
    dialogue = CoreDialogue()
    turn = dialogue.run(send("a"), ReplyAfterEarlier(CLIENT, "last"))
    assert SendAccepted is type(turn.effects[0])
    assert Reply(CLIENT, "last") == turn.effects[-1]
    assert ["a"] == peek(dialogue)
