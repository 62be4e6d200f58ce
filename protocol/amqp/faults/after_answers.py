"""Lets a fault act after all earlier commands are durable and answered.

Submits `ReplyAfterEarlier`. The reply comes after the answers to the commands before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.commands import ReplyAfterEarlier

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect, Peer


class AfterAnswers:
    """The request of `ReplyAfterEarlier`."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def answered(self) -> None:
        """Everything before is durable, and its answers are given to the connection."""
        self._call()


class FaultPeer:
    """A peer for a fault that belongs to no link. Effects reach it in the order of its connection."""

    __slots__ = ("connection",)

    def __init__(self, connection: object) -> None:
        self.connection = connection

    def receive(self, effect: Effect) -> None:
        """Calls what waits for the answer."""
        request = getattr(effect, "request", None)
        if isinstance(request, AfterAnswers):
            request.answered()


def after_answers(submit: Callable[[Command], None], peer: Peer, call: Callable[[], None]) -> None:
    """Calls when all commands of a peer so far are durable and answered."""
    submit(ReplyAfterEarlier(peer, AfterAnswers(call)))
