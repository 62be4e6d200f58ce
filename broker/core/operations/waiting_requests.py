"""Requests that wait for bodies or for their queue, and are repeated later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.commands import ReceiveDeferred

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from broker.core.contract.message import Message

    WaitingRequest = tuple[Command | None, Sequence[Message]]
    """A request, or None if it was cancelled, and the messages whose bodies are kept for it."""


def cancel_receives(waiting: list[WaitingRequest], peers: Sequence[Peer]) -> None:
    """Cancel the requests of ended peers that would lock or delete messages: no client gets the
    answer, and nothing would release the locks before they expire."""
    for position, (request, read_back) in enumerate(waiting):
        if type(request) is ReceiveDeferred and request.peer in peers:
            waiting[position] = (None, read_back)
