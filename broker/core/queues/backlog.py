"""Work that concerns too many messages to be done in one turn: it is done in parts, one a tick.

Owns what is left to do and in which order; what a part does is said by whoever put it here. Of one
queue nothing overtakes: what falls due later waits behind what fell due before. Queues take turns.
While a queue has work here it delivers nothing and answers no request, so nobody sees it half done.
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
    """Of a queue and messages in the order of their numbers, or blocks of them in their small form."""

PART_MESSAGES = 1_024
"""How many messages one part concerns, and how many that are due a turn acts on before the rest
waits: some five milliseconds of work."""
_MOMENT = attrgetter("at_ms")
_SEQUENCE_NUMBER = attrgetter("sequence_number")


class Work(Protocol):
    """Something to be done in parts."""

    def do_part(self, count: int, turn: Turn) -> bool:
        """Do as much as concerns so many messages; False when nothing is left."""


class PendingMessages:
    """Messages of one queue that the same thing happens to at the same moment, in order."""

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
        """How many messages each of these stands for."""

    def take_in(self, act: Act, messages: Sequence[Any], at_ms: int) -> bool:
        """The same is to happen to these at the same moment; False if it is not, or has begun."""
        if act is not self._act or at_ms != self.at_ms or self._done:
            return False
        self._messages = sorted([*self._messages, *messages], key=_SEQUENCE_NUMBER)
        return True

    def do_part(self, count: int, turn: Turn) -> int:
        """Act on as many as stand for so many messages; how many were acted on."""
        part = self._messages[self._done : self._done + max(1, count // self.weight)]
        self._done += len(part)
        self._act(self._queue, part, self.at_ms, turn)
        return len(part) * self.weight

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return self._done >= len(self._messages)


class Backlog:
    """What is left to do, by queue."""

    __slots__ = ("_forwarded", "_others", "_queues", "_spent", "forwarded_max", "part_messages")

    def __init__(self) -> None:
        self.part_messages = PART_MESSAGES
        self._queues: dict[Queue, deque[PendingMessages]] = {}
        self._others: deque[Work] = deque()
        """Work that no queue waits for: what it concerns is gone for everybody."""
        self._spent = 0
        """How many messages were acted on in this turn."""
        self.forwarded_max = PART_MESSAGES
        self._forwarded = 0
        """How many messages were forwarded in this dispatch, as copies on subscriptions."""

    def __bool__(self) -> bool:
        return bool(self._queues or self._others)

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._queues

    def new_turn(self) -> None:
        """Another turn may act on as much again."""
        self._spent = 0
        self._forwarded = 0

    def may_act(self, message_count: int) -> bool:
        """Whether this turn may act on so many more, which are counted then."""
        if self._spent + message_count > self.part_messages:
            return False
        self._spent += message_count
        return True

    def may_forward(self, copies: int) -> int:
        """How many messages may still be forwarded in this turn, with so many copies of each."""
        room = (self.forwarded_max - self._forwarded) // copies
        return room if self._forwarded else max(1, room)

    def forwarded(self, message_count: int) -> None:
        """So many, copies included, were forwarded or refused."""
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
        """Act on messages now, unless they are too many or others of their queue wait; False if they
        have to wait. With a weight, each of them stands for so many. With `merge`, they are acted on
        in the order of their numbers with others to which the same happens at the same moment."""
        waiting = self._queues.get(queue)
        if waiting is None:
            if self.may_act(weight * len(messages)):
                act(queue, messages, at_ms, turn)
                return True
            waiting = self._queues[queue] = deque()
        queue.overdue_ms = max(queue.overdue_ms, at_ms)
        position = bisect_right(waiting, at_ms, key=_MOMENT)
        if not (merge and position and waiting[position - 1].take_in(act, messages, at_ms)):
            waiting.insert(position, PendingMessages(act, queue, messages, at_ms, weight))
        return False

    def add(self, work: Work) -> None:
        """Do this when there is time."""
        self._others.append(work)

    def discard(self, queue: Queue) -> None:
        """The queue is gone: nothing is left to do there."""
        if self._queues.pop(queue, None) is not None:
            queue.overdue_ms = 0

    def run_next_part(self, turn: Turn, act_on_due: Callable[[], None]) -> None:
        """Do one part, of queues before others. Acting on what stands for many messages brings those
        among what is due, from where `act_on_due` puts them here."""
        count = self.part_messages - self._spent
        if count <= 0:
            return
        self._spent += count
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
