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

    __slots__ = ("_newest", "_runs")

    def __init__(self) -> None:
        self._runs = Runs()
        self._newest = -1
        """The last id that Proton has written."""

    def record(self, deliveries: SentDeliveries, first_id: int, number: int, count: int) -> Run:
        """Records deliveries of a link, in the order in which Proton wrote them. Returns their run."""
        runs = self._runs
        first = self._newest + ((first_id - self._newest) & SERIAL_MASK)
        run = runs[-1] if runs else None
        if run is None or run.deliveries is not deliveries or run.end != first:
            run = Run(deliveries, first, number)
            runs.add(run)
        elif not run.unsettled_count:
            run.first, run.first_number = first, number
        self._newest = first + count - 1
        run.end = first + count
        run.unsettled_count += count
        oldest = self._newest - SERIAL_MASK
        if runs[0].first < oldest:
            # The client cannot mean a delivery any more whose id is used again.
            self._take(runs[0].first, oldest, 0, settled=True)
            skipped = min(oldest, runs[0].end) - runs[0].first
            runs[0].first += skipped
            runs[0].first_number += skipped
        return run

    def take(self, first_id: int, last_id: int, code: int, *, settled: bool) -> list[OutcomeGroup]:
        """Returns the deliveries of a disposition, in the order of their ids. Settled ones are forgotten."""
        first = self._newest - ((self._newest - first_id) & SERIAL_MASK)
        end = first + ((last_id - first_id) & SERIAL_MASK) + 1
        return self._take(first, end, code, settled=settled)

    def _take(self, first: int, end: int, code: int, *, settled: bool) -> list[OutcomeGroup]:
        runs = self._runs
        groups: list[OutcomeGroup] = []
        index = len(runs) - 1
        if index > 0 and first < runs[index].first:
            index = max(0, bisect_right(runs, first, key=_first_id) - 1)
        while 0 <= index < len(runs) and runs[index].first < end:
            run = runs[index]
            index += 1
            before = run.first_number - run.first
            low, high = max(first, run.first) + before, min(end, run.end) + before
            unsettled = run.deliveries.unsettled
            if high - low <= len(unsettled):
                numbers = [number for number in range(low, high) if number in unsettled]
            else:
                numbers = sorted(number for number in unsettled if low <= number < high)
            if numbers:
                groups.append((run.deliveries, numbers, code, settled))
                if settled:
                    unsettled.difference_update(numbers)
                    run.unsettled_count -= len(numbers)
        return groups


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

    def record(self, first_id: int, count: int) -> None:
        """Records deliveries with consecutive ids, of which Proton has written transfers. It writes those of a link in
        order."""
        if first_id == self._last_id:  # another transfer of the same delivery
            first_id += 1
            count -= 1
            if not count:
                return
        self._last_id = (first_id + count - 1) & SERIAL_MASK
        number = self._next_number
        self._next_number = number + count
        self.unsettled.update(range(number, number + count))
        run = self._session.record(self, first_id, number, count)
        if not self._runs or self._runs[-1] is not run:
            self._runs.add(run)

    def find(self, numbers: Sequence[int | None], *, forget: bool) -> list[int]:
        """Returns the ids of those of these deliveries that are not settled."""
        unsettled = self.unsettled
        found = [number for number in numbers if number in unsettled]
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
        for run in self._runs:
            run.unsettled_count = 0
        self._runs.clear()
