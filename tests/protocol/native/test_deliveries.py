"""The unsettled deliveries of links, compared with dictionaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.native.compiled import Deliveries, SentSession, pump, take_dispositions
from tests.protocol.native.written import MASK, Written, transfer


class Model:
    """What a session knows of its deliveries, in plain Python."""

    def __init__(self, link_count: int, first_id: int) -> None:
        self.session = SentSession()
        self.links = [Deliveries(self.session) for _ in range(link_count)]
        self.sent = [0] * link_count
        self.next_id = first_id
        self.known: dict[int, tuple[int, int]] = {}
        """Link and number by id, in the order in which they were sent."""

    def write(self, link: int, transfers: int = 1) -> None:
        """Has Proton write a delivery."""
        frames = b"".join(transfer(0, link, self.next_id) for _ in range(transfers))
        with Written(frames) as transport:
            pump(transport, dict(enumerate(self.links)))
        self.known[self.next_id] = link, self.sent[link]
        self.sent[link] += 1
        self.next_id = self.next_id + 1 & MASK

    def take(self, first: int, last: int, settled: bool) -> list[tuple[int, int]]:
        """Returns link and number of each known delivery of a range, as a disposition finds them."""
        ids = sorted(
            (each for each in self.known if (each - first) & MASK <= (last - first) & MASK),
            key=lambda each: (each - first) & MASK,
        )
        found = [self.known[each] for each in ids]
        if settled:
            for each in ids:
                del self.known[each]
        return found

    def find(self, link: int, numbers: list[int], forget: bool) -> list[int]:
        found = []
        for number in numbers:
            ids = [each for each, place in self.known.items() if place == (link, number)]
            found += ids
            if forget:
                for each in ids:
                    del self.known[each]
        return found

    def check(self) -> None:
        for index, link in enumerate(self.links):
            numbers = sorted(number for place, number in self.known.values() if place == index)
            assert numbers == link.numbers()
            assert len(numbers) == len(link)


steps = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("write many"), st.integers(0, 2), st.integers(1, 60)),
    st.tuples(st.just("take"), st.integers(-5, 80), st.integers(0, 30), st.booleans()),
    st.tuples(st.just("take all"), st.booleans()),
    st.tuples(
        st.just("find"),
        st.integers(0, 2),
        st.lists(st.integers(0, 90), max_size=8),
        st.booleans(),
    ),
    st.tuples(st.just("clear"), st.integers(0, 2)),
)


@given(st.sampled_from([0, 7, MASK - 20]), st.lists(steps, max_size=40))
def test_deliveries_are_found_as_in_a_dictionary(first_id, steps):
    """By id for the client and by number for the broker, on several links of a session, over the end of the ids."""
    model = Model(3, first_id)
    for what, *arguments in steps:
        if what == "write":
            model.write(*arguments)
        elif what == "write many":
            link, count = arguments
            for _ in range(count):
                model.write(link)
        elif what in ("take", "take all"):
            if what == "take":
                offset, span, settled = arguments
                first = first_id + offset & MASK
                last = first + span & MASK
            else:
                (settled,) = arguments
                first, last = first_id & MASK, first_id + (1 << 31) - 1 & MASK
            groups = model.session.take(first, last, settled)
            assert all(group[2:] == (0, settled) for group in groups)
            taken = [
                (model.links.index(link), number)
                for link, numbers, _, _ in groups
                for number in numbers
            ]
            assert model.take(first, last, settled) == taken
        elif what == "find":
            link, numbers, forget = arguments
            found = model.links[link].find(numbers, forget)
            assert model.find(link, numbers, forget) == found
        else:
            (link,) = arguments
            model.links[link].clear()
            model.known = {key: place for key, place in model.known.items() if place[0] != link}
        model.check()


def test_a_link_that_is_gone_leaves_nothing_in_its_session():
    """Even if nobody cleared it."""
    model = Model(2, 0)
    for _ in range(100):
        model.write(0)
        model.write(1)
    model.links.pop(0)
    ((link, numbers, _, _),) = model.session.take(0, 500, False)
    assert link is model.links[0]
    assert list(range(100)) == numbers


def test_an_id_of_four_billion_deliveries_ago_is_the_new_delivery():
    """The client cannot mean the older one any more."""
    model = Model(1, 5)
    model.write(0)
    model.next_id = 9
    model.write(0)
    model.next_id = 5
    model.write(0)
    ((_, numbers, _, _),) = model.session.take(5, 5, True)
    assert [2] == numbers
    assert [1] == model.links[0].numbers()


def test_none_is_no_delivery():
    """The core passes it on for a message that the client had settled."""
    link = Deliveries()
    link.settle([None, 3], 0)
    assert [] == link.find([None, 3], True)


def test_wrong_arguments_are_errors():
    """And no crashes."""
    link = Deliveries()
    with pytest.raises(TypeError):
        Deliveries(link)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        link.settle(["a"], 0)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        link.find(7, True)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        link.add(None)  # type: ignore[arg-type]
    assert (0, []) == take_dispositions(b"", 0, 100, {})
