"""The deliveries that the broker sent and the client has not settled, by number and by delivery id.

The rest of the broker knows a delivery by its number on the link, and frames by its id in the session. Both are
consecutive while Proton writes transfers of one link. So the ids are kept as runs, which need no memory for a single
delivery, and the numbers as a set. Numbers are never used again, so that of a settled delivery means nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from protocol.amqp.frames.delivery_ids import SERIAL_MASK

if TYPE_CHECKING:
    from collections.abc import Sequence

OutcomeGroup = tuple["SentDeliveries", list[int], int, bool]
"""Deliveries of a link with the same outcome: their numbers, the code of an outcome without fields or 0, and whether the
client settled them."""

_FEW_RUNS = 16
_first_id = attrgetter("first")
_first_number = attrgetter("first_number")


class Run:
    """Deliveries of one link with consecutive ids and consecutive numbers."""

    __slots__ = ("deliveries", "end", "first", "first_number", "unsettled_count")

    def __init__(self, deliveries: SentDeliveries, first: int, first_number: int) -> None:
        self.deliveries = deliveries
        self.first = self.end = first
        """The first id, and the id behind the last. They do not wrap around, as in frames."""
        self.first_number = first_number
        self.unsettled_count = 0


class Runs(list[Run]):
    """Runs in the order of their ids. Those without unsettled deliveries are removed when they are half of all."""

    __slots__ = ("_length_max",)

    def __init__(self) -> None:
        super().__init__()
        self._length_max = _FEW_RUNS

    def add(self, run: Run) -> None:
        """Adds a run behind all others."""
        if len(self) >= self._length_max:
            self[:] = [each for each in self if each.unsettled_count]
            self._length_max = max(_FEW_RUNS, 2 * len(self))
        self.append(run)


class SentSession:
    """The unsettled deliveries of a session by their ids."""

    __slots__ = ("last_run", "newest", "runs")

    def __init__(self) -> None:
        self.runs = Runs()
        self.last_run: Run | None = None
        """The run to which the next deliveries of the same link are added."""
        self.newest = -1
        """The last id that Proton has written."""

    def begin_run(self, deliveries: SentDeliveries, first: int, first_number: int) -> Run:
        """Adds a run without deliveries behind all others."""
        run = self.last_run = Run(deliveries, first, first_number)
        self.runs.add(run)
        return run

    def take(self, first_id: int, last_id: int, code: int, *, settled: bool) -> list[OutcomeGroup]:
        """Returns the deliveries of a disposition, in the order of their ids. Settled ones are forgotten."""
        first = self.newest - ((self.newest - first_id) & SERIAL_MASK)
        end = first + ((last_id - first_id) & SERIAL_MASK) + 1
        last = self.last_run
        if last is not None and last.first <= first and end <= last.end:
            # As below, for what nearly every disposition is: some of the last deliveries.
            before = last.first_number - last.first
            numbers = list(range(first + before, end + before))
            unsettled = last.deliveries.unsettled
            if unsettled.issuperset(numbers):
                if settled:
                    unsettled.difference_update(numbers)
                    last.unsettled_count -= end - first
                return [(last.deliveries, numbers, code, settled)]
        groups: list[OutcomeGroup] = []
        runs = self.runs
        index = len(runs) - 1
        if last is None or first < last.first:
            index = max(bisect_right(runs, first, key=_first_id) - 1, 0)
        while 0 <= index < len(runs) and (run := runs[index]).first < end:
            index += 1
            before = run.first_number - run.first
            low, high = max(first, run.first) + before, min(end, run.end) + before
            unsettled = run.deliveries.unsettled
            if high - low > len(unsettled):
                numbers = sorted(number for number in unsettled if low <= number < high)
            elif not unsettled.issuperset(numbers := list(range(low, high))):
                numbers = [number for number in numbers if number in unsettled]
            if numbers:
                groups.append((run.deliveries, numbers, code, settled))
                if settled:
                    unsettled.difference_update(numbers)
                    run.unsettled_count -= len(numbers)
        return groups

    def forget_before(self, oldest: int) -> None:
        """Forgets deliveries whose ids are used again: the client cannot mean them any more."""
        for run in self.runs:
            if run.first >= oldest:
                break
            count = min(oldest, run.end) - run.first
            stale = range(run.first_number, run.first_number + count)
            old = [number for number in run.deliveries.unsettled if number in stale]
            run.deliveries.unsettled.difference_update(old)
            run.unsettled_count -= len(old)
            run.first += count
            run.first_number += count


class SentDeliveries:
    """The unsettled deliveries of a link by their numbers."""

    __slots__ = ("_last_id", "_next_number", "_runs", "_session", "unsettled")

    def __init__(self, session: SentSession) -> None:
        self.unsettled: set[int] = set()
        """The numbers of the deliveries. Only this module changes it."""
        self._session = session
        self._runs = Runs()
        self._next_number = 0
        self._last_id = -1
        """The id of the delivery of which Proton has written a transfer last."""

    def __len__(self) -> int:
        """Returns the number of deliveries."""
        return len(self.unsettled)

    def record(self, first_id: int, last_id: int) -> None:
        """Records deliveries with consecutive ids, of which Proton has written transfers. It writes those of a link in
        order."""
        count = ((last_id - first_id) & SERIAL_MASK) + 1
        if first_id == self._last_id:  # another transfer of the same delivery
            first_id += 1
            count -= 1
            if not count:
                return
        session = self._session
        first = session.newest + ((first_id - session.newest) & SERIAL_MASK)
        end = first + count
        number = self._next_number
        run = session.last_run
        if run is None or run.deliveries is not self or run.end != first:
            run = session.begin_run(self, first, number)
            self._runs.add(run)
        elif not run.unsettled_count:
            run.first, run.first_number = first, number
        run.end = end
        run.unsettled_count += count
        self.unsettled.update(range(number, number + count))
        self._next_number = number + count
        session.newest = end - 1
        self._last_id = session.newest & SERIAL_MASK
        if session.runs[0].first < end - 1 - SERIAL_MASK:
            session.forget_before(end - 1 - SERIAL_MASK)

    def find(self, numbers: Sequence[int | None], *, forget: bool) -> list[int]:
        """Returns the ids of those of these deliveries that are not settled."""
        unsettled = self.unsettled
        found = [number for number in numbers if number in unsettled] if unsettled else []
        if not found:
            return []
        if forget:
            count = len(unsettled)
            unsettled.difference_update(found)
            if count - len(unsettled) < len(found):
                found = list(dict.fromkeys(found))  # some came twice
        runs = self._runs
        if len(runs) == 1:
            (run,) = runs
            run.unsettled_count -= len(found) if forget else 0
            before = run.first - run.first_number
            return [(number + before) & SERIAL_MASK for number in found]
        ids = []
        for number in found:
            run = runs[bisect_right(runs, number, key=_first_number) - 1]
            run.unsettled_count -= forget
            ids.append((number - run.first_number + run.first) & SERIAL_MASK)
        return ids

    def clear(self) -> None:
        """Forgets all deliveries, because their link is freed."""
        self.unsettled.clear()
        run = self._session.last_run
        if run is not None and run.deliveries is self:
            self._session.last_run = None  # it is not continued
        for run in self._runs:
            run.unsettled_count = 0
        self._runs.clear()
