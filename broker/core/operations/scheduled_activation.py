"""Activates scheduled messages that are due, a limited number in each turn.

Messages are activated in the order in which they became due.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.message import MessageState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.operations.admission import Admission
    from broker.core.queues.backlog import Backlog
    from broker.core.queues.queue import Queue


class DueMessages(NamedTuple):
    """Messages of one queue that became due at the same time, in the order of their numbers."""

    queue: Queue
    messages: Sequence[Message]
    due_since_ms: int


class ScheduledActivation:
    """The messages that are due and wait for their activation."""

    __slots__ = ("_admission", "_backlog", "_directory", "_line")

    def __init__(self, directory: Directory, admission: Admission, backlog: Backlog) -> None:
        self._directory = directory
        self._admission = admission
        self._backlog = backlog
        """Limits how much a turn may do. A queue with messages waiting here still delivers others.
        """
        self._line: deque[DueMessages] = deque()

    @property
    def due_since_ms(self) -> int | None:
        """Returns when the first waiting messages became due, or None."""
        return self._line[0].due_since_ms if self._line else None

    def add(self, queue: Queue, messages: Sequence[Message], due_since_ms: int, turn: Turn) -> None:
        """Activate messages that are due, or let them wait if they are too many or others wait."""
        copies = self._directory.entity_of(queue).copies_per_message
        if not self._line and self._backlog.may_act(len(messages) * copies):
            self._admission.activate(messages, due_since_ms, turn)
            return
        at_a_time = max(1, self._backlog.part_messages // copies)
        for start in range(0, len(messages), at_a_time):
            part = messages[start : start + at_a_time]
            self._line.append(DueMessages(queue, part, due_since_ms))

    def activate_next(self, turn: Turn) -> None:
        """Activate the next waiting messages. Some may have been cancelled meanwhile."""
        if not self._line:
            return
        queue, messages, due_since_ms = self._line[0]
        if not self._backlog.may_act(min(len(messages), self._backlog.part_messages)):
            return
        self._line.popleft()
        due = [
            message
            for message in messages
            if message.queue is queue and message.state is MessageState.SCHEDULED
        ]
        if due and not queue.is_closed:
            self._admission.activate(due, due_since_ms, turn)
