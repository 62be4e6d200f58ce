"""The unsettled deliveries that the broker sent, compared with dictionaries."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from protocol.amqp.frames.delivery_ids import SERIAL_MASK as MASK
from protocol.amqp.frames.sent_deliveries import SentDeliveries, SentSession


class Model:
    """What a session knows of its deliveries, in plain Python."""

    def __init__(self, link_count: int, first_id: int) -> None:
        self.session = SentSession()
        self.links = [SentDeliveries(self.session) for _ in range(link_count)]
        self.sent = [0] * link_count
        self.next_id = first_id
        self.known: dict[int, tuple[int, int]] = {}
        """Link and number by id, in the order in which they were sent."""

    def write(self, link: int, count: int = 1, transfers: int = 1) -> None:
        """Has Proton write deliveries, of which the last has so many transfers."""
        self.links[link].record(self.next_id, (self.next_id + count - 1) & MASK)
        for _ in range(count):
            self.known.pop(self.next_id, None)
            self.known[self.next_id] = link, self.sent[link]
            self.sent[link] += 1
            self.next_id = (self.next_id + 1) & MASK
        for _ in range(transfers - 1):
            last = (self.next_id - 1) & MASK
            self.links[link].record(last, last)

    def continue_writing(self, link: int, count: int) -> None:
        """Has Proton write another transfer of the last delivery of a link, and deliveries behind it."""
        self.links[link].record((self.next_id - 1) & MASK, (self.next_id + count - 1) & MASK)
        for _ in range(count):
            self.known[self.next_id] = link, self.sent[link]
            self.sent[link] += 1
            self.next_id = (self.next_id + 1) & MASK

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
        found: list[int] = []
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
            assert numbers == sorted(link.unsettled)
            assert len(numbers) == len(link)


steps = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 40), st.integers(1, 3)),
    st.tuples(st.just("in turns"), st.integers(1, 60)),
    st.tuples(st.just("continue"), st.integers(0, 3)),
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


@example(0, [("in turns", 2), ("clear", 1), ("in turns", 2), ("find", 1, [1], False)])
@example(0, [("in turns", 1), ("clear", 0), ("in turns", 1), ("find", 0, [1], False)])
@given(st.sampled_from([0, 7, MASK - 20]), st.lists(steps, max_size=40))
def test_deliveries_are_found_as_in_a_dictionary(first_id, steps):
    """By id for the client and by number for the broker, on several links of a session, over the end of the ids."""
    model = Model(3, first_id)
    last_link = None
    for what, *arguments in steps:
        if what == "write":
            model.write(*arguments)
            last_link = arguments[0]
        elif what == "in turns":
            for number in range(arguments[0]):
                last_link = number % 2
                model.write(last_link)
        elif what == "continue":
            if last_link is not None:
                model.continue_writing(last_link, arguments[0])
        elif what in ("take", "take all"):
            if what == "take":
                offset, span, settled = arguments
                first = first_id + offset & MASK
                last = first + span & MASK
            else:
                (settled,) = arguments
                first, last = first_id & MASK, first_id + (1 << 31) - 1 & MASK
            groups = model.session.take(first, last, 0x24, settled=settled)
            assert all(group[2:] == (0x24, settled) for group in groups)
            taken = [
                (model.links.index(link), number)
                for link, numbers, _, _ in groups
                for number in numbers
            ]
            assert model.take(first, last, settled) == taken
        elif what == "find":
            link, numbers, forget = arguments
            found = model.links[link].find(numbers, forget=forget)
            assert model.find(link, numbers, forget) == found
        else:
            (link,) = arguments
            model.links[link].clear()
            model.known = {key: place for key, place in model.known.items() if place[0] != link}
        model.check()


def test_numbers_in_any_order_are_found_once():
    """A client may send an outcome twice."""
    model = Model(2, 7)
    model.write(0, 5)
    link = model.links[0]
    assert [9, 7, 9] == link.find([2, 0, 2], forget=False)
    assert [9, 7] == link.find([2, 0, 2], forget=True)
    model.write(1)
    model.write(0)
    assert [13, 8] == link.find([5, 1, 5, 1], forget=True)
    assert [10, 11] == link.find(range(9), forget=True)


def test_transfers_of_two_links_may_alternate():
    """Proton continues a large delivery after another link's."""
    model = Model(2, 0)
    model.write(0)
    model.write(1)
    model.links[0].record(0, 0)
    model.write(0)
    assert [0, 2] == model.links[0].find([0, 1], forget=False)
    assert [1] == model.links[1].find([0, 1], forget=False)


def test_an_id_of_four_billion_deliveries_ago_is_the_new_delivery():
    """The client cannot mean the older one any more."""
    model = Model(1, 5)
    model.write(0)
    model.next_id = 9
    model.write(0)
    model.next_id = 5
    model.write(0)
    ((_, numbers, _, _),) = model.session.take(5, 5, 0, settled=True)
    assert [2] == numbers
    assert {1} == model.links[0].unsettled


def test_a_run_of_four_billion_deliveries_forgets_the_first():
    """They are not settled, and their ids are used again."""
    model = Model(1, 5)
    (link,) = model.links
    model.write(0, 3)
    (run,) = link._runs
    run.end = run.first + MASK  # as if all others had been written and settled
    link._next_number = MASK
    model.session.newest = run.end - 1
    link.record(run.end & MASK, (run.end + 1) & MASK)
    assert {1, 2, MASK, MASK + 1} == link.unsettled
    assert [6, 7, 4, 5] == link.find([0, 1, 2, MASK, MASK + 1], forget=True)


def test_settled_runs_are_forgotten():
    """Of links that get messages in turns, one delivery is never settled."""
    model = Model(2, 0)
    for number in range(5_000):
        model.write(number % 2)
        if number:
            model.session.take(number, number, 0, settled=True)
    assert 100 > len(model.session.runs)
    assert all(len(link._runs) < 100 for link in model.links)
    assert {0} == model.links[0].unsettled


def test_none_is_no_delivery():
    """The core passes it on for a message that the client had settled."""
    model = Model(1, 0)
    assert [] == model.links[0].find([None, 3], forget=True)
