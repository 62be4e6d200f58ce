"""Activates scheduled messages that are due, a limited number in each turn.

The messages of a queue are activated in the order in which they became due, and then in the order of their numbers.
Queues take turns, so that a message does not wait for a million messages of another queue. Packed messages that are all
due at the same time stay packed until they are activated.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, merge
from itertools import islice, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.message import MessageState
from broker.core.queues.message_deadlines import forget_schedules
from broker.core.queues.messages_by_queue import by_queue
from broker.core.queues.packed_messages import PackedMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.operations.admission import Admission
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.queue import Queue

    Scheduled = Message | PackedMessages

SORTED_PER_ACTIVATED = 8
"""So many messages can be sorted in the time in which one is activated and recorded."""
SORTED_PER_UNPACKED = 4
"""And so many in the time in which a message is unpacked."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class DueMessages(NamedTuple):
    """Messages of one queue that became due at the same time, in the order of their numbers."""

    messages: Iterator[Message]
    due_since_ms: int


class UnsortedMessages:
    """Messages that became due at the same time, perhaps too many to sort them in one turn. A packed block is sorted
    as one message, by its first number: no other message has a number between those of its messages."""

    __slots__ = ("_runs", "_unsorted", "due_since_ms")

    def __init__(self, messages: dict[Scheduled, None], due_since_ms: int) -> None:
        self._unsorted = messages
        self._runs: dict[Queue, list[list[Scheduled]]] = {}
        """Sorted messages of each queue, in several lists."""
        self.due_since_ms = due_since_ms

    def add(self, messages: dict[Scheduled, None]) -> None:
        """Add more messages."""
        self._unsorted.update(messages)

    @property
    def is_sorted(self) -> bool:
        """Whether all are sorted."""
        return not self._unsorted

    def sort_part(self, count: int) -> int:
        """Sort so many messages. They are taken from the dict and not copied: to free a dict with a million messages
        takes long. Returns how many more could be sorted."""
        unsorted, due_since_ms = self._unsorted, self.due_since_ms
        part: list[Scheduled] = []
        while unsorted and count > 0:
            one, _ = unsorted.popitem()
            count -= 1
            if not isinstance(one, PackedMessages) or one.are_due_together:
                part.append(one)
            else:
                part += reversed(_unpack(one, due_since_ms))
                count -= one.count * SORTED_PER_UNPACKED
        part.reverse()
        for queue, messages in by_queue(part).items():
            self._runs.setdefault(queue, []).append(messages)
        return count

    def sorted(self) -> Iterator[tuple[Queue, DueMessages]]:
        """Returns the messages of each queue once all parts are sorted. The queue with the oldest message is
        first."""
        for queue in sorted(self._runs, key=lambda queue: _first(self._runs[queue]).id):
            messages = _unpacked(_in_order(self._runs[queue]), self.due_since_ms)
            yield queue, DueMessages(messages, self.due_since_ms)


class ScheduledActivation:
    """The messages that are due and wait for their activation."""

    __slots__ = (
        "_admission",
        "_backlog",
        "_deadlines",
        "_directory",
        "_lines",
        "_moments",
        "_unsorted",
    )

    def __init__(
        self, directory: Directory, admission: Admission, context: NamespaceContext
    ) -> None:
        self._directory = directory
        self._admission = admission
        self._deadlines = context.deadlines
        self._backlog = context.backlog
        """Limits how much a turn may do. A queue with messages waiting here still delivers others.
        """
        self._unsorted: dict[int, UnsortedMessages] = {}
        """Messages that come after all in `_lines`, by the moment at which they became due."""
        self._moments: list[int] = []
        """A heap of these moments. Most come in order, but a packed block shows its later ones when it is unpacked."""
        self._lines: dict[Queue, deque[DueMessages]] = {}
        """Sorted messages of each queue. The next queue is first."""

    @property
    def due_since_ms(self) -> int | None:
        """Returns since when waiting messages are due, or None if none wait."""
        for line in self._lines.values():
            return line[0].due_since_ms
        return self._moments[0] if self._moments else None

    def add(self, messages: dict[Scheduled, None], due_since_ms: int, turn: Turn) -> None:
        """Activate messages that are due, or let them wait if they are too many or others wait."""
        if self._unsorted or self._are_many(messages):
            self._sort_later(messages, due_since_ms)
            return
        for queue, due in by_queue(_unpacked(messages, due_since_ms)).items():
            copies = self._directory.entity_of(queue).copies_per_message
            if queue not in self._lines and self._backlog.may_act(len(due) * copies):
                self._admission.activate(due, due_since_ms, turn)
            else:
                self._wait(queue, DueMessages(iter(due), due_since_ms))

    def _are_many(self, messages: dict[Scheduled, None]) -> bool:
        """Whether messages are too many to sort, or to unpack, in one turn."""
        part_messages = self._backlog.part_messages
        if len(messages) > SORTED_PER_ACTIVATED * part_messages:
            return True
        packed = [one.count for one in messages if isinstance(one, PackedMessages)]
        return sum(packed) > part_messages

    def _sort_later(self, messages: dict[Scheduled, None], due_since_ms: int) -> None:
        unsorted = self._unsorted.get(due_since_ms)
        if unsorted is not None:
            unsorted.add(messages)
            return
        self._unsorted[due_since_ms] = UnsortedMessages(messages, due_since_ms)
        heappush(self._moments, due_since_ms)

    def _wait(self, queue: Queue, due: DueMessages) -> None:
        self._lines.setdefault(queue, deque()).append(due)

    def activate_next(self, turn: Turn) -> None:
        """Activate the next waiting messages. Some may have been cancelled meanwhile."""
        count = self._backlog.take_rest()
        if count and self._unsorted:
            self._sort_part(count * SORTED_PER_ACTIVATED)
        elif count and self._lines:
            queue, line = next(iter(self._lines.items()))
            del self._lines[queue]
            if not queue.is_closed and self._activate(queue, line, count, turn):
                self._lines[queue] = line  # behind the other queues

    def _sort_part(self, count: int) -> None:
        while self._moments and count > 0:
            first_ms = self._moments[0]
            earliest_ms = self._deadlines.earliest_ms()
            if earliest_ms is not None and earliest_ms < first_ms:
                return  # an unpacked block had messages that come before: they are added first
            first = self._unsorted[first_ms]
            count = first.sort_part(count)
            if first.is_sorted:
                del self._unsorted[heappop(self._moments)]
                for queue, due in first.sorted():
                    self._wait(queue, due)

    def _activate(self, queue: Queue, line: deque[DueMessages], count: int, turn: Turn) -> bool:
        """Activate messages of one queue that become so many copies. Returns whether any are left."""
        copies = self._directory.entity_of(queue).copies_per_message
        left = max(1, count // copies)
        while line and left:
            taken = list(islice(line[0].messages, left))
            left -= len(taken)
            due = [
                message
                for message in dict.fromkeys(taken)  # twice if a request has unpacked its block
                if message.queue is queue and message.state is MessageState.SCHEDULED
            ]
            if due:
                self._admission.activate(due, line[0].due_since_ms, turn)
            if left:
                line.popleft()
        return bool(line)


def _unpacked(messages: Iterable[Scheduled], due_since_ms: int) -> Iterator[Message]:
    """Returns messages, and those of packed blocks, in the same order."""
    for one in messages:
        if isinstance(one, PackedMessages):
            yield from _unpack(one, due_since_ms)
        else:
            yield one


def _unpack(packed: PackedMessages, due_since_ms: int) -> list[Message]:
    """Returns the messages of a packed block that are due. The others become due at their own times. The block may have
    been unpacked by a request since it became due, and some of its messages cancelled."""
    queue = packed.queue
    if queue.is_closed:
        return []
    first = packed.sequence_number
    found = [queue.index.get(number) for number in range(first, first + packed.count)]
    due = [
        message
        for message in found
        if message is not None
        and message.state is MessageState.SCHEDULED
        and message.scheduled_enqueue_time_ms == due_since_ms
    ]
    if due:
        forget_schedules(queue.context.deadlines, due)  # they are due already
    return due


def _first(runs: list[list[Scheduled]]) -> Scheduled:
    """Returns the message with the lowest number."""
    return min([run[0] for run in runs], key=_SEQUENCE_NUMBER)


def _in_order(runs: list[list[Scheduled]]) -> Iterator[Scheduled]:
    """Returns the messages of sorted lists in the order of their numbers."""
    runs.sort(key=lambda run: run[0].sequence_number)
    if any(
        before[-1].sequence_number > after[0].sequence_number for before, after in pairwise(runs)
    ):
        yield from merge(*runs, key=_SEQUENCE_NUMBER)
        return
    runs.reverse()
    while runs:
        yield from runs.pop()
