"""Where receivers draw from: messages in delivery order, and who waits for them.

Owns the order of messages and the fairness between receivers; locking and counting are the queue's.
A plain queue has one outlet, a session queue one for each session.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from broker.core.commands import ReceiveMode
from broker.core.effects import Drained

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.commands import Peer
    from broker.core.message import Message
    from broker.core.queue import Queue
    from broker.core.turn import Turn

BURST_MAX_MESSAGES = 1_000
BURST_MAX_BYTES = 1024 * 1024
"""What one receiver gets in one dispatch; it asks again when that has left for its socket."""

READ_AHEAD_MESSAGES = 512
READ_AHEAD_MAX_BYTES = 8 * 1024 * 1024


class Receiver:
    """An attached receiver and its credit."""

    __slots__ = (
        "attached",
        "burst",
        "burst_bytes",
        "delivered",
        "draining",
        "held",
        "limit",
        "locks",
        "outlet",
        "peer",
        "queue",
    )

    def __init__(self, peer: Peer, queue: Queue, mode: ReceiveMode) -> None:
        self.peer = peer
        self.queue = queue
        self.locks = mode is ReceiveMode.PEEK_LOCK
        self.outlet: Outlet | None = None
        """None while it waits for a session."""
        self.attached = True
        self.limit = 0
        """How many messages it takes in all, since attach."""
        self.delivered = 0
        self.draining = False
        self.held: set[Message] = set()
        """What is locked through it."""
        self.burst: list[Message] = []
        self.burst_bytes = 0
        """What this dispatch has given it so far."""

    @property
    def room(self) -> int:
        """How many more messages it takes in this dispatch."""
        if self.burst_bytes >= BURST_MAX_BYTES:
            return 0
        return min(self.limit - self.delivered, BURST_MAX_MESSAGES - len(self.burst))


class Outlet:
    """Messages ready for delivery in order of their numbers, and receivers in turn."""

    __slots__ = ("_blocked", "_draining", "_fresh", "_hungry", "_paged", "_returned", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._fresh: deque[Message] = deque()
        """Never delivered yet, in order of arrival. Those removed meanwhile have no queue."""
        self._returned: list[tuple[int, Message]] = []
        """A heap of those given back. All numbers in it are lower than any in `_fresh`."""
        self._paged: deque[Message] = deque()
        """Those of `_fresh` whose body is only in the store, in order, or was when put here."""
        self._blocked = False
        """In this dispatch, the next message turned out to have no body in memory."""
        self._hungry: OrderedDict[Receiver, None] = OrderedDict()
        """Receivers that take more, the next one first."""
        self._draining: list[Receiver] = []

    @property
    def has_messages(self) -> bool:
        """Whether anything waits here to be delivered."""
        self._skip_removed()
        return bool(self._returned or self._fresh)

    def arrive(self, messages: Iterable[Message]) -> None:
        """Take messages numbered higher than any here."""
        self._fresh.extend(messages)
        if self._hungry:
            self.queue.environment.touched[self] = None

    def give_back(self, messages: Iterable[Message]) -> None:
        """Take back messages that were delivered: each in its old place, ahead of the fresh."""
        returned = self._returned
        for message in messages:
            heappush(returned, (message.sequence_number, message))
        if self._hungry:
            self.queue.environment.touched[self] = None

    def take_all(self) -> list[Message]:
        """Take out everything, in order."""
        messages = [message for _, message in sorted(self._returned, key=lambda pair: pair[0])]
        messages += self._fresh
        self._returned.clear()
        self._fresh.clear()
        self._paged.clear()
        return [message for message in messages if message.queue is not None]

    def paged_out(self, message: Message) -> None:
        """This message, waiting here, has lost its body to the store."""
        self._paged.append(message)

    def touch(self) -> None:
        """Look at it again in this turn: what stood in the way may be gone."""
        self.queue.environment.touched[self] = None

    # --- receivers --------------------------------------------------------------------------

    def grant(self, receiver: Receiver, limit: int, *, drain: bool) -> None:
        """A receiver takes so many in all."""
        receiver.limit = limit
        if receiver.draining and not drain:
            self._draining.remove(receiver)
        if drain and not receiver.draining:
            self._draining.append(receiver)
        receiver.draining = drain
        if limit > receiver.delivered:
            self._hungry[receiver] = None
        else:
            self._hungry.pop(receiver, None)
        self.queue.environment.touched[self] = None

    def forget(self, receiver: Receiver) -> None:
        """A receiver is gone."""
        self._hungry.pop(receiver, None)
        if receiver.draining:
            self._draining.remove(receiver)

    def dispatch(self, now_ms: int, turn: Turn) -> None:
        """Match credit with messages: one message each in turn, as long as both last."""
        served: dict[Receiver, None] = {}
        hungry = self._hungry
        self._blocked = False
        while hungry and not self._blocked:
            waiting = len(self._fresh) + len(self._returned)
            if not waiting or not self._serve_round(waiting, served):
                break
        for receiver in served:
            messages, receiver.burst, receiver.burst_bytes = receiver.burst, [], 0
            self.queue.deliver(receiver, messages, now_ms, turn)
        if self._blocked or (self._paged and served):
            self._read_ahead(turn)
        if self._draining:
            self._finish_draining(turn)

    def _serve_round(self, waiting: int, served: dict[Receiver, None]) -> bool:
        """Serve as many receivers as there are messages, equally; False when nothing is left."""
        hungry = self._hungry
        line = [hungry.popitem(last=False)[0] for _ in range(min(len(hungry), waiting))]
        count = len(line)
        share = min(waiting // count, min(receiver.room for receiver in line))
        messages = self._take(share * count, BURST_MAX_BYTES * count - line[0].burst_bytes)
        for position, receiver in enumerate(line):
            part = messages if count == 1 else messages[position::count]
            if part:
                served[receiver] = None
                receiver.delivered += len(part)
                receiver.burst += part
                receiver.burst_bytes += sum([message.size for message in part])
            if receiver.room > 0:
                hungry[receiver] = None
                if not part:
                    hungry.move_to_end(receiver, last=False)
        return bool(messages)

    def _take(self, count: int, max_bytes: int) -> list[Message]:
        """Take out the next messages, up to the first that would go over or has no body."""
        taken: list[Message] = []
        returned = self._returned
        fresh = self._fresh
        size = 0
        while count and size < max_bytes:
            if returned:
                message = heappop(returned)[1]
            elif fresh:
                message = fresh.popleft()
            else:
                break
            if message.queue is None:
                continue
            if message.body is None:
                fresh.appendleft(message)
                self._blocked = True
                break
            taken.append(message)
            size += message.size
            count -= 1
        return taken

    def _finish_draining(self, turn: Turn) -> None:
        """Give back the credit of those for whom nothing is left."""
        still: list[Receiver] = []
        for receiver in self._draining:
            cut_short = receiver.limit > receiver.delivered and (
                self._blocked or receiver not in self._hungry
            )
            if cut_short:
                still.append(receiver)
                continue
            receiver.limit = receiver.delivered
            receiver.draining = False
            self._hungry.pop(receiver, None)
            turn.effects.append(Drained(receiver.peer))
        self._draining = still

    # --- bodies -----------------------------------------------------------------------------

    def _read_ahead(self, turn: Turn) -> None:
        """Ask for the next bodies before the messages that have theirs run out."""
        self._skip_removed()
        if not self._fresh:
            return
        head = self._fresh[0]
        wanted: list[Message] = [head] if head.body is None else []
        horizon = head.sequence_number + READ_AHEAD_MESSAGES
        size = 0
        paged = self._paged
        if paged and paged[0].sequence_number <= horizon:
            while paged and len(wanted) < READ_AHEAD_MESSAGES and size < READ_AHEAD_MAX_BYTES:
                message = paged.popleft()
                if message.body is None and message.waits:
                    wanted.append(message)
                    size += message.size
        if wanted:
            self.queue.environment.payloads.request(wanted, turn)

    def _skip_removed(self) -> None:
        returned, fresh = self._returned, self._fresh
        while returned and returned[0][1].queue is None:
            heappop(returned)
        while fresh and fresh[0].queue is None:
            fresh.popleft()
