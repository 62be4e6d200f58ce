"""Single sends and completions come to the same as through a batch, in bytes and in the index."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.contract.records import MessagesDeleted, MessagesStored, MessagesUpdated
from broker.core.contract.sent_rows import SentPayloads, SentRows
from storage.blocks import compaction
from storage.blocks.block_batch import BlockBatch
from storage.blocks.block_index import BlockIndex
from storage.blocks.single_messages import single_messages
from tests.storage.sample_records import payload, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.records import Record
    from storage.blocks.locations import Locations


def sent(
    first_id: int,
    *bodies: bytes,
    annotations: list[bytes] | None = None,
    session_ids: Sequence[str | None] | None = None,
    time_to_live_ms: int | None = None,
) -> MessagesStored:
    rows = SentRows(
        first_id,
        1,
        0,
        first_id + 10,
        first_id + 20,
        1_700_000_000_000,
        time_to_live_ms,
        0 if time_to_live_ms is None else 1_700_000_000_000 + time_to_live_ms,
        [3] * len(bodies),
        [len(body) for body in bodies],
        session_ids,
    )
    return MessagesStored(rows, SentPayloads(first_id, list(bodies), annotations))


def by_batch(index: BlockIndex, records: list[Record]) -> BlockBatch:
    batch = BlockBatch(index)
    takers: Any = {
        MessagesStored: batch.store,
        MessagesUpdated: batch.update,
        MessagesDeleted: batch.delete,
    }
    for record in records:
        takers[type(record)](record)
    batch.find_dead()
    return batch


def places(index: BlockIndex, locations: Locations) -> dict[int, tuple[int, int]]:
    found = {}
    for number in locations:
        handle, slot = locations.get(number) or (0, 0)
        found[number] = index.block(handle).number, slot
    return found


def state(index: BlockIndex) -> dict[str, Any]:
    """An index in a form that can be compared. Which block has which handle is of no importance."""
    blocks = {
        number: {name: getattr(block, name) for name in block.__slots__ if name != "handle"}
        for number, block in index.by_number.items()
    }
    return {
        "blocks": blocks,
        "rows": places(index, index.rows),
        "payloads": places(index, index.payloads),
        "small": [block.number for block in index.small],
        "sparse": [block.number for block in index.sparse],
        "numbers": (index.next_number, index.highest_id, index.live_bytes, index.size_bytes),
        "free": len(index._free_handles),
    }


def some_record(
    chance: random.Random, alive: list[int], last: int, step: int
) -> tuple[Record, int]:
    """A record, and the highest id so far. Ids that it deletes are not chosen again."""
    kind = chance.random()
    if kind < 0.5 or not alive:
        count = chance.choice((1, 1, 1, 3))
        bodies = [b"%d" % step * chance.choice((0, 1, 100, 5_000)) for _ in range(count)]
        noted = chance.random() < 0.3
        record = sent(
            last + 1,
            *bodies,
            annotations=[b"a" * chance.randrange(3) for _ in bodies] if noted else None,
            session_ids=chance.choice((None, ["é"] * count, [None] * count)),
            time_to_live_ms=chance.choice((None, 0, 5)),
        )
        return record, last + count
    if kind < 0.9:
        ids = chance.sample(alive, min(len(alive), chance.choice((1, 1, 1, 2))))
        for one in ids:
            alive.remove(one)
        return MessagesDeleted(ids, ids), last
    return MessagesUpdated([row(chance.choice(alive), delivery_count=step)]), last


@pytest.mark.parametrize("seed", range(5))
def test_both_ways_change_the_same(seed):
    """Two indexes, one for each way, stay equal over sends, completions and updates of any size."""
    chance = random.Random(seed)
    index, other = BlockIndex(), BlockIndex()
    last = 0
    singles = 0
    for step in range(400):
        records: list[Record] = []
        alive = list(index.rows)
        for _ in range(chance.choice((1, 1, 2, 3))):
            record, last = some_record(chance, alive, last, step)
            records.append(record)
        batch = by_batch(other, records)
        changes = batch.changes()
        single = single_messages(index, records)
        if single is None:
            same = by_batch(index, records)
            same.changes()
            same.apply()
        else:
            singles += 1
            assert sorted(changes.deleted_blocks) == sorted(single.changes.deleted_blocks)
            assert changes[1:] == single.changes[1:]
            if [type(one) for one in records] == [MessagesStored]:
                (number,) = single.sequence_numbers.values()
                assert records[0].rows.last_sequence_number == number
            assert single.freed_bytes == sum(
                index.by_number[one].size_bytes for one in changes.deleted_blocks
            )
            single.apply()
        batch.apply()
        assert state(other) == state(index)
    assert singles > 60


def test_other_commits_are_left_to_the_batch(monkeypatch):
    """Whatever needs more than a new block, or the end of one."""
    index = BlockIndex()
    first = single_messages(index, [sent(1, b"body")])
    assert first is not None
    assert {(1, 0): 11} == first.sequence_numbers
    first.apply()
    assert single_messages(index, [MessagesDeleted([1], [1])]) is not None
    others: list[list[Record]] = [
        [],
        [sent(2, b"body"), sent(3, b"body")],
        [sent(2, b"one", b"two")],
        [sent(2, b"x" * 16_385)],
        [sent(2, b"x" * 16_384, annotations=[b"a"])],
        [sent(1, b"stored already")],
        [MessagesStored([row(2)], [payload(2)])],
        [MessagesUpdated([row(1)])],
        [MessagesDeleted([1], [])],
        [MessagesDeleted([], [1])],
        [MessagesDeleted([1, 2], [1, 2])],
        [MessagesDeleted([2], [2])],
        [MessagesDeleted([1], [1]), MessagesDeleted([1], [1])],
        [sent(2, b"body"), MessagesDeleted([2], [2])],
        [MessagesDeleted([1], [1]), MessagesUpdated([row(1)])],
    ]
    for records in others:
        assert single_messages(index, records) is None
    monkeypatch.setattr(compaction, "SMALL_BLOCKS_MAX", 0)
    assert single_messages(index, [sent(2, b"body")]) is None
