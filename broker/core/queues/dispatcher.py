"""Receivers and the dispatcher they draw from: credit meets messages here.

Owns credit and the fairness between receivers; the order of messages is `ready_messages.py`'s, locking and
counting are the queue's. No receiver ever gets more than it has asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from broker.core.contract.effects import Drained
from broker.core.contract.settlement import ReceiveMode
from broker.core.queues.ready_messages import ReadyMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.core.contract.effects import Peer
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.queues.queue import Queue
    from broker.core.queues.sessions import Session

BURST_MAX_MESSAGES = 1_000
BURST_MAX_BYTES = 1024 * 1024
"""What one receiver gets in one dispatch; it asks again when that has left for its socket."""


class Receiver:
    """A receiver: its credit, and what is locked through it."""

    __slots__ = (
        "__weakref__",
        "burst",
        "burst_bytes",
        "connection",
        "delivered",
        "dispatcher",
        "draining",
        "limit",
        "locked",
        "locks",
        "lost_locks",
        "paused",
        "peer",
        "queue",
    )

    def __init__(
        self, peer: Peer, queue: Queue, mode: ReceiveMode, connection: object = None
    ) -> None:
        self.peer = peer
        self.connection = connection
        self.queue = queue
        self.locks = mode is ReceiveMode.PEEK_LOCK
        self.dispatcher: Dispatcher | Session | None = None
        """None while it waits for a session, and once it is detached."""
        self.limit = 0
        """How many messages it takes in all, counted from attach."""
        self.delivered = 0
        self.draining = False
        self.paused = False
        """It got a full burst and has not asked for more since."""
        self.locked: dict[bytes, Message] = {}
        """The messages that it has locked, by token. `Locks` changes it."""
        self.lost_locks = False
        """All its locks are lost, but some messages may not be back in their places yet."""
        self.burst: list[Message] = []
        self.burst_bytes = 0
        """What this dispatch has given it so far."""

    @property
    def room(self) -> int:
        """How many more messages it takes in this dispatch."""
        if self.paused or self.burst_bytes >= BURST_MAX_BYTES:
            return 0
        return min(self.limit - self.delivered, BURST_MAX_MESSAGES - len(self.burst))

    @property
    def drains_later(self) -> bool:
        """It wants all there is, and there may be more than it has got: it is to ask again."""
        return self.draining and self.paused and self.limit > self.delivered

    def grant(self, limit: int, *, drain: bool) -> None:
        """It takes so many in all."""
        self.limit = limit
        self.draining = drain
        self.paused = False

    def load(self, messages: list[Message]) -> None:
        """These will be delivered to it at the end of this dispatch."""
        self.delivered += len(messages)
        self.burst += messages
        self.burst_bytes += sum([message.size for message in messages])

    def unload(self) -> list[Message]:
        """What to deliver now."""
        messages = self.burst
        self.paused = len(messages) >= BURST_MAX_MESSAGES or self.burst_bytes >= BURST_MAX_BYTES
        self.burst = []
        self.burst_bytes = 0
        return messages

    def finish_draining(self, turn: Turn) -> None:
        """Nothing is left for it: what remains of its credit is given back."""
        self.draining = False
        self.limit = self.delivered
        turn.effects.append(Drained(self.peer))


class MessageForwarder(Protocol):
    """Moves ready messages to another entity. `operations.forwarding.Forwarder` implements it."""

    def forward(self, ready: ReadyMessages, now_ms: int, turn: Turn) -> bool:
        """Move ready messages. Returns False if the next ticks have to move the rest."""


class Dispatcher:
    """The ready messages of a queue, and its receivers in turn."""

    __slots__ = ("_draining", "_hungry", "forwarder", "queue", "ready")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ready = ReadyMessages()
        self.forwarder: MessageForwarder | None = None
        """Takes everything at once, if messages do not stay here."""
        self._hungry: OrderedDict[Receiver, None] = OrderedDict()
        """Receivers that take more, the next one first."""
        self._draining: dict[Receiver, None] = {}

    def arrive(self, messages: Sequence[Message]) -> None:
        """Messages have become ready."""
        self.ready.arrive(messages)
        self.touch()

    def give_back(self, messages: Iterable[Message]) -> None:
        """Messages that were delivered are ready again."""
        self.ready.give_back(messages)
        self.touch()

    def touch(self) -> None:
        """Look at it at the end of this turn, if anybody waits for messages here."""
        if self._hungry or self._draining or self.forwarder is not None:
            self.queue.environment.touched[self] = None

    def grant(self, receiver: Receiver) -> None:
        """A receiver's credit has changed."""
        if receiver.draining:
            self._draining[receiver] = None
        else:
            self._draining.pop(receiver, None)
        if receiver.room > 0:
            self._hungry[receiver] = None
        else:
            self._hungry.pop(receiver, None)
        self.touch()

    def forget(self, receiver: Receiver) -> None:
        """A receiver is gone."""
        self._hungry.pop(receiver, None)
        self._draining.pop(receiver, None)

    def dispatch(self, now_ms: int, turn: Turn) -> None:
        """Match credit with messages: one message each in turn, as long as both last."""
        ready = self.ready
        if self.queue.overdue_ms:
            return  # it is looked at again when what is overdue has been done
        if self.forwarder is not None and not self.forwarder.forward(ready, now_ms, turn):
            return  # the rest is forwarded in the next ticks
        served: dict[Receiver, None] = {}
        while self._hungry and len(ready):
            if not self._serve_round(served) or ready.blocked:
                break
        for receiver in served:
            self.queue.deliver(receiver, receiver.unload(), now_ms, turn)
        if self.queue.environment.payloads.any_paged and (served or ready.blocked):
            self.queue.environment.payloads.request(ready.to_read_ahead(), turn)
        if self._draining:
            for receiver in list(self._draining):
                if receiver.drains_later:
                    continue
                if receiver.room <= 0 or not ready.blocked:
                    receiver.finish_draining(turn)
                    self.forget(receiver)

    def _serve_round(self, served: dict[Receiver, None]) -> bool:
        """Serve as many receivers as there are messages, alike; False if there were none."""
        hungry = self._hungry
        waiting = len(self.ready)
        line = [hungry.popitem(last=False)[0] for _ in range(min(len(hungry), waiting))]
        count = len(line)
        share = min(waiting // count, *[receiver.room for receiver in line])
        messages = self.ready.take(share * count, BURST_MAX_BYTES * count)
        unserved: list[Receiver] = []
        for position, receiver in enumerate(line):
            part = messages if count == 1 else messages[position::count]
            if not part:
                unserved.append(receiver)
                continue
            receiver.load(part)
            served[receiver] = None
            if receiver.room > 0:
                hungry[receiver] = None
        for receiver in reversed(unserved):
            hungry[receiver] = None
            hungry.move_to_end(receiver, last=False)
        return bool(messages)
