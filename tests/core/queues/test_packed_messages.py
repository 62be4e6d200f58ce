"""Waiting messages in very long queues are packed, without a visible difference."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.contract.commands import (
    AttachSender,
    DeleteEntity,
    DeleteMessages,
    Peek,
    SendBatch,
    Settle,
    Tick,
    UpdateEntity,
)
from broker.core.contract.message import Message
from broker.core.contract.settlement_values import ABANDON, COMPLETE
from broker.core.messages.message_rows import rows_of
from broker.core.queues.packed_messages import pack
from config.model.definitions import (
    EntityDefinition,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.support.core_dialogue import (
    CLIENT,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
    R,
    S,
    attach_receiver,
    credit,
    message,
    send,
)
from tests.support.packed_blocks import BLOCK_SIZE, COUNT, SENT, packed_count, queue_of, texts
from tests.support.unfinished_work import finish_work, has_unfinished_work

MIB = 1 << 20
OTHER = NamedPeer("OTHER")


def new_dialogue(
    definition: EntityDefinition | None = None, messages_max: int = 0, **options
) -> CoreDialogue:
    dialogue = CoreDialogue(definition, budget_bytes=MIB, **options)
    dialogue.namespace._context.payloads.messages_max = messages_max
    return dialogue


def payloads_of(dialogue):
    return dialogue.namespace._context.payloads


def test_messages_beyond_the_number_are_packed():
    """All but the blocks at either end, which are not full; their bodies leave memory."""
    dialogue = new_dialogue(messages_max=BLOCK_SIZE)
    dialogue.serve(send(*SENT[:10]))
    dialogue.serve(send(*SENT[10:]))
    assert packed_count(dialogue) >= COUNT - 3 * BLOCK_SIZE
    assert payloads_of(dialogue).message_count == COUNT - packed_count(dialogue)
    assert payloads_of(dialogue).resident_bytes <= 5 * payloads_of(dialogue).message_count
    assert COUNT == queue_of(dialogue).count


def test_without_a_store_for_bodies_nothing_is_packed():
    """Their bodies could not be read back."""
    dialogue = CoreDialogue()
    payloads_of(dialogue).messages_max = 0
    dialogue.serve(send(*SENT))
    assert 0 == packed_count(dialogue)


@pytest.mark.parametrize("at_once", [1, 7, BLOCK_SIZE, COUNT])
def test_packed_messages_are_delivered_in_order(at_once):
    """Each as it was sent, once, and completing them leaves nothing."""
    dialogue = new_dialogue()
    for start in range(0, COUNT, at_once):
        dialogue.serve(send(*SENT[start : start + at_once]), Advance(3))
    enqueued = [row.enqueued_time_ms for row in dialogue.commit().rows.values()]
    assert packed_count(dialogue) > 0
    effects = [e for e in dialogue.serve(credit(COUNT)) if isinstance(e, Deliver)]
    received = [one for effect in effects for one in effect.messages]
    assert SENT == texts(received)
    assert enqueued == [one.enqueued_time_ms for one in received]
    tokens = [token for effect in effects for token in effect.tokens]
    dialogue.serve(Settle(R, tokens, tokens, COMPLETE))
    assert (0, 0) == (queue_of(dialogue).count, queue_of(dialogue).size_bytes)
    assert (0, 0) == (payloads_of(dialogue).message_count, payloads_of(dialogue).resident_bytes)
    assert {} == dialogue.commit().rows
    assert {} == dialogue.store.payloads


def test_what_comes_back_is_delivered_again_before_packed_messages():
    """An abandoned message has its old place."""
    dialogue = new_dialogue()
    dialogue.serve(send(*SENT))
    (first,) = [e for e in dialogue.serve(credit(1)) if isinstance(e, Deliver)]
    dialogue.serve(Settle(R, first.tokens, first.tokens, ABANDON))
    assert ["00000", "00001"] == texts(dialogue.receive(credit(3)))


def test_peeking_shows_packed_messages_and_packs_them_again():
    """After a client has browsed a long queue, its messages are packed again."""
    dialogue = new_dialogue()
    dialogue.serve(send(*SENT))
    packed = packed_count(dialogue)
    seen: list[str] = []
    while found := next(
        e.value
        for e in dialogue.serve(Peek(CLIENT, 1, "q", len(seen) + 1, 50))
        if hasattr(e, "value")
    ):
        seen += texts(found)
    assert SENT == seen
    assert packed_count(dialogue) >= packed - BLOCK_SIZE


def test_packed_messages_are_deleted_by_request():
    """The oldest first."""
    dialogue = new_dialogue()
    dialogue.serve(send(*SENT))
    assert 100 == dialogue.ask(DeleteMessages(CLIENT, 1, "q", 100, dialogue.now_ms + 1))
    assert SENT[100:] == texts(dialogue.receive(credit(COUNT)))


def test_packed_messages_go_with_their_entity():
    """None is left in the store."""
    dialogue = new_dialogue()
    dialogue.serve(send(*SENT))
    dialogue.ask(DeleteEntity(CLIENT, 1, "q"))
    finish_work(dialogue)
    assert {} == dialogue.commit().rows
    assert 0 == payloads_of(dialogue).message_count


def test_packed_messages_are_forwarded_from_now_on():
    """When forwarding of their queue begins."""
    dialogue = new_dialogue(entities={"q": QueueDefinition(), "next": QueueDefinition()})
    dialogue.serve(send(*SENT))
    assert packed_count(dialogue) > 0
    dialogue.serve(UpdateEntity(CLIENT, 1, "q", QueueDefinition(forward_to="next")))
    dialogue.run(attach_receiver(OTHER, "next"))
    assert SENT == texts(dialogue.receive(credit(COUNT, to=OTHER)))


def test_copies_on_subscriptions_are_packed():
    """With the number that they have in the topic, and a body that they share."""
    subscriptions = {f"t/Subscriptions/s{n}": SubscriptionDefinition() for n in range(3)}
    dialogue = new_dialogue(entities={"t": TopicDefinition(), **subscriptions}, attach=False)
    dialogue.run(AttachSender(S, "t"))
    for text in SENT:
        dialogue.serve(send(text))
    for path in subscriptions:
        assert packed_count(dialogue, path) >= COUNT - 2 * BLOCK_SIZE
    path = "t/Subscriptions/s1"
    dialogue.run(attach_receiver(R, path))
    received = dialogue.receive(credit(COUNT))
    assert SENT == texts(received)
    assert list(range(1, COUNT + 1)) == [one.enqueue_sequence_number for one in received]


def test_messages_with_a_session_id_are_not_packed_in_a_queue_without_sessions():
    """A request for the messages of a session looks at those that are not packed."""
    dialogue = new_dialogue()
    sent = [message(text, session="a") for text in SENT]
    for one in sent:
        one.session_id = "a"
    dialogue.serve(send(*sent))
    assert 0 == packed_count(dialogue)


EXPIRING = [
    (QueueDefinition(dead_lettering_on_expiration=True), 60_000),
    (
        QueueDefinition(default_time_to_live_ms=60_000, dead_lettering_on_expiration=True),
        None,
    ),
]


@pytest.mark.parametrize(("definition", "time_to_live_ms"), EXPIRING)
@pytest.mark.parametrize("part_messages", [1, 100, 10_000])
@pytest.mark.parametrize("late_ms", [0, 1_000_000])
def test_packed_messages_expire_each_at_its_time(
    definition, time_to_live_ms, part_messages, late_ms
):
    """In the order of their times and numbers, however late the clock looks, and in any parts."""
    dialogue = new_dialogue(definition)
    dialogue.namespace._context.backlog.part_messages = part_messages
    for start in range(0, COUNT, 10):
        texts_sent = SENT[start : start + 10]
        dialogue.serve(
            send(*[message(text, time_to_live_ms=time_to_live_ms) for text in texts_sent]),
            Advance(7),
        )
    assert packed_count(dialogue) > 0
    sent_for_ms = 7 * -(-COUNT // 10)
    if late_ms:
        dialogue.serve(Advance(late_ms))
        finish_work(dialogue)
    else:
        dialogue.serve(Advance(60_000 - sent_for_ms - 1))
        finish_work(dialogue)
        assert COUNT == queue_of(dialogue).count
        for expired in range(10, COUNT + 10, 10):
            dialogue.serve(Advance(1 if expired == 10 else 7))
            finish_work(dialogue)
            assert max(0, COUNT - expired) == queue_of(dialogue).count
    assert 0 == packed_count(dialogue)
    dead = queue_of(dialogue, "q/$DeadLetterQueue")
    assert 0 == queue_of(dialogue).count
    assert list(range(1, COUNT + 1)) == [one.enqueue_sequence_number for one in dead.index.walk()]
    assert dialogue.namespace.next_deadline_ms() is None


@pytest.mark.parametrize("part_messages", [1, 10_000])
def test_packed_messages_and_others_expire_in_the_order_of_their_numbers(part_messages):
    """Those of one moment, whether or not they were packed."""
    dialogue = new_dialogue(EXPIRING[1][0])
    dialogue.serve(send(*SENT))
    dialogue.serve(credit(COUNT))
    assert 0 == packed_count(dialogue)
    dialogue.serve(Settle(R, tokens := list(queue_of(dialogue).locks), tokens, ABANDON))
    dialogue.serve(credit(0))
    dialogue.serve(send(*SENT))
    assert packed_count(dialogue) > 0
    dialogue.namespace._context.backlog.part_messages = part_messages
    dialogue.serve(Advance(60_000))
    finish_work(dialogue)
    dead = queue_of(dialogue, "q/$DeadLetterQueue")
    assert list(range(1, 2 * COUNT + 1)) == [
        one.enqueue_sequence_number for one in dead.index.walk()
    ]


def test_a_packed_message_that_has_expired_is_not_delivered():
    """Though its block is unpacked in parts."""
    dialogue = new_dialogue(QueueDefinition(default_time_to_live_ms=60_000))
    dialogue.namespace._context.backlog.part_messages = 10
    dialogue.serve(send(*SENT[: 2 * BLOCK_SIZE]), Advance(10))
    dialogue.serve(send(*SENT[2 * BLOCK_SIZE :]))
    dialogue.serve(Advance(60_000 - 10))
    received = []
    dialogue.run(credit(COUNT))
    while has_unfinished_work(dialogue.namespace):
        received += dialogue.receive(Advance(0))
    received += dialogue.receive(Advance(0))
    assert SENT[2 * BLOCK_SIZE :] == texts(received)


def test_messages_that_expire_are_not_packed_beside_others_that_never_do():
    """They have no time in common at which to look at them."""
    dialogue = new_dialogue()
    dialogue.serve(
        send(*[message(text, time_to_live_ms=int(text) or None) for text in SENT[:BLOCK_SIZE]])
    )
    assert 0 == packed_count(dialogue)


NUMBERS = st.one_of(st.integers(0, 5), st.integers(0, 1 << 31))


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=2, max_size=20),
    st.integers(1, 1 << 40),
    st.sampled_from([None, 5]),
    st.sampled_from([0, 5, 1 << 40]),
)
def test_unpacked_messages_are_as_they_were(values, first_number, time_to_live_ms, live_ms):
    """With any numbers and sizes."""
    queue = queue_of(CoreDialogue())
    messages = []
    for position, (message_id, time_ms, size, header) in enumerate(values):
        one = Message(b"", header=header, time_to_live_ms=time_to_live_ms)
        one.id = one.payload_id = message_id
        one.sequence_number = one.enqueue_sequence_number = first_number + position
        one.enqueued_time_ms = time_ms
        one.expires_at_ms = live_ms and time_ms + live_ms
        one.size = size
        one.queue = queue
        messages.append(one)
    packed = pack(queue, messages)
    assert packed is not None
    assert rows_of(messages) == rows_of(packed.unpack())


def test_the_bodies_of_a_large_batch_leave_memory_over_several_turns(monkeypatch):
    """Other clients are served in between."""
    monkeypatch.setattr("broker.core.operations.eviction.EVICTED_PER_TURN", 10)
    dialogue = new_dialogue()
    messages = [message(f"{number}") for number in range(20 * BLOCK_SIZE)]
    dialogue.run(SendBatch(S, messages, "batch"))
    in_memory = [sum(one.body is not None for one in messages)]
    while dialogue.namespace.next_deadline_ms() is not None:
        dialogue.run(Tick())
        in_memory.append(sum(one.body is not None for one in messages))
    evicted = [before - after for before, after in pairwise([len(messages), *in_memory])]
    assert len(messages) // 8 == max(evicted)
    assert 0 == in_memory[-1]
    assert len(messages) - 2 * BLOCK_SIZE <= packed_count(dialogue)
    assert ["0", "1"] == texts(dialogue.receive(credit(2)))


def test_one_turn_packs_few_of_the_blocks_that_a_message_to_a_topic_fills(monkeypatch):
    """The others follow in later turns."""
    monkeypatch.setattr("broker.core.operations.eviction.PACKS_PER_TURN", 2)
    paths = [f"t/Subscriptions/s{n}" for n in range(10)]
    subscriptions = {path: SubscriptionDefinition() for path in paths}
    dialogue = new_dialogue(entities={"t": TopicDefinition(), **subscriptions}, attach=False)
    dialogue.run(AttachSender(S, "t"))
    packed = []
    for text in SENT[: 2 * BLOCK_SIZE + 9]:
        dialogue.serve(send(text))
        packed.append(sum(packed_count(dialogue, path) for path in paths) // BLOCK_SIZE)
    first = packed.index(2)
    assert [2, 4, 6, 8, 10, 10] == packed[first : first + 6]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        (DeleteMessages(CLIENT, "d", "q", 10, 1), 0),
        (DeleteMessages(CLIENT, "d", "q", 10, 1 << 60, session_id="a"), 0),
        (Peek(CLIENT, "p", "q", 0, 10, session_id="a"), []),
    ],
)
def test_a_search_that_finds_nothing_unpacks_nothing(search, found):
    """Otherwise one request would take seconds in a long queue, and the memory of all its messages."""
    dialogue = new_dialogue()
    dialogue.serve(send(*SENT))
    packed = packed_count(dialogue)
    assert packed > 0
    assert found == dialogue.ask(search)
    assert packed == packed_count(dialogue)


def test_packed_messages_enqueued_before_a_time_are_deleted():
    """Also if only some messages of a block are older."""
    dialogue = new_dialogue()
    for text in SENT:
        dialogue.serve(send(text), Advance(1))
    assert packed_count(dialogue) > 0
    before_ms = dialogue.now_ms - BLOCK_SIZE - 5
    assert COUNT - BLOCK_SIZE - 5 == dialogue.ask(
        DeleteMessages(CLIENT, "d", "q", COUNT, before_ms)
    )
    assert SENT[-BLOCK_SIZE - 5 :] == texts(dialogue.receive(credit(COUNT)))
