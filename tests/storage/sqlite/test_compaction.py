"""Blocks in which little is alive are written again: a file stays small, and every commit stays short."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from broker.core.contract.records import MessagesDeleted, MessagesStored, MessagesUpdated
from storage.blocks import compaction
from storage.blocks.block_format import BLOCK_MAX_BYTES
from storage.sqlite.free_space import PAGE_BYTES, pragma_value
from tests.storage.sample_records import message_ids, messages, payload, row, stored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.sqlite.store import SqliteStore

BODY = b"x" * 1_000
SLACK_BYTES = 256 << 10


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch, without_journal):
    monkeypatch.setattr(compaction, "DEAD_MAX_BYTES", SLACK_BYTES)
    monkeypatch.setattr(compaction, "SMALL_BLOCKS_MAX", 32)


def send(store: SqliteStore, ids: Iterable[int]) -> None:
    ids = list(ids)
    store.commit([MessagesStored([row(one) for one in ids], [payload(one, BODY) for one in ids])])


def complete(store: SqliteStore, ids: Iterable[int]) -> None:
    ids = list(ids)
    store.commit([MessagesDeleted(ids, ids)])


def used_bytes(store: SqliteStore) -> int:
    writer = store._writer
    assert writer is not None
    pages = pragma_value(writer, "page_count") - pragma_value(writer, "freelist_count")
    return pages * PAGE_BYTES


def blocks(store: SqliteStore) -> int:
    assert store._writer is not None
    return int(store._writer.execute("SELECT count(*) FROM blocks").fetchone()[0])


def rewritten_by(store: SqliteStore, records) -> int:
    """How many blocks a commit writes again."""
    texts: list[str] = []
    assert store._writer is not None
    store._writer.set_trace_callback(texts.append)
    store.commit(records)
    store._writer.set_trace_callback(None)
    return len([text for text in texts if text.startswith("SELECT number, entries, payloads")])


@pytest.mark.parametrize("kept_every", [2, 3, 10, 100])
def test_the_space_is_twice_what_is_alive_plus_a_constant(sqlite, kept_every):
    """Whatever part of the messages stays, at every moment while the others are completed."""
    count = 3_000
    for first in range(1, count, 100):
        send(sqlite, range(first, first + 100))
    alive = count
    completed = [number for number in range(1, count + 1) if number % kept_every]
    random.Random(5).shuffle(completed)
    for start in range(0, len(completed), 50):
        gone = completed[start : start + 50]
        complete(sqlite, gone)
        alive -= len(gone)
        limit = 2 * alive * len(BODY) * 1.1 + SLACK_BYTES + 2 * BLOCK_MAX_BYTES
        assert used_bytes(sqlite) <= limit
    kept = [number for number in range(1, count + 1) if number % kept_every == 0]
    assert kept == message_ids(sqlite)
    assert dict.fromkeys(kept, (BODY, b"")) == sqlite.read_payloads(range(1, count + 1))


def test_one_old_message_does_not_keep_its_neighbours(sqlite):
    """A queue that was long is empty but for its first message."""
    for first in range(1, 5_001, 500):
        send(sqlite, range(first, first + 500))
    for first in range(2, 5_001, 100):
        complete(sqlite, range(first, min(first + 100, 5_001)))
    assert [1] == message_ids(sqlite)
    assert used_bytes(sqlite) <= 2 * SLACK_BYTES + BLOCK_MAX_BYTES


def test_messages_of_many_small_commits_are_brought_together(sqlite):
    """A start reads few blocks, although each message came by itself."""
    for number in range(1, 1_001):
        send(sqlite, [number])
    assert blocks(sqlite) <= compaction.SMALL_BLOCKS_MAX + 1_000 * len(BODY) // BLOCK_MAX_BYTES * 5
    sqlite.close()
    sqlite.open()
    assert list(range(1, 1_001)) == message_ids(sqlite)
    assert {BODY} == {body for body, _ in sqlite.read_payloads(range(1, 1_001)).values()}


def test_messages_that_are_brought_together_stay_in_order(sqlite):
    """A start keeps runs of consecutive messages as they are, and unpacks others."""
    for number in range(1, 3_001):
        sqlite.commit([stored([number])])
    runs = [
        stop - start
        for rows, _ in sqlite.load().packed_messages
        for _, start, stop in rows.waiting_runs(with_sessions=False)
    ]
    assert sum(run for run in runs if run >= 256) >= 2_500


def test_a_message_is_brought_together_once_or_twice(sqlite, monkeypatch):
    """Not again with every new message: the work for each stays the same, however many there are."""
    monkeypatch.setattr(compaction, "REWRITE_BLOCKS", 16)
    written = 0
    for number in range(1, 3_001):
        written += rewritten_by(sqlite, [stored([number])])
    assert written <= 2 * 3_000


def test_a_commit_writes_few_blocks_again(sqlite, monkeypatch):
    """Even if all blocks should be: others wait for it."""
    monkeypatch.setattr(compaction, "SMALL_BLOCKS_MAX", 10_000)
    for number in range(1, 501):
        send(sqlite, [number])
    monkeypatch.setattr(compaction, "SMALL_BLOCKS_MAX", 1)
    assert 1 < rewritten_by(sqlite, [stored([501])]) <= compaction.REWRITE_BLOCKS


def test_a_commit_reads_few_blocks_that_are_nearly_dead(sqlite, monkeypatch):
    """Little is written again, but all of such a block is read."""
    monkeypatch.setattr(compaction, "DEAD_MAX_BYTES", 1 << 30)
    for first in range(1, 5_001, 100):
        send(sqlite, range(first, first + 100))
    complete(sqlite, [number for number in range(1, 5_001) if number % 100])
    monkeypatch.setattr(compaction, "DEAD_MAX_BYTES", 0)
    assert 1 < rewritten_by(sqlite, [stored([5_001])]) <= compaction.READ_BYTES // 100_000
    assert [*range(100, 5_001, 100), 5_001] == message_ids(sqlite)


def test_updates_do_not_fill_the_file(sqlite):
    """A message that is delivered again and again leaves nothing behind but its last row."""
    send(sqlite, range(1, 101))
    before = used_bytes(sqlite)
    for count in range(1, 501):
        sqlite.commit(
            [MessagesUpdated([row(number, delivery_count=count) for number in range(1, 101)])]
        )
    assert used_bytes(sqlite) <= before + SLACK_BYTES
    assert {500} == {one.delivery_count for one in messages(sqlite)}
    assert 100 == len(sqlite.read_payloads(range(1, 101)))


def test_nothing_is_written_again_while_there_is_no_space_for_it(sqlite):
    """On a full disk commits that free space must not need more of it."""
    sqlite._space.may_rewrite = False
    for number in range(1, 101):
        send(sqlite, [number])
    assert 0 == rewritten_by(sqlite, [MessagesDeleted([1], [1])])
    assert sqlite.measure_room()
    assert 0 < rewritten_by(sqlite, [MessagesDeleted([2], [2])])


def test_a_failed_commit_leaves_the_index_as_it_was(sqlite):
    """Whatever it would have deleted, stored and written again."""
    for number in range(1, 101):
        send(sqlite, [number])
    twice = [MessagesDeleted([5], [5]), stored([101]), stored([7])]
    with pytest.raises(Exception, match="twice"):
        sqlite.commit(twice)
    sqlite.commit([MessagesDeleted([6], [6])])
    assert [number for number in range(1, 101) if number != 6] == message_ids(sqlite)
    assert (BODY, b"") == sqlite.read_payloads([5])[5]


def test_an_index_that_could_not_be_changed_is_read_again(sqlite, monkeypatch):
    """The commit is durable by then, so nobody is told of a failure."""
    from storage.blocks.block_index import BlockIndex

    send(sqlite, range(1, 11))

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(BlockIndex, "kill", fail)
        complete(sqlite, range(1, 6))
    assert list(range(6, 11)) == message_ids(sqlite)
    complete(sqlite, range(6, 9))
    sqlite.close()
    sqlite.open()
    assert [9, 10] == message_ids(sqlite)
