"""Scheduled messages in very long queues are packed, and become active as if they were not."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    CancelScheduled,
    DeleteEntity,
    DeleteMessages,
    GetEntity,
    Peek,
    Schedule,
)
from broker.core.contract.errors import MessageNotFound
from broker.core.contract.message import MessageState
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
    Advance,
    CoreDialogue,
    Reply,
    credit,
    message,
    send,
)
from tests.support.packed_blocks import BLOCK_SIZE, COUNT, SENT, packed_count, queue_of, texts
from tests.support.unfinished_work import has_unfinished_work

MINUTE_MS = 60_000
TIMES = {
    "at one time": lambda _: 0,
    "one after the other": lambda number: number,
    "two times in each block": lambda number: number % 2 * 10,
    "the last ones first": lambda number: COUNT - number,
    "block by block": lambda number: number // BLOCK_SIZE,
}
"""When each message becomes active, after a minute."""


def new_dialogue(entities=None) -> CoreDialogue:
    dialogue = CoreDialogue(entities=entities, budget_bytes=1 << 20)
    dialogue.namespace._context.payloads.messages_max = 0
    return dialogue


def scheduled(dialogue: CoreDialogue, after_ms=TIMES["at one time"], path: str = "q") -> list[str]:
    """Schedules messages. Returns their texts in the order in which they become active."""
    first_ms = dialogue.now_ms + MINUTE_MS
    messages = [message(text, at_ms=first_ms + after_ms(n)) for n, text in enumerate(SENT)]
    dialogue.serve(Schedule(CLIENT, "s", path, messages))
    return sorted(SENT, key=lambda text: (after_ms(int(text)), int(text)))


def go_on(dialogue: CoreDialogue) -> None:
    """Do all parts of what is due."""
    while has_unfinished_work(dialogue.namespace):
        dialogue.serve(Advance(0))


def counts(dialogue: CoreDialogue) -> tuple[int, int]:
    """How many messages are active, and how many scheduled."""
    view = dialogue.ask(GetEntity(CLIENT, "get", "q"))
    return view.active_count, view.scheduled_count


@pytest.mark.parametrize("after_ms", TIMES.values(), ids=TIMES)
def test_scheduled_messages_are_packed(after_ms):
    """All full blocks. They are counted as before, and the clock knows the first time."""
    dialogue = new_dialogue()
    scheduled(dialogue, after_ms)
    assert 3 * BLOCK_SIZE == packed_count(dialogue)
    assert (0, COUNT) == counts(dialogue)
    first_ms = dialogue.now_ms + MINUTE_MS + min(after_ms(number) for number in range(COUNT))
    assert first_ms == dialogue.namespace.next_deadline_ms()
    assert COUNT - packed_count(dialogue) == dialogue.namespace._context.payloads.message_count


@pytest.mark.parametrize("after_ms", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("part_messages", [1, 100, 10_000])
@pytest.mark.parametrize("late_ms", [0, 1_000_000])
def test_packed_messages_become_active_in_the_order_of_their_times(
    after_ms, part_messages, late_ms
):
    """And then of their numbers, however late the clock looks, and in any parts."""
    dialogue = new_dialogue()
    expected = scheduled(dialogue, after_ms)
    dialogue.namespace._context.backlog.part_messages = part_messages
    dialogue.serve(Advance(MINUTE_MS - 1))
    assert (0, COUNT) == counts(dialogue)
    for _ in range(1 if late_ms else COUNT + 1):
        dialogue.serve(Advance(late_ms or 1))
        go_on(dialogue)
    assert (COUNT, 0) == counts(dialogue)
    assert expected == texts(dialogue.receive(credit(COUNT)))
    assert list(range(COUNT + 1, 2 * COUNT + 1)) == [
        one.sequence_number for one in queue_of(dialogue).locks.values()
    ]


def test_each_becomes_active_at_its_own_time():
    """A block is unpacked at its first time, and no message comes with another."""
    dialogue = new_dialogue()
    scheduled(dialogue, TIMES["one after the other"])
    dialogue.serve(Advance(MINUTE_MS - 1))
    for active in range(1, COUNT + 1):
        dialogue.serve(Advance(1))
        assert (active, COUNT - active) == counts(dialogue)


def test_a_packed_message_is_cancelled_by_its_number():
    """Once; the others of its block come at their time."""
    dialogue = new_dialogue()
    scheduled(dialogue)
    number = BLOCK_SIZE + 6
    dialogue.ask(CancelScheduled(CLIENT, "c", "q", [number]))
    with pytest.raises(MessageNotFound):
        dialogue.ask(CancelScheduled(CLIENT, "c", "q", [number]))
    assert (0, COUNT - 1) == counts(dialogue)
    dialogue.serve(Advance(MINUTE_MS))
    go_on(dialogue)
    rest = [*SENT[: number - 1], *SENT[number:]]
    assert rest == texts(dialogue.receive(credit(COUNT)))


def test_peeking_shows_packed_messages_as_scheduled():
    """With the numbers by which they can be cancelled."""
    dialogue = new_dialogue()
    scheduled(dialogue)
    (seen,) = [
        e.value for e in dialogue.serve(Peek(CLIENT, "p", "q", 100, 50)) if isinstance(e, Reply)
    ]
    assert list(range(100, 150)) == [one.sequence_number for one in seen]
    assert {MessageState.SCHEDULED} == {one.state for one in seen}


@pytest.mark.parametrize("after_ms", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("from_number", [BLOCK_SIZE, 2 * BLOCK_SIZE, 3 * BLOCK_SIZE])
@pytest.mark.parametrize("parts", [1, 10, 40])
def test_a_block_that_is_unpacked_while_it_is_due_keeps_its_place(after_ms, from_number, parts):
    """Each of its messages becomes active once."""
    dialogue = new_dialogue()
    expected = scheduled(dialogue, after_ms)
    dialogue.namespace._context.backlog.part_messages = 4
    dialogue.serve(Advance(MINUTE_MS + COUNT))
    for _ in range(parts):
        dialogue.run(Advance(0))
    dialogue.serve(Peek(CLIENT, "p", "q", from_number, 1))
    go_on(dialogue)
    assert (COUNT, 0) == counts(dialogue)
    assert expected == texts(dialogue.receive(credit(COUNT)))


def test_packed_messages_of_two_queues_take_turns():
    """One does not wait for all messages of the other."""
    dialogue = new_dialogue({"q": QueueDefinition(), "other": QueueDefinition()})
    scheduled(dialogue)
    scheduled(dialogue, path="other")
    dialogue.namespace._context.backlog.part_messages = 4
    dialogue.serve(Advance(MINUTE_MS))
    left = []
    while has_unfinished_work(dialogue.namespace):
        dialogue.run(Advance(0))
        left.append([queue_of(dialogue, path).scheduled_count for path in ("q", "other")])
    assert max(abs(one - other) for one, other in left) <= 4
    assert [0, 0] == left[-1]


def test_a_deletion_of_old_messages_leaves_scheduled_ones_packed():
    """It deletes only messages that can be received."""
    dialogue = new_dialogue()
    scheduled(dialogue)
    dialogue.serve(send("active"))
    assert 1 == dialogue.ask(DeleteMessages(CLIENT, "d", "q", 100, dialogue.now_ms + 1))
    assert 3 * BLOCK_SIZE == packed_count(dialogue)
    assert (0, COUNT) == counts(dialogue)


@pytest.mark.parametrize("late_ms", [0, MINUTE_MS])
def test_packed_messages_go_with_their_entity(late_ms):
    """Also if they are due already."""
    dialogue = new_dialogue()
    scheduled(dialogue)
    dialogue.namespace._context.backlog.part_messages = 4
    dialogue.serve(Advance(late_ms))
    dialogue.ask(DeleteEntity(CLIENT, 1, "q"))
    go_on(dialogue)
    assert {} == dialogue.commit().rows
    assert dialogue.namespace.next_deadline_ms() is None


def test_scheduled_and_waiting_messages_of_one_block_are_not_packed():
    """They have nothing in common at which to look at them."""
    dialogue = new_dialogue()
    later_ms = dialogue.now_ms + MINUTE_MS
    for text in SENT:
        dialogue.serve(send(message(text, at_ms=later_ms if int(text) % 2 else 0)))
    assert 0 == packed_count(dialogue)
