"""Duplicate detection: repeats inside the window are accepted and dropped."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CreateEntity,
    DeleteEntity,
    GetEntity,
    Peek,
    Schedule,
    SendBatch,
    Tick,
)
from broker.core.contract.errors import ArgumentError, NamespaceRestored
from broker.core.contract.records import (
    EntityDeleted,
    MessageIdsDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
)
from broker.core.contract.turn import Turn
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
DEFINITION = QueueDefinition(requires_duplicate_detection=True, duplicate_window_ms=WINDOW_MS)


@pytest.fixture
def dialogue():
    """A queue with a duplicate detection window of 20 s."""
    return CoreDialogue(DEFINITION)


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


def _see_many(dialogue: CoreDialogue, count: int) -> None:
    """In one millisecond, as the messages of a batch."""
    messages = [message("a", message_id=str(number)) for number in range(count)]
    dialogue.run(SendBatch(S, messages, "h"))


def _stored_ids(dialogue: CoreDialogue) -> list[str]:
    return [message_id for _, message_id, _ in dialogue.commit().load().message_ids]


def test_the_ids_of_a_deleted_entity_are_deleted_in_parts(dialogue):
    """For the same reason, and also those of one millisecond. An entity of the same name has seen none of them."""
    count = 3 * SWEPT_MIN_IDS + 10
    _see_many(dialogue, count)
    turn = dialogue.run(DeleteEntity(CLIENT, "d", "q"))
    deleted = [record for record in turn.records if isinstance(record, MessageIdsDeleted)]
    assert (EntityDeleted(1), []) == (turn.records[-1], deleted)
    dialogue.run(CreateEntity(CLIENT, "c", "q", DEFINITION), AttachSender(S, "q"))
    dialogue.run(send(message("again", message_id="7")))
    assert ["again"] == texts(dialogue)
    while dialogue.namespace.next_deadline_ms() == dialogue.now_ms:
        records = dialogue.run(Tick()).records
        deleted += [one for one in records if isinstance(one, MessageIdsDeleted)]
        assert len(records) <= 1
    assert [SWEPT_MIN_IDS] * 3 + [10] == [len(record.message_ids) for record in deleted]
    assert ["7"] == _stored_ids(dialogue)


def test_ids_left_of_a_deleted_entity_are_deleted_after_a_restart(dialogue):
    """In parts as well. Nothing else of the entity may be left in the store: no message, and no sequence number."""
    _see_many(dialogue, 2 * SWEPT_MIN_IDS)
    dialogue.run(DeleteEntity(CLIENT, "d", "q"))
    while dialogue.commit().rows:
        dialogue.run(Tick())
    left = len(_stored_ids(dialogue))
    assert left
    later = dialogue.restarted()
    view = later.ask(CreateEntity(CLIENT, "c", "other", DEFINITION))
    assert view.path == "other"
    for _ in range(2):
        later = later.restarted()
        later.run(AttachSender(S, "other"), send(message("new", message_id="1")))
    while later.namespace.next_deadline_ms() == later.now_ms:
        records = later.run(Tick()).records
        ids = [one.message_ids for one in records if isinstance(one, MessageIdsDeleted)]
        assert sum(map(len, ids)) <= SWEPT_MIN_IDS
    assert ["1"] == _stored_ids(later)


def test_the_ids_of_a_closed_namespace_are_deleted_in_parts(dialogue):
    """By the work that another namespace gets."""
    _see_many(dialogue, SWEPT_MIN_IDS + 1)
    turns = [Turn()]
    for work in dialogue.namespace.close(NamespaceRestored("ns"), turns[0]):
        is_left = True
        while is_left:
            turns.append(Turn())
            is_left = work.do_part(1_000, turns[-1])
            ids = [one for one in turns[-1].records if isinstance(one, MessageIdsDeleted)]
            assert sum(len(one.message_ids) for one in ids) <= SWEPT_MIN_IDS
    assert [] == [one for one in turns[0].records if isinstance(one, MessageIdsDeleted)]
    dialogue.turns += turns
    assert ([], {}) == (_stored_ids(dialogue), dialogue.store.rows)


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
