"""The peer of a request whose answer a coroutine awaits.

HTTP requests and the broker itself use it; AMQP clients have links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.runtime.core_observer import HttpPeer
from broker.core.contract.effects import Reply
from broker.core.contract.errors import ServerBusy

if TYPE_CHECKING:
    import asyncio

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect
    from broker.core.contract.errors import BrokerError


class AwaitedRequest:
    """The peer of one awaited request."""

    __slots__ = ("answer",)

    def __init__(self, answer: asyncio.Future[object]) -> None:
        self.answer = answer

    def refuse(self, error: BrokerError) -> None:
        """Raises the error where the answer is awaited."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def receive(self, effect: Effect) -> None:
        """Gives the answer to the coroutine."""
        if not isinstance(effect, Reply) or self.answer.done():
            return
        if effect.error is not None:
            self.answer.set_exception(effect.error)
        else:
            self.answer.set_result(effect.value)


def refuse(command: Command, reason: str) -> None:
    """Answers an awaited request, or an HTTP request that has a link, with `ServerBusy`. Does nothing for AMQP clients:
    their connections are closed anyway."""
    peer = getattr(command, "peer", None)
    if isinstance(peer, HttpPeer) and not hasattr(peer, "connection"):
        peer.refuse(ServerBusy(reason))
