"""Activates scheduled messages that are due, a limited number in each turn.

The messages of a queue are activated in the order in which they became due, and then in the order of their numbers.
Queues take turns, so that a message does not wait for a million messages of another queue.
"""

from __future__ import annotations

from collections import deque
from heapq import merge
from itertools import islice, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.message import MessageState
from broker.core.queues.messages_by_queue import by_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.operations.admission import Admission
    from broker.core.queues.backlog import Backlog
    from broker.core.queues.queue import Queue

SORTED_PER_ACTIVATED = 8
"""So many messages can be sorted in the time in which one is activated and recorded."""
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class DueMessages(NamedTuple):
    """Messages of one queue that became due at the same time, in the order of their numbers."""

    messages: Iterator[Message]
    due_since_ms: int


class UnsortedMessages:
    """Messages that became due at the same time, perhaps too many to sort them in one turn."""

    __slots__ = ("_runs", "_unsorted", "due_since_ms")

    def __init__(self, messages: dict[Message, None], due_since_ms: int) -> None:
        self._unsorted = messages
        self._runs: dict[Queue, list[list[Message]]] = {}
        """Sorted messages of each queue, in several lists."""
        self.due_since_ms = due_since_ms

    @property
    def count(self) -> int:
        """Returns how many are not sorted yet."""
        return len(self._unsorted)

    def sort_part(self, count: int) -> None:
        """Sort so many messages. They are taken from the dict and not copied: to free a dict with a million messages
        takes long."""
        unsorted = self._unsorted
        part = [unsorted.popitem()[0] for _ in range(min(count, len(unsorted)))]
        part.reverse()
        for queue, messages in by_queue(part).items():
            self._runs.setdefault(queue, []).append(messages)

    def sorted(self) -> Iterator[tuple[Queue, DueMessages]]:
        """Returns the messages of each queue once all parts are sorted. The queue with the oldest message is
        first."""
        for queue in sorted(self._runs, key=lambda queue: _first(self._runs[queue]).id):
            yield queue, DueMessages(_in_order(self._runs[queue]), self.due_since_ms)


class ScheduledActivation:
    """The messages that are due and wait for their activation."""

    __slots__ = ("_admission", "_backlog", "_directory", "_lines", "_unsorted")

    def __init__(self, directory: Directory, admission: Admission, backlog: Backlog) -> None:
        self._directory = directory
        self._admission = admission
        self._backlog = backlog
        """Limits how much a turn may do. A queue with messages waiting here still delivers others.
        """
        self._unsorted: deque[UnsortedMessages] = deque()
        """Messages that come after all in `_lines`, in the order in which they became due."""
        self._lines: dict[Queue, deque[DueMessages]] = {}
        """Sorted messages of each queue. The next queue is first."""

    @property
    def due_since_ms(self) -> int | None:
        """Returns since when waiting messages are due, or None if none wait."""
        for line in self._lines.values():
            return line[0].due_since_ms
        return self._unsorted[0].due_since_ms if self._unsorted else None

    def add(self, messages: dict[Message, None], due_since_ms: int, turn: Turn) -> None:
        """Activate messages that are due, or let them wait if they are too many or others wait."""
        if self._unsorted or len(messages) > SORTED_PER_ACTIVATED * self._backlog.part_messages:
            self._unsorted.append(UnsortedMessages(messages, due_since_ms))
            return
        for queue, due in by_queue(messages).items():
            copies = self._directory.entity_of(queue).copies_per_message
            if queue not in self._lines and self._backlog.may_act(len(due) * copies):
                self._admission.activate(due, due_since_ms, turn)
            else:
                self._wait(queue, DueMessages(iter(due), due_since_ms))

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
        while self._unsorted and count > 0:
            first = self._unsorted[0]
            sorted_count = min(count, first.count)
            first.sort_part(sorted_count)
            count -= sorted_count
            if not first.count:
                self._unsorted.popleft()
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
                for message in taken
                if message.queue is queue and message.state is MessageState.SCHEDULED
            ]
            if due:
                self._admission.activate(due, line[0].due_since_ms, turn)
            if left:
                line.popleft()
        return bool(line)


def _first(runs: list[list[Message]]) -> Message:
    """Returns the message with the lowest number."""
    return min([run[0] for run in runs], key=_SEQUENCE_NUMBER)


def _in_order(runs: list[list[Message]]) -> Iterator[Message]:
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
