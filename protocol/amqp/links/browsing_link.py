"""A receiver that asked for copies: it looks at messages and neither locks nor takes them.

Owns how far a client has looked; what there is to see is the core's answer to a peek. A browser sees
what is there when it asks: it is not told of what comes later until it grants credit again. It asks no
faster than the client reads, and all browsers of a connection take turns.
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
    from protocol.amqp.engine.engine import Delivery, EngineLink
    from protocol.amqp.engine.outcomes import Outcome
    from protocol.amqp.links.link_context import LinkContext

ASKED_AT_ONCE_MAX = 100
BROWSERS_AT_ONCE_MAX = 4
"""Links of a connection that may wait for copies at the same time. Each is given about a megabyte, so
that is what a connection can have in memory before its socket says that it takes no more."""


class BrowsingTurns:
    """Lets the browsing links of one connection ask a few at a time, in the order they wanted to."""

    def __init__(self) -> None:
        self._asking: set[BrowsingLink] = set()
        self._waiting: deque[BrowsingLink] = deque()
        self._is_paused = False

    def request(self, browser: BrowsingLink) -> None:
        """Have a browser ask, now or when it is its turn."""
        self._waiting.append(browser)
        self._go_on()

    def answered(self, browser: BrowsingLink) -> None:
        """A browser has been answered: another may ask."""
        self._asking.discard(browser)
        self._go_on()

    def forget(self, browser: BrowsingLink) -> None:
        """A browser is gone."""
        if browser in self._waiting:
            self._waiting.remove(browser)
        self.answered(browser)

    def clear(self) -> None:
        """All links are gone."""
        self._asking.clear()
        self._waiting.clear()

    def pause(self) -> None:
        """The socket takes no more for now."""
        self._is_paused = True

    def resume(self) -> None:
        """The socket takes more again."""
        self._is_paused = False
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_paused and len(self._asking) < BROWSERS_AT_ONCE_MAX:
            browser = self._waiting.popleft()
            if browser.ask():
                self._asking.add(browser)


class BrowsingLink:
    """A link on which the client receives copies of what waits in a queue."""

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
        self._shown = 0

    def begin(self) -> None:
        """Look whether there is such a queue; the answer grants the link or refuses it."""
        self._request()

    # --- from the client -----------------------------------------------------------------------

    def on_flow(self) -> None:
        """The client wants to see more."""
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
        """Whatever the client thinks of a copy, the message stays as it is."""
        self._engine.settle(self._link, deliveries, None if settled else outcome)
        self._touch()

    def on_detach(self) -> None:
        """Nothing is held for a client that only looks."""
        self._turns.forget(self)

    def _request(self) -> None:
        self._asking = True
        self._turns.request(self)

    def ask(self) -> bool:
        """Look for messages; false if the client takes none any more."""
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
        """Show what was found."""
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
