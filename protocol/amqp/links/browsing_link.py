"""A link of a receiver with distribution mode `copy`: it browses messages, and neither locks nor removes them.

Owns the position up to which a client has browsed; the core answers peeks. A client gets the messages that are there
when it gives credit, and later messages only after it gives credit again. Peeks are not submitted faster than
the client reads, and a connection has few peeks at a time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.core.contract.commands import Peek
from broker.core.contract.effects import Effect, Reply
from broker.core.contract.message import MessageState
from protocol.addresses import is_subscription
from protocol.amqp.engine.states import LinkState
from protocol.codec import encode_delivery

if TYPE_CHECKING:
    from broker.core.contract.message import Message
    from protocol.amqp.browsing_slots import BrowsingSlots
    from protocol.amqp.engine.engine import Delivery, EngineLink
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.links.link_context import LinkContext

ASKED_AT_ONCE_MAX = 100
BROWSERS_AT_ONCE_MAX = 4
"""How many links of a connection may wait for a peek at the same time. Each answer is about a megabyte, so this
bounds the memory of a connection before its socket is full."""
ANSWERS_PER_TURN = 16
"""How many answers a connection gets before one that waits for a slot, if its client reads them."""


class BrowsingTurns:
    """Limits how many browsing links of a connection peek at a time. The others wait in order, and
    connections wait for each other: see `browsing_slots.py`."""

    def __init__(self, slots: BrowsingSlots) -> None:
        self._slots = slots
        self._asking: set[BrowsingLink] = set()
        self._waiting: deque[BrowsingLink] = deque()
        self._answers = 0
        """Since this connection got its slot. They may be in the output that is not written yet."""
        self.is_paused = False
        """The write buffer of the socket is full."""

    def request(self, browser: BrowsingLink) -> None:
        """Lets a link peek, now or after others."""
        self._waiting.append(browser)
        self._peek_next()

    def answered(self, browser: BrowsingLink) -> None:
        """Lets the next link peek, because a link has its answer."""
        self._asking.discard(browser)
        self._answers += 1
        self._peek_next()

    def forget(self, browser: BrowsingLink) -> None:
        """Removes a link that is detached."""
        if browser in self._waiting:
            self._waiting.remove(browser)
        self.answered(browser)

    def clear(self) -> None:
        """Removes all links."""
        self._asking.clear()
        self._waiting.clear()
        self._slots.release(self)

    def pause(self) -> None:
        """Starts no more peeks, because the write buffer of the socket is full."""
        self.is_paused = True

    def resume(self) -> None:
        """Continues after `pause`."""
        self.is_paused = False
        self.output_written()
        self._peek_next()

    def output_written(self) -> None:
        """Lets other connections browse, because the answers are written to the socket."""
        if self._answers and not self._asking and not self.is_paused:
            self._answers = 0
            self._slots.release(self)
            self._peek_next()

    def slot_granted(self) -> None:
        """Continues after other connections."""
        self._peek_next()

    def _peek_next(self) -> None:
        while self._waiting and not self.is_paused and len(self._asking) < BROWSERS_AT_ONCE_MAX:
            if self._answers >= ANSWERS_PER_TURN and self._slots.is_awaited:
                return  # other connections are first
            if not self._slots.take(self):
                return
            browser = self._waiting.popleft()
            if browser.ask():
                self._asking.add(browser)
        if not self._asking and not self._answers and not self.is_paused:
            self._slots.release(self)


class BrowsingLink:
    """A link on which the client receives copies of the messages in a queue."""

    def __init__(
        self,
        context: LinkContext,
        link: EngineLink,
        path: str,
        turns: BrowsingTurns,
        *,
        presettled: bool,
        session_id: str | None,
    ) -> None:
        self._context = context
        self._engine = self.connection = context.engine
        self._link = link
        self.path = path
        self._submit = context.submit
        self._touch = context.touch
        self._turns = turns
        self._presettled = presettled
        self._from_topic = is_subscription(path)
        self._session_id = session_id
        self._from_sequence_number = 0
        self._asking = False
        """A peek was submitted or waits for others. Not a state of the link: it changes with every peek."""
        self._shown = 0

    def begin(self) -> None:
        """Peeks at the queue. The link is granted or refused with the answer."""
        self._request()

    # --- from the client -----------------------------------------------------------------------

    def on_flow(self) -> None:
        """Peeks at more messages if the client has given credit."""
        engine, link = self._engine, self._link
        if self._asking or engine.queued(link):
            return
        if engine.credit(link) > 0:
            self._request()
        elif engine.draining(link):
            engine.drained(link)
            self._touch()

    def on_outcomes(
        self,
        deliveries: list[Delivery],
        outcome: Outcome | None,
        settled: bool,
    ) -> None:
        """Settles copies. The outcome does not change the message."""
        self._engine.settle(self._link, deliveries, None if settled else outcome)
        self._touch()

    def on_detach(self) -> None:
        """Removes the link. The core does not know it."""
        self._turns.forget(self)

    def _request(self) -> None:
        self._asking = True
        self._turns.request(self)

    def ask(self) -> bool:
        """Submits a peek. Returns False if the client has no credit any more."""
        engine, link = self._engine, self._link
        count = min(engine.credit(link), ASKED_AT_ONCE_MAX) if link.is_attached else 1
        if link.closed or count <= 0:
            self._asking = False
            engine.drained(link)
            return False
        self._submit(
            Peek(self, self, self.path, self._from_sequence_number, count, self._session_id)
        )
        return True

    # --- from the core -------------------------------------------------------------------------

    def receive(self, effect: Effect) -> None:
        """Sends the messages that a peek found, or grants or refuses the link."""
        if not isinstance(effect, Reply):
            return
        self._asking = False
        self._turns.answered(self)
        if effect.error is not None:
            error = self._context.refuse(
                effect.error, entity=self.path, operation="browse", host=self._link.host
            )
            self._engine.detach(self._link, error)
        elif self._link.state is LinkState.REQUESTED:
            self._engine.attach(self._link)
            self.on_flow()
        else:
            self._show(effect.value)  # type: ignore[arg-type]  # what a peek is answered with
        self._touch()

    def _show(self, found: list[Message]) -> None:
        engine, link = self._engine, self._link
        room = engine.credit(link)
        for message in found:
            if message.state is MessageState.ACTIVE:
                if room == 0:
                    break
                room -= 1
                self._send(message)
            self._from_sequence_number = message.sequence_number + 1
        if found:
            self.on_flow()
        elif engine.draining(link):
            engine.drained(link)

    def _send(self, message: Message) -> None:
        self._shown += 1
        tag = self._shown.to_bytes(16, "big")
        head, body = encode_delivery(
            message, None, message.locked_until_ms, from_topic=self._from_topic
        )
        self._engine.send(self._link, [tag], [head], [body], self._presettled)
