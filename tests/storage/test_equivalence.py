"""Whatever is committed, a file holds what plain dictionaries hold.

The memory store applies records one by one; the file's store draws them together into few
statements. Both must come to the same, and a reopened file to the same again.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.contract.records import (
    EntityDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    NamespaceDeleted,
    NamespaceStored,
    RuleRow,
    RulesDeleted,
    RulesStored,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from storage.memory import MemoryStore
from storage.sqlite.store import SqliteStore
from tests.storage.sample_records import entity, everything, payload, row

if TYPE_CHECKING:
    from storage.contract import Store

ENTITIES = st.integers(1, 3)
IDS = st.integers(1, 40)
SESSIONS = st.sampled_from([None, "", "a", "b"])

rows = st.builds(
    row,
    IDS,
    entity_id=ENTITIES,
    sub_queue=st.integers(0, 2),
    time_to_live_ms=st.none() | st.integers(0, 5),
    delivery_count=st.integers(0, 3),
    sequence_number=st.integers(1, 60),
    payload_id=IDS,
    session_id=SESSIONS,
    changes=st.none() | st.binary(max_size=3),
)
payloads = st.builds(payload, IDS, st.binary(max_size=4), st.binary(max_size=2))
times = st.integers(1, 20)
records = st.one_of(
    st.builds(MessagesStored, st.lists(rows, max_size=20), st.lists(payloads, max_size=20)),
    st.builds(MessagesUpdated, st.lists(rows, max_size=5)),
    st.builds(MessagesDeleted, st.lists(IDS, max_size=20), st.lists(IDS, max_size=20)),
    st.builds(SessionStateSet, ENTITIES, st.sampled_from("ab"), st.none() | st.binary(), times),
    st.builds(
        MessageIdsSeen, ENTITIES, st.lists(st.tuples(st.sampled_from("abcd"), times), max_size=4)
    ),
    st.builds(MessageIdsForgotten, ENTITIES, times),
    st.builds(entity, ENTITIES, st.sampled_from(["x", "y"])),
    st.builds(EntityDeleted, ENTITIES),
    st.builds(
        lambda *row: RulesStored([RuleRow(*row)]),
        ENTITIES,
        st.integers(1, 4),
        st.sampled_from(["{}", '{"a":1}']),
    ),
    st.builds(RulesDeleted, ENTITIES, st.lists(st.integers(1, 4), max_size=3)),
    st.builds(
        SequenceNumbersSkipped,
        st.lists(st.tuples(ENTITIES, st.integers(0, 2), st.integers(1, 60)), max_size=3),
    ),
    st.builds(NamespaceStored, st.sampled_from("mn"), st.sampled_from(["{}", '{"a":1}'])),
    st.builds(NamespaceDeleted, st.sampled_from("mn")),
)


def by_id(store: Store) -> dict[str, Any]:
    """All it holds. Numbers may repeat here, so the order of messages says nothing."""
    found = everything(store)
    found["messages"].sort(key=lambda message: message.id)
    return found


def legal(store: MemoryStore, batch: list[Any]) -> list[Any]:
    """The batch without what a broker never says: storing or updating what it should not.

    What is there follows the batch record by record, in a scratch store that takes it all.
    """
    kept: list[Any] = []
    for record in batch:
        match record:
            case MessagesStored(new_rows, new_payloads):
                record = MessagesStored(
                    absent(new_rows, store._messages), absent(new_payloads, store._payloads)
                )
            case MessagesUpdated(changed):
                record = MessagesUpdated([one for one in changed if one.id in store._messages])
        store.commit([record])
        kept.append(record)
    return kept


def absent(candidates, present) -> list[Any]:
    first = {candidate.id: candidate for candidate in reversed(candidates)}
    return [candidate for key, candidate in first.items() if key not in present]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(records, min_size=1, max_size=12), min_size=1, max_size=4))
def test_a_file_and_dictionaries_hold_the_same(batches):
    """After every commit, and after reopening."""
    with TemporaryDirectory() as folder:
        expected, scratch = MemoryStore(), MemoryStore()
        store = SqliteStore(Path(folder) / "peeklock.db")
        store.open()
        try:
            for batch in batches:
                batch = legal(scratch, batch)
                expected.commit(batch)
                store.commit(batch)
                assert by_id(expected) == by_id(store)
            store.close()
            store.open()
            assert by_id(expected) == by_id(store)
        finally:
            store.close()
