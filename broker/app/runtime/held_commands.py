"""Commands that wait because their namespace must not change now: it is being copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from broker.core.namespace import Namespace

    Inbox = deque[tuple[Namespace, Command]]


class HeldCommands:
    """The commands of one namespace, in order."""

    __slots__ = ("_namespace", "_unfinished", "commands")

    def __init__(self, namespace: Namespace, unfinished: dict[Peer, Inbox]) -> None:
        """Takes the unfinished commands of the namespace."""
        self._namespace = namespace
        self._unfinished = {
            peer: waiting for peer, waiting in unfinished.items() if waiting[0][0] is namespace
        }
        for peer in self._unfinished:
            del unfinished[peer]
        self.commands: list[Command] = []

    def give_back(self, inbox: Inbox, unfinished: dict[Peer, Inbox]) -> None:
        """Returns the commands, before those that came later."""
        unfinished.update(self._unfinished)
        inbox.extendleft((self._namespace, command) for command in reversed(self.commands))
