"""Delivery from a queue without sessions: assigns ready messages to receivers with credit.

Receivers take turns. `ready_messages.py` owns the order of messages, `queue.py` locks and counts them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from broker.core.contract.effects import ReceiverAttached
from broker.core.contract.errors import NotAllowed
from broker.core.messages.session_ids import session_key
from broker.core.queues.packed_messages import is_active
from broker.core.queues.ready_messages import ReadyMessages
from broker.core.queues.receiver import BURST_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.core.contract.commands import RequestOrigin, SessionRequest
    from broker.core.contract.message import Message
    from broker.core.contract.turn import Turn
    from broker.core.queues.packed_messages import PackedMessages
    from broker.core.queues.queue import Queue
    from broker.core.queues.receiver import Receiver


class MessageForwarder(Protocol):
    """Moves ready messages to another entity. `operations.forwarding.Forwarder` implements it."""

    def forward(self, ready: ReadyMessages, now_ms: int, turn: Turn) -> bool:
        """Move ready messages. Returns False if the next ticks have to move the rest."""


class Dispatcher:
    """The ready messages of a queue and its receivers. Implements `DeliverySource`."""

    __slots__ = ("_draining", "_with_credit", "forwarder", "queue", "ready")

    requires_sessions = False
    state_bytes = 0

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ready = ReadyMessages()
        self.forwarder: MessageForwarder | None = None
        """Takes all ready messages, if the queue forwards them."""
        self._with_credit: OrderedDict[Receiver, None] = OrderedDict()
        """Receivers with credit, the next one first."""
        self._draining: dict[Receiver, None] = {}

    def add_ready(self, messages: Sequence[Message]) -> None:
        """See `DeliverySource.add_ready`."""
        self.ready.add(messages)
        self.touch()

    def put_back(self, messages: Iterable[Message]) -> None:
        """See `DeliverySource.put_back`."""
        self.ready.put_back(messages)
        self.touch()

    def touch(self) -> None:
        """Dispatch at the end of this turn, if a receiver or a forwarder takes messages."""
        if self._with_credit or self._draining or self.forwarder is not None:
            self.queue.context.touched[self] = None

    # --- the other methods of `DeliverySource` -------------------------------------------------

    def enter(self, messages: Iterable[Message]) -> None:
        """See `DeliverySource.enter`."""

    def enter_late(self, messages: Sequence[Message]) -> None:
        """See `DeliverySource.enter_late`."""

    def leave(self, messages: Sequence[Message]) -> None:
        """See `DeliverySource.leave`."""

    def discard_ready(self, messages: Sequence[Message]) -> None:
        """See `DeliverySource.discard_ready`."""
        self.ready.discard(len(messages))

    def restore(self, messages: Sequence[Message | PackedMessages]) -> None:
        """See `DeliverySource.restore`."""
        self.ready.restore([one for one in messages if is_active(one)])
        self.touch()

    def pack(self, messages: Sequence[Message], packed: PackedMessages) -> bool:
        """See `DeliverySource.pack`."""
        if packed.is_scheduled:
            return True  # only the index and the deadlines have scheduled messages
        if not self.ready.may_pack(messages):
            return False
        self.ready.pack(messages, packed)
        return True

    def unpack(self, packed: PackedMessages, messages: Sequence[Message]) -> None:
        """See `DeliverySource.unpack`."""
        if not packed.is_scheduled:
            self.ready.unpack(packed, messages)

    def touch_for(self, messages: Iterable[Message]) -> None:
        """See `DeliverySource.touch_for`."""
        del messages
        self.touch()

    def touch_all(self) -> None:
        """See `DeliverySource.touch_all`."""
        self.touch()

    def check_attach(self, session: SessionRequest | None) -> None:
        """See `DeliverySource.check_attach`."""
        if session is not None:
            raise NotAllowed(
                "A sessionful message receiver cannot be created on an entity that does not "
                "require sessions."
            )

    def attach(
        self, receiver: Receiver, session: SessionRequest | None, now_ms: int, turn: Turn
    ) -> None:
        """See `DeliverySource.attach`."""
        del session, now_ms
        receiver.source = self
        turn.effects.append(ReceiverAttached(receiver.peer))

    def set_forwarder(self, forwarder: MessageForwarder | None) -> None:
        """See `DeliverySource.set_forwarder`."""
        self.forwarder = forwarder
        self.touch()

    def check_session_held(self, session_id: str, origin: RequestOrigin) -> None:
        """See `DeliverySource.check_session_held`."""

    def walk_session(self, session_id: str, from_number: int) -> Iterator[Message]:
        """See `DeliverySource.walk_session`."""
        key = session_key(session_id)
        # No packed message of a queue without sessions has a session id.
        for message in self.queue.index.walk(from_number, lambda _: True):
            if message.session_id is not None and session_key(message.session_id) == key:
                yield message

    def close(self) -> None:
        """See `DeliverySource.close`."""

    # --- credit ------------------------------------------------------------------------------

    def grant(self, receiver: Receiver) -> None:
        """See `ReceiverSource.grant`."""
        if receiver.draining:
            self._draining[receiver] = None
        else:
            self._draining.pop(receiver, None)
        if receiver.room > 0:
            self._with_credit[receiver] = None
        else:
            self._with_credit.pop(receiver, None)
        self.touch()

    def detach(self, receiver: Receiver, now_ms: int, turn: Turn) -> None:
        """See `ReceiverSource.detach`."""
        del now_ms, turn
        receiver.source = None
        self._forget(receiver)

    def _forget(self, receiver: Receiver) -> None:
        self._with_credit.pop(receiver, None)
        self._draining.pop(receiver, None)

    def dispatch(self, now_ms: int, turn: Turn) -> None:
        """Assign one message to each receiver in turn, while there are messages and credit."""
        ready = self.ready
        if self.queue.overdue_ms:
            return  # the backlog dispatches it again after the overdue work
        if self.forwarder is not None and not self.forwarder.forward(ready, now_ms, turn):
            return  # the rest is forwarded in the next ticks
        served: Iterable[Receiver] = ()
        if self._with_credit and len(ready):
            served = self._serve_only() if len(self._with_credit) == 1 else self._serve_all()
        for receiver in served:
            self.queue.deliver(receiver, receiver.unload(), now_ms, turn)
        if self.queue.context.payloads.any_paged and (served or ready.blocked):
            self.queue.context.payloads.request(ready.to_read_ahead(), turn)
        if self._draining:
            for receiver in list(self._draining):
                if receiver.drains_later:
                    continue
                if receiver.room <= 0 or not ready.blocked:
                    receiver.finish_draining(turn)
                    self._forget(receiver)

    def _serve_only(self) -> Sequence[Receiver]:
        """Give messages to the only receiver with credit. Returns it if there were any."""
        (receiver,) = self._with_credit
        messages = self.ready.take(max(receiver.room, 0), BURST_MAX_BYTES)
        if not messages:
            return ()
        receiver.load(messages, self.ready.taken_bytes)
        if receiver.room <= 0:
            del self._with_credit[receiver]
        return (receiver,)

    def _serve_all(self) -> Iterable[Receiver]:
        """Give messages to the receivers with credit, in turn. Returns those that got any."""
        served: dict[Receiver, None] = {}
        while self._with_credit and len(self.ready):
            if not self._serve_round(served) or self.ready.blocked:
                break
        return served

    def _serve_round(self, served: dict[Receiver, None]) -> bool:
        """Give as many messages to each receiver as all of them can have. Returns False if there was
        no message."""
        with_credit = self._with_credit
        waiting = len(self.ready)
        line = [with_credit.popitem(last=False)[0] for _ in range(min(len(with_credit), waiting))]
        count = len(line)
        share = min(waiting // count, *[receiver.room for receiver in line])
        messages = self.ready.take(share * count, BURST_MAX_BYTES * count)
        unserved: list[Receiver] = []
        for position, receiver in enumerate(line):
            part = messages if count == 1 else messages[position::count]
            if not part:
                unserved.append(receiver)
                continue
            receiver.load(part, sum([message.size for message in part]))
            served[receiver] = None
            if receiver.room > 0:
                with_credit[receiver] = None
        for receiver in reversed(unserved):
            with_credit[receiver] = None
            with_credit.move_to_end(receiver, last=False)
        return bool(messages)
