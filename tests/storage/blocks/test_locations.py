"""The table of locations beside a dictionary."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.blocks.locations import Locations

ids = st.one_of(
    st.lists(st.integers(1, 3_000), max_size=30, unique=True),
    st.builds(
        lambda first, count: list(range(first, first + count)),
        st.integers(1, 3_000),
        st.integers(0, 1_500),
    ),
)
steps = st.lists(st.tuples(st.sampled_from(["put", "remove", "find"]), ids), max_size=12)


@settings(deadline=None)
@given(steps)
def test_a_table_holds_what_a_dictionary_holds(taken):
    """Ids that are put, moved to another block, removed and looked up, in ranges and one by one."""
    table = Locations()
    expected: dict[int, tuple[int, int]] = {}
    for block, (step, numbers) in enumerate(taken, 1):
        if step == "put":
            table.put(numbers, block)
            expected |= {number: (block, slot) for slot, number in enumerate(numbers)}
        elif step == "remove":
            table.remove(sorted(numbers))
            for number in numbers:
                expected.pop(number, None)
        else:
            found, missing = table.find(sorted(numbers))
            bits: dict[int, int] = {}
            for number in numbers:
                if number in expected:
                    where, slot = expected[number]
                    bits[where] = bits.get(where, 0) | 1 << slot
            assert bits == found
            assert sorted(set(numbers) - set(expected)) == missing
        assert max(expected, default=0) == table.highest
        numbers_here = range(1, table.highest + 1)
        assert sorted(expected) == [number for number in numbers_here if table.get(number)]
    for number in range(1, 3_100):
        assert expected.get(number) == table.get(number)


def test_parts_in_which_nothing_is_left_take_no_memory():
    """A broker that has passed on a billion messages has a small table."""
    table = Locations()
    for first in range(1, 100_000, 1_000):
        table.put(range(first, first + 1_000), 1)
        table.remove(range(first, first + 1_000))
    assert not table._parts
    assert not table._few


def test_a_few_ids_that_stay_among_many_take_little_memory():
    """A dead letter among a thousand completed messages does not keep the table of the thousand."""
    table = Locations()
    tracemalloc.start()
    for first in range(1, 500_000, 1_000):
        table.put(range(first, first + 1_000), 1)
        table.remove([*range(first, first + 500), *range(first + 501, first + 1_000)])
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size_bytes < 500 * 700
    assert all(table.get(first + 500) for first in range(1, 500_000, 1_000))
