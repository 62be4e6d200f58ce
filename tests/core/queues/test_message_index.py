"""The two structures that keep messages in order: by number, and ready for delivery."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.core.contract.message import Message
from broker.core.messages.identifiers import MessageIds, lock_tokens
from broker.core.queues.message_index import BLOCK_BITS, MessageIndex
from broker.core.queues.ready_messages import READ_AHEAD_MAX_BYTES, ReadyMessages

SOMEWHERE: Any = object()
BLOCK_SIZE = 1 << BLOCK_BITS


def numbered(number, body=b"x"):
    message = Message(body)
    message.sequence_number = message.id = number
    message.queue = SOMEWHERE
    return message


def numbers(messages):
    return [message.sequence_number for message in messages]


def remove(index, number):
    index.remove([index.get(number)])


# --- by number -------------------------------------------------------------------------------------


def test_a_walk_starts_anywhere():
    """In a block, between blocks, before all and after all."""
    index = MessageIndex()
    index.add(1, [numbered(n) for n in range(1, 3 * BLOCK_SIZE)])
    for start in (0, 1, 5, BLOCK_SIZE - 1, BLOCK_SIZE, 2 * BLOCK_SIZE + 7, 3 * BLOCK_SIZE - 1):
        assert list(range(max(start, 1), 3 * BLOCK_SIZE)) == numbers(index.walk(start))
    assert [] == numbers(index.walk(3 * BLOCK_SIZE))


def test_messages_are_found_by_number():
    """Or not."""
    index = MessageIndex()
    index.add(5, [numbered(5), numbered(6)])
    assert 6 == index.get(6).sequence_number
    assert None is index.get(7)
    assert None is index.get(10 * BLOCK_SIZE)


def test_empty_blocks_go():
    """A queue that has been through millions of messages holds none of them."""
    index = MessageIndex()
    for start in range(1, 10 * BLOCK_SIZE, 100):
        index.add(start, [numbered(n) for n in range(start, start + 100)])
        for number in range(start, start + 100):
            remove(index, number)
    assert {} == index.blocks
    assert [] == list(index.walk())


def test_a_number_set_aside_is_filled_in_its_place():
    """Though later ones came first, or its block was gone."""
    index = MessageIndex()
    index.add(1, [numbered(1)])
    index.add(3, [numbered(3)])
    index.add(5 * BLOCK_SIZE, [numbered(5 * BLOCK_SIZE)])
    index.add_late(numbered(2))
    index.add_late(numbered(2 * BLOCK_SIZE))
    assert [1, 2, 3, 2 * BLOCK_SIZE, 5 * BLOCK_SIZE] == numbers(index.walk())


@given(
    st.lists(st.integers(1, 700), min_size=1, max_size=8),
    st.sets(st.integers(1, 3000)),
    st.integers(0, 3000),
)
def test_the_index_agrees_with_a_sorted_list(batches, removed, start):
    """After any additions, in any pieces, and any removals."""
    index = MessageIndex()
    following = 1
    for size in batches:
        index.add(following, [numbered(n) for n in range(following, following + size)])
        following += size
    left = set(range(1, following)) - removed
    for number in removed & set(range(1, following)):
        remove(index, number)
    assert sorted(n for n in left if n >= start) == numbers(index.walk(start))


# --- ready -----------------------------------------------------------------------------------------


def test_what_comes_back_comes_first():
    """In the order of numbers, before anything never taken."""
    ready = ReadyMessages()
    messages = [numbered(n) for n in range(1, 7)]
    ready.add(messages)
    taken = ready.take(4, 10**9)
    ready.put_back([taken[3], taken[1]])
    assert [2, 4, 5, 6] == numbers(ready.take(10, 10**9))


def test_what_has_left_its_queue_is_stepped_over():
    """Fresh or returned, and counts for nothing."""
    ready = ReadyMessages()
    messages = [numbered(n) for n in range(1, 6)]
    ready.add(messages)
    ready.put_back(ready.take(2, 10**9))
    messages[0].queue = messages[2].queue = None
    assert 2 == ready.first.sequence_number
    assert [2, 4] == numbers(ready.take(2, 10**9))
    messages[4].queue = None
    assert None is ready.first
    assert 0 == len(ready)


def test_taking_ends_at_a_message_without_body():
    """And says so."""
    ready = ReadyMessages()
    messages = [numbered(n) for n in range(1, 4)]
    messages[1].body = None
    ready.add(messages)
    assert [1] == numbers(ready.take(9, 10**9))
    assert ready.blocked
    assert [2] == numbers(ready.to_read_ahead())
    messages[1].body = b"x"
    assert [2, 3] == numbers(ready.take(9, 10**9))
    assert not ready.blocked


def test_what_came_back_is_read_in_parts():
    """The next one always, and no more than fits ahead."""
    ready = ReadyMessages()
    half = b"x" * (READ_AHEAD_MAX_BYTES // 2)
    ready.add([numbered(n, half) for n in range(1, 6)])
    taken = ready.take(5, 10**9)
    for message in taken:
        message.body = None
    ready.put_back(reversed(taken))
    assert [] == ready.take(1, 10**9)
    asked_for = numbers(ready.to_read_ahead())
    assert 1 == asked_for[0]
    assert 2 == len(asked_for)


def test_taking_ends_when_there_are_enough_bytes():
    """With the message that reaches them."""
    ready = ReadyMessages()
    ready.add([numbered(n, b"x" * 10) for n in range(1, 9)])
    assert [1, 2, 3] == numbers(ready.take(9, 25))


def test_what_was_taken_is_not_kept():
    """A long queue lets go of its messages as they leave, not when it is empty."""
    ready = ReadyMessages()
    ready.add([numbered(n) for n in range(1, 20_001)])
    for _ in range(100):
        ready.take(150, 10**9)
    kept = sum(message.queue is not None for message in ready._fresh)
    assert 5_000 == kept == len(ready)
    assert len(ready._fresh) <= 10_000


# --- identifiers -----------------------------------------------------------------------------------


def test_lock_tokens_are_sixteen_random_bytes_each():
    """However many are taken from one piece of randomness."""
    new_tokens = lock_tokens(os.urandom)
    tokens = [token for count in (1, 300, 0, 7, 692) for token in new_tokens(count)]
    assert {16} == {len(token) for token in tokens}
    assert 1_000 == len(set(tokens))


def test_ids_go_on_behind_what_is_stored():
    """And never back."""
    ids = MessageIds()
    ids.skip(message_id=10, entity_id=3)
    ids.skip(message_id=5)
    assert (11, 13, 4) == (ids.take_messages(2), ids.take_messages(1), ids.take_entity())
