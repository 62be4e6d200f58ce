"""A restart with very many waiting messages: they are restored as packed messages, without a
visible difference."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from broker.core.contract.commands import AttachSender, DeleteEntity, Settle
from broker.core.contract.settlement_values import ABANDON
from broker.core.messages.message_rows import rows_of
from broker.core.messages.packed_rows import PackedRows, pack_rows
from broker.core.namespace import Namespace
from config.model.definitions import QueueDefinition, SubscriptionDefinition, TopicDefinition
from tests.support.core_dialogue import (
    CLIENT,
    Advance,
    CoreDialogue,
    Deliver,
    R,
    S,
    attach_receiver,
    credit,
    message,
    send,
)
from tests.support.packed_blocks import BLOCK_SIZE, COUNT, SENT, packed_count, queue_of, texts
from tests.support.unfinished_work import finish_work


def packed(rows, section_rows: int):
    """Returns rows as a store has them that writes so many at once. Every section has a row more, which is dead."""
    for start in range(0, len(rows), section_rows):
        section = rows[start : start + section_rows]
        dead = section[0]._replace(sequence_number=section[0].sequence_number - 1)
        yield PackedRows(pack_rows([dead, *section])), 1


def restarted(dialogue: CoreDialogue, section_rows: int = 50, shuffle: bool = False):
    later = CoreDialogue(entities={}, attach=False, budget_bytes=1 << 20)
    later.store = dialogue.commit()
    later.now_ms = dialogue.now_ms
    later._tokens = dialogue._tokens
    later.namespace = Namespace("ns", ids=later.ids, **later.options)
    snapshot = later.store.load()
    rows = sorted(snapshot.messages, key=lambda row: (row.entity_id, row.sequence_number))
    if shuffle:
        random.Random(3).shuffle(rows)
    snapshot.messages = rows if section_rows == 0 else ()
    snapshot.packed_messages = packed(rows, section_rows) if section_rows else ()
    later.namespace.restore(snapshot, later.now_ms)
    return later


@pytest.mark.parametrize("definition", [None, QueueDefinition(default_time_to_live_ms=60_000)])
@pytest.mark.parametrize("section_rows", [0, 7, 50, BLOCK_SIZE, 100, COUNT])
def test_messages_are_packed_from_the_start(definition, section_rows):
    """However many of them the store has written at once. The first and the last block are not full, as no message
    has the number 0."""
    before = CoreDialogue(definition)
    before.serve(send(*SENT))
    later = restarted(before, section_rows)
    assert packed_count(later) == 3 * BLOCK_SIZE
    now, then = queue_of(later), queue_of(before)
    assert (then.count, then.size_bytes) == (now.count, now.size_bytes)
    assert then.last_sequence_number == now.last_sequence_number
    assert COUNT - packed_count(later) == later.namespace._context.payloads.message_count
    later.run(attach_receiver(R, "q"))
    assert SENT == texts(later.receive(credit(COUNT)))


def test_single_messages_are_not_packed_from_the_start():
    """A store that has one row for each message gives them as rows: the broker packs them itself, if they are many."""
    before = CoreDialogue()
    before.serve(send(*SENT))
    assert 0 == packed_count(restarted(before, 1))


@pytest.mark.parametrize("gone", [[0], [COUNT // 2], [COUNT - 1], [3, 70, 71, 72, 200]])
def test_messages_between_deleted_ones_are_packed(gone):
    """Blocks in which one is missing are not."""
    before = CoreDialogue()
    before.serve(send(*SENT))
    rows = sorted(before.commit().load().messages)
    later = CoreDialogue(budget_bytes=1 << 20, attach=False)
    later.namespace = Namespace("ns", ids=later.ids, **later.options)
    snapshot = before.commit().load()
    snapshot.messages = ()
    dead = sum(1 << number for number in gone)
    snapshot.packed_messages = [(PackedRows(pack_rows(rows)), dead)]
    later.namespace.restore(snapshot, later.now_ms)
    touched = {(number + 1) // BLOCK_SIZE for number in gone}
    assert packed_count(later) == BLOCK_SIZE * len({1, 2, 3} - touched)
    left = [number + 1 for number in range(COUNT) if number not in gone]
    assert left == [one.sequence_number for one in queue_of(later).index.walk()]
    assert len(left) == queue_of(later).count


@pytest.mark.parametrize("seed", range(20))
def test_rows_in_several_runs_are_restored(seed):
    """A store that has written blocks again has gaps between the numbers in one section, and dead rows anywhere."""
    chance = random.Random(seed)
    before = CoreDialogue()
    before.serve(send(*SENT))
    rows = sorted(before.commit().load().messages)
    sections, left = [], set(range(1, COUNT + 1))
    cuts = sorted(chance.sample(range(1, COUNT), chance.randrange(4)))
    runs = [rows[start:stop] for start, stop in pairwise([0, *cuts, COUNT])]
    chance.shuffle(runs)
    for group in (runs[::2], runs[1::2]):
        section = [row for run in group for row in run]
        dead = 0
        for _ in range(chance.randrange(3)):
            start = chance.randrange(COUNT)
            dead |= ((1 << chance.randrange(1, 70)) - 1) << start
        dead &= (1 << len(section)) - 1
        if section:
            sections.append((PackedRows(pack_rows(section)), dead))
            left -= {row.sequence_number for at, row in enumerate(section) if dead >> at & 1}
    later = CoreDialogue(budget_bytes=1 << 20, attach=False)
    later.namespace = Namespace("ns", ids=later.ids, **later.options)
    snapshot = before.commit().load()
    snapshot.messages, snapshot.packed_messages = (), sections
    later.namespace.restore(snapshot, later.now_ms)
    queue = queue_of(later)
    assert (len(left), sum(rows[number - 1].size for number in left)) == (
        queue.count,
        queue.size_bytes,
    )
    assert sorted(left) == [one.sequence_number for one in queue.index.walk()]


@pytest.mark.parametrize("shuffle", [False, True])
def test_messages_that_were_changed_are_restored_between_packed_ones(shuffle):
    """Their rows come later, or all come in any order."""
    before = CoreDialogue()
    before.serve(send(*SENT))
    (delivered,) = [one for one in before.serve(credit(1)) if isinstance(one, Deliver)]
    before.serve(Settle(R, delivered.tokens, delivered.tokens, ABANDON), credit(0))
    later = restarted(before, shuffle=shuffle)
    assert (packed_count(later) > 0) is not shuffle
    later.run(attach_receiver(R, "q"))
    received = later.receive(credit(COUNT))
    assert SENT == texts(received)
    assert [1] + [0] * (COUNT - 1) == [one.delivery_count for one in received]


def test_packed_messages_expire_after_a_restart():
    """Each at its time."""
    before = CoreDialogue()
    for text in SENT:
        before.serve(send(message(text, time_to_live_ms=60_000)), Advance(1))
    later = restarted(before)
    assert packed_count(later) > 0
    later.serve(Advance(60_000 - COUNT))
    for left in (COUNT - 1, COUNT - 2):
        assert left == queue_of(later).count
        later.serve(Advance(1))
    later.serve(Advance(100_000))
    finish_work(later)
    assert 0 == queue_of(later).count
    assert {} == later.commit().rows


def test_copies_are_packed_and_share_their_bodies_after_a_restart():
    """A body stays until its last copy is deleted."""
    paths = [f"t/Subscriptions/s{n}" for n in range(2)]
    before = CoreDialogue(
        entities={"t": TopicDefinition(), **{path: SubscriptionDefinition() for path in paths}},
        attach=False,
    )
    before.run(AttachSender(S, "t"))
    before.serve(send(*SENT))
    later = restarted(before)
    assert all(packed_count(later, path) > 0 for path in paths)
    later.ask(DeleteEntity(CLIENT, 1, paths[0]))
    finish_work(later)
    assert COUNT == len(later.commit().payloads)
    later.run(AttachSender(S, "t"), attach_receiver(R, paths[1]))
    later.serve(send("last"))
    received = later.receive(credit(COUNT + 1))
    assert [*SENT, "last"] == texts(received)
    *numbers, last = [one.enqueue_sequence_number for one in received]
    assert list(range(1, COUNT + 1)) == numbers
    assert last > COUNT


def test_a_topic_continues_its_numbers_after_packed_copies():
    """Older stores have no numbers of topics. The copies of its only subscription may look like
    messages that were sent there."""
    before = CoreDialogue(
        entities={"t": TopicDefinition(), "t/subscriptions/s": SubscriptionDefinition()},
        attach=False,
    )
    before.run(AttachSender(S, "t"))
    before.serve(send(*SENT[: COUNT - 1]))  # the last block is full
    topic = queue_of(before, "t")
    del before.commit()._sequence_numbers[topic.entity_id, topic.sub_queue]
    later = restarted(before)
    assert packed_count(later, "t/subscriptions/s") > 0
    assert COUNT - 1 == queue_of(later, "t").last_sequence_number


@pytest.mark.parametrize("section_rows", [0, 7, 50, BLOCK_SIZE, COUNT])
@pytest.mark.parametrize("apart_ms", [0, 1])
def test_scheduled_messages_are_packed_from_the_start(section_rows, apart_ms):
    """Each becomes active at its time, also if that was before the start."""
    before = CoreDialogue()
    later_ms = before.now_ms + 60_000
    crowd = [message(text, at_ms=later_ms + apart_ms * int(text)) for text in SENT]
    before.serve(send(*crowd))
    later = restarted(before, section_rows)
    assert 3 * BLOCK_SIZE == packed_count(later)
    queue = queue_of(later)
    assert (COUNT, COUNT) == (queue.count, queue.scheduled_count)
    assert later_ms == later.namespace.next_deadline_ms()
    later.serve(Advance(60_000 + COUNT // 2))
    assert (COUNT if apart_ms == 0 else COUNT // 2 + 1) == COUNT - queue.scheduled_count
    later.serve(Advance(COUNT))
    later.run(attach_receiver(R, "q"))
    assert SENT == texts(later.receive(credit(COUNT)))
    assert dict.fromkeys(range(COUNT + 1, 2 * COUNT + 1)) == {
        one.sequence_number: None for one in queue.locks.values()
    }


@pytest.mark.parametrize("section_rows", [10, 20, 30, COUNT])
def test_scheduled_messages_beside_waiting_ones_are_restored(section_rows):
    """In one block, and in one write of the store."""
    before = CoreDialogue()
    later_ms = before.now_ms + 60_000
    for start in range(0, COUNT, 90):
        at_ms = later_ms if start % 60 else 0
        before.serve(send(*[message(text, at_ms=at_ms) for text in SENT[start : start + 90]]))
    later = restarted(before, section_rows)
    now, then = queue_of(later), queue_of(before)
    assert (then.count, then.scheduled_count) == (now.count, now.scheduled_count)
    rows = [[rows_of([one]) for one in queue.index.walk()] for queue in (then, now)]
    assert rows[0] == rows[1]
    later.serve(Advance(60_000))
    assert 0 == now.scheduled_count
    later.run(attach_receiver(R, "q"))
    assert sorted(SENT) == sorted(texts(later.receive(credit(COUNT))))
