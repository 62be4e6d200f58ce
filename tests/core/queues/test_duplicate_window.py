"""Duplicate detection: repeats inside the window are accepted and dropped."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import AttachSender, GetEntity, Peek, Schedule, SendBatch, Tick
from broker.core.contract.errors import ArgumentError
from broker.core.contract.records import MessageIdsForgotten, MessageIdsSeen
from broker.core.queues.duplicate_window import SWEPT_MIN_IDS
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    Accepted,
    Advance,
    CoreDialogue,
    S,
    SendRefused,
    message,
    send,
    stored,
    text_of,
)

WINDOW_MS = 20_000


@pytest.fixture
def dialogue():
    """A queue with a duplicate detection window of 20 s."""
    return CoreDialogue(
        QueueDefinition(requires_duplicate_detection=True, duplicate_window_ms=WINDOW_MS)
    )


def _window(dialogue):
    return dialogue.namespace._directory.entity("q").duplicates


def texts(dialogue):
    return [text_of(m) for m in dialogue.ask(Peek(CLIENT, "p", "q", 0, 99))]


def test_a_repeat_is_accepted_and_dropped(dialogue):
    """The sender gets the same answer as for a new message."""
    assert (
        dialogue
        >> send(message("a", message_id="1"))
        << MessageIdsSeen(1, [("1", START_MS + WINDOW_MS)])
        << stored(1)
        << Accepted(S, ["a"])
        >> send(message("b", message_id="1"))
        << Accepted(S, ["b"])
    )
    assert ["a"] == texts(dialogue)


def test_a_repeat_within_one_command_is_dropped(dialogue):
    """Also inside a batch."""
    dialogue.run(send(message("a", message_id="1"), message("b", message_id="1")))
    dialogue.run(SendBatch(S, [message("c", message_id="2"), message("d", message_id="2")], "h"))
    assert ["a", "c"] == texts(dialogue)


def test_an_id_counts_until_the_window_has_passed(dialogue):
    """To the millisecond."""
    dialogue.run(send(message("a", message_id="1")))
    dialogue.now_ms += WINDOW_MS - 1
    dialogue.run(send(message("b", message_id="1")))
    dialogue.now_ms += 1
    dialogue.run(send(message("c", message_id="1")))
    assert ["a", "c"] == texts(dialogue)


def test_the_window_begins_anew_with_each_message_that_is_kept(dialogue):
    """Not with those that were dropped."""
    for text in "abcd":
        dialogue.run(send(message(text, message_id="1")), Advance(15_000))
    assert ["a", "c"] == texts(dialogue)


def test_messages_without_id_are_never_duplicates(dialogue):
    """There is nothing to compare."""
    dialogue.run(send("a", "b"))
    assert ["a", "b"] == texts(dialogue)


def test_what_is_over_is_forgotten(dialogue):
    """In memory and in the store, a few times per window."""
    dialogue.run(send(message("a", message_id="1")))
    turn = dialogue.run(Advance(WINDOW_MS + WINDOW_MS // 20))
    assert MessageIdsForgotten(1, dialogue.now_ms) in turn.records
    assert dialogue.namespace.next_deadline_ms() is None


def test_many_ids_are_forgotten_in_parts(dialogue):
    """The deletion of all ids at once would need more space than a nearly full disk has. Ids of one millisecond are
    forgotten together."""
    count = 3 * SWEPT_MIN_IDS + 10
    for number in range(count):
        dialogue.run(send(message("a", message_id=str(number))))
        dialogue.now_ms += number % 2
    stored = dict(_window(dialogue).seen())
    dialogue.now_ms += WINDOW_MS + WINDOW_MS // 20
    forgotten: list[int] = []
    while (deadline_ms := dialogue.namespace.next_deadline_ms()) is not None:
        dialogue.now_ms = max(dialogue.now_ms, deadline_ms)
        records = dialogue.run(Tick()).records
        assert len(records) <= 2
        for record in records:
            assert isinstance(record, MessageIdsForgotten)
            gone = [one for one, until_ms in stored.items() if until_ms <= record.until_ms]
            forgotten.append(len(gone))
            for one in gone:
                del stored[one]
        assert stored == dict(_window(dialogue).seen())
    assert (4, count) == (len(forgotten), sum(forgotten))
    assert max(forgotten) <= SWEPT_MIN_IDS + 1


def test_scheduled_messages_count_too(dialogue):
    """A duplicate is dropped, and its sequence number belongs to no message."""
    first = message("a", message_id="1", at_ms=START_MS + 60_000)
    again = message("b", message_id="1", at_ms=START_MS + 60_000)
    assert [1] == dialogue.ask(Schedule(CLIENT, "s", "q", [first]))
    assert [2] == dialogue.ask(Schedule(CLIENT, "s", "q", [again]))
    dialogue.run(send(message("c", message_id="1")))
    assert ["a"] == texts(dialogue)


def test_an_id_that_is_too_long_is_refused(dialogue):
    """128 characters are allowed."""
    dialogue.run(send(message("a", message_id="i" * 128)))
    turn = dialogue.run(send(message("b", message_id="i" * 129)))
    (refused,) = turn.effects
    assert isinstance(refused, SendRefused)
    assert isinstance(refused.error, ArgumentError)


def test_a_refused_message_is_not_remembered():
    """It can be sent again, smaller."""
    dialogue = CoreDialogue(
        QueueDefinition(requires_duplicate_detection=True, max_message_size_kilobytes=1)
    )
    dialogue.run(send(message("x" * 2000, message_id="1")))
    dialogue.run(send(message("a", message_id="1")))
    assert ["a"] == texts(dialogue)


@pytest.mark.parametrize("requires_session", [False, True])
def test_in_a_partitioned_entity_ids_count_together_with_their_key(requires_session):
    """The partition key, or the session, which is one; without either, the id alone."""
    dialogue = CoreDialogue(
        QueueDefinition(
            requires_duplicate_detection=True,
            duplicate_window_ms=WINDOW_MS,
            enable_partitioning=True,
            requires_session=requires_session,
        )
    )

    def keyed(text, key):
        if requires_session:
            return message(text, message_id="1", session=key)
        return message(text, message_id="1", partition_key=key)

    dialogue.run(send(keyed("a", "x")), send(keyed("b", "y")), send(keyed("c", "x")))
    assert ["a", "b"] == texts(dialogue)
    again = dialogue.restarted()
    again.run(AttachSender(S, "q"), send(keyed("d", "y")), send(keyed("e", "z")))
    assert 3 == again.ask(GetEntity(CLIENT, "g", "q")).active_count


def test_a_partitioned_entity_without_keys_goes_by_the_id():
    """A message without a key is placed by its id."""
    dialogue = CoreDialogue(
        QueueDefinition(requires_duplicate_detection=True, enable_partitioning=True)
    )
    dialogue.run(send(message("a", message_id="1")), send(message("b", message_id="1")))
    assert ["a"] == texts(dialogue)
