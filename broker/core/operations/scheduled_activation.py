"""Scheduled messages whose time has come, a bounded number at a time.

Owns who is due and has not had its turn; what activation does is `admission.py`'s. Nobody overtakes:
while some wait, those that fall due later wait behind them.
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
    """Messages of one queue that are due since the same moment, in the order of their numbers."""

    queue: Queue
    messages: Sequence[Message]
    due_since_ms: int


class ScheduledActivation:
    """A line of crowds."""

    __slots__ = ("_admission", "_backlog", "_directory", "_line")

    def __init__(self, directory: Directory, admission: Admission, backlog: Backlog) -> None:
        self._directory = directory
        self._admission = admission
        self._backlog = backlog
        """Says how much a turn may do; a queue that has scheduled messages waiting here goes on
        delivering the others."""
        self._line: deque[DueMessages] = deque()

    @property
    def due_since_ms(self) -> int | None:
        """Since when the first in the line have been due; None if nobody waits."""
        return self._line[0].due_since_ms if self._line else None

    def add(self, queue: Queue, messages: Sequence[Message], due_since_ms: int, turn: Turn) -> None:
        """Messages are due: now, unless there are too many or others wait."""
        copies = self._directory.entity_of(queue).copies_per_message
        if not self._line and self._backlog.may_act(len(messages) * copies):
            self._admission.activate(messages, due_since_ms, turn)
            return
        at_a_time = max(1, self._backlog.part_messages // copies)
        for start in range(0, len(messages), at_a_time):
            part = messages[start : start + at_a_time]
            self._line.append(DueMessages(queue, part, due_since_ms))

    def activate_next(self, turn: Turn) -> None:
        """Let the next ones in; some may have been cancelled while they waited."""
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
