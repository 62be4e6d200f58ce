"""What only the store in memory has to promise: it works on the event loop, so no record may take long."""

from __future__ import annotations

from typing import Any

from broker.core.contract.records import EntityDeleted, SequenceNumbersSkipped, SessionStateSet
from storage.memory import MemoryStore


class _NotScanned(dict[Any, Any]):
    """A dictionary that nobody may read as a whole."""

    def __iter__(self):
        raise AssertionError("all keys are read")

    keys = values = items = __iter__


def test_an_entity_is_deleted_without_a_look_at_all_others():
    """Otherwise the deletion of very many entities stops the event loop: its time grows with their square."""
    store = MemoryStore()
    store._sequence_numbers = _NotScanned()
    store._session_states = _NotScanned()
    for entity_id in (1, 2):
        numbers = [(entity_id, sub_queue, 7) for sub_queue in range(3)]
        state = SessionStateSet(entity_id, "s", b"state", 1)
        store.commit([SequenceNumbersSkipped(numbers), state])
    store.commit([EntityDeleted(1)])
    assert {(2, sub_queue): 7 for sub_queue in range(3)} == store._sequence_numbers
    assert {2: {"s": SessionStateSet(2, "s", b"state", 1)}} == store._session_states
