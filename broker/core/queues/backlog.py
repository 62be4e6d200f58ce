"""Work on too many messages for one turn. It is done in parts, one in each tick.

The work of one queue is done in the order in which it became due. Queues take turns. While a queue
has work here, it delivers nothing and answers no requests, so clients never see it half done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from broker.core.contract.turn import Turn
    from broker.core.queues.queue import Queue

    Act = Callable[[Queue, Sequence[Any], int, Turn], None]
    """Of a queue and messages in the order of their numbers, or packed blocks of them."""

PART_MESSAGES = 1_024
"""How many messages one part processes, and how many due messages one turn processes before the
others have to wait. About five milliseconds of work."""
_MOMENT = attrgetter("at_ms")
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class Work(Protocol):
    """Work that is done in parts."""

    @property
    def ends_with_namespace(self) -> bool:
        """Whether it has no purpose once its namespace is closed."""

    def do_part(self, count: int, turn: Turn) -> bool:
        """Process so many messages. Returns False if nothing is left."""


class PendingMessages:
    """Messages of one queue for which one action is due at one moment, in order."""

    __slots__ = ("_act", "_done", "_messages", "_queue", "at_ms", "weight")

    def __init__(
        self, act: Act, queue: Queue, messages: Sequence[Any], at_ms: int, weight: int
    ) -> None:
        self._act = act
        self._queue = queue
        self._messages = messages
        self._done = 0
        self.at_ms = at_ms
        self.weight = weight
        """How many messages each item counts as."""

    def merge(self, act: Act, messages: Sequence[Any], at_ms: int) -> bool:
        """Add messages with the same action at the same time. Returns False if the action or the time differs, or a
        part is done already."""
        if act is not self._act or at_ms != self.at_ms or self._done:
            return False
        self._messages = sorted([*self._messages, *messages], key=_SEQUENCE_NUMBER)
        return True

    def do_part(self, count: int, turn: Turn) -> int:
        """Process items that count as so many messages. Returns how many items were processed."""
        part = self._messages[self._done : self._done + max(1, count // self.weight)]
        self._done += len(part)
        self._act(self._queue, part, self.at_ms, turn)
        return len(part) * self.weight

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return self._done >= len(self._messages)


class Backlog:
    """The remaining work, by queue."""

    __slots__ = ("_forwarded", "_others", "_queues", "_spent", "forwarded_max", "part_messages")

    def __init__(self) -> None:
        self.part_messages = PART_MESSAGES
        self._queues: dict[Queue, deque[PendingMessages]] = {}
        self._others: deque[Work] = deque()
        """Work that no queue waits for, such as deleting the messages of a deleted queue."""
        self._spent = 0
        """How many messages this turn has processed."""
        self.forwarded_max = PART_MESSAGES
        self._forwarded = 0
        """How many messages this dispatch has forwarded, counting copies on subscriptions."""

    def __bool__(self) -> bool:
        return bool(self._queues or self._others)

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._queues

    def new_turn(self) -> None:
        """Begin a turn."""
        self._spent = 0
        self._forwarded = 0

    def may_act(self, message_count: int) -> bool:
        """Returns whether this turn may process so many more messages, and counts them if so."""
        if self._spent + message_count > self.part_messages:
            return False
        self._spent += message_count
        return True

    def take_rest(self) -> int:
        """Returns how many more messages this turn may process, and counts them."""
        rest = max(0, self.part_messages - self._spent)
        self._spent += rest
        return rest

    def may_forward(self, copies: int) -> int:
        """Returns how many more messages this turn may forward if each becomes so many copies."""
        room = (self.forwarded_max - self._forwarded) // copies
        return room if self._forwarded else max(1, room)

    def forwarded(self, message_count: int) -> None:
        """Count messages that were forwarded or refused, including copies."""
        self._forwarded += message_count

    def act(
        self,
        act: Act,
        queue: Queue,
        messages: Sequence[Any],
        at_ms: int,
        turn: Turn,
        *,
        weight: int = 1,
        merge: bool = False,
    ) -> bool:
        """Process messages now, or later if they are too many or earlier work of their queue waits.
        Returns False if they have to wait. With a weight, each message counts as so many. With
        `merge`, they are processed in the order of their numbers together with others that have the
        same action at the same time."""
        waiting = self._queues.get(queue)
        if waiting is None:
            if self.may_act(weight * len(messages)):
                act(queue, messages, at_ms, turn)
                return True
            waiting = self._queues[queue] = deque()
        queue.overdue_ms = max(queue.overdue_ms, at_ms)
        position = bisect_right(waiting, at_ms, key=_MOMENT)
        if not (merge and position and waiting[position - 1].merge(act, messages, at_ms)):
            waiting.insert(position, PendingMessages(act, queue, messages, at_ms, weight))
        return False

    def add(self, work: Work) -> None:
        """Add work that is done after the work of queues."""
        self._others.append(work)

    def take_deletions(self) -> list[Work]:
        """Returns and removes the work that has to be done even if the namespace is closed: deleting the
        messages of deleted entities."""
        taken = [work for work in self._others if not work.ends_with_namespace]
        self._others = deque(work for work in self._others if work.ends_with_namespace)
        return taken

    def discard(self, queue: Queue) -> None:
        """Discard the work of a deleted queue."""
        if self._queues.pop(queue, None) is not None:
            queue.overdue_ms = 0

    def run_next_part(self, turn: Turn, act_on_due: Callable[[], None]) -> None:
        """Do one part. The work of queues comes first."""
        count = self.take_rest()
        if not count:
            return
        if not self._queues:
            work = self._others.popleft() if self._others else None
            if work is not None and work.do_part(count, turn):
                self._others.append(work)
            return
        queue, waiting = next(iter(self._queues.items()))
        while count > 0 and waiting:
            pending = waiting[0]
            count -= pending.do_part(count, turn)
            if pending.weight > 1:
                act_on_due()
            if pending.is_done:
                waiting.popleft()
        if self._queues.pop(queue, None) is None:
            return  # what was due ended it
        if waiting:
            self._queues[queue] = waiting  # behind the others
        else:
            queue.overdue_ms = 0
            queue.delivery.touch_all()
