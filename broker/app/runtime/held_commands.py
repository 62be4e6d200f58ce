"""Namespaces that must not change now because they are being copied, and the commands that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.runtime.awaited_request import AwaitedRequest, refuse
from broker.core.contract.commands import Tick

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from broker.core.namespace import Namespace

    Inbox = deque[tuple[Namespace, Command]]


class HeldNamespaces:
    """The held namespaces of a turn loop, whose inbox and unfinished commands it takes commands from and returns
    them to."""

    def __init__(
        self,
        inbox: Inbox,
        unfinished: dict[Peer, Inbox],
        submit: Callable[[Namespace, Command], None],
    ) -> None:
        self._inbox = inbox
        self._unfinished = unfinished
        self._submit = submit
        self.by_namespace: dict[Namespace, _HeldCommands] = {}

    def __contains__(self, namespace: Namespace) -> bool:
        return namespace in self.by_namespace

    def takes(self, namespace: Namespace, command: Command) -> bool:
        """Returns whether a command has to wait. If so, keeps it."""
        held = self.by_namespace.get(namespace)
        if held is None:
            return False
        held.commands.append(command)
        return True

    def hold(self, namespace: Namespace) -> None:
        """Lets the commands of a namespace wait until one of the following methods is called. Raises `RuntimeError` if they
        wait already: one operation would end the wait of the other."""
        if namespace in self.by_namespace:
            raise RuntimeError(f"the namespace '{namespace.name}' is held already")
        self.by_namespace[namespace] = _HeldCommands(namespace, self._unfinished)

    def release(self, namespace: Namespace) -> None:
        """Runs the commands that waited, before those that came later. Does nothing if none wait: they were moved or
        dropped."""
        held = self.by_namespace.pop(namespace, None)
        if held is not None:
            self._unfinished.update(held.unfinished)
            self._inbox.extendleft((namespace, command) for command in reversed(held.commands))
            self._submit(namespace, Tick())

    def move(self, namespace: Namespace, replacement: Namespace, reason: str) -> None:
        """Runs the awaited requests that waited in the namespace that replaces theirs. Drops the commands of links, which
        have ended, and refuses HTTP requests that have links."""
        for command in self._dropped(namespace):
            if isinstance(getattr(command, "peer", None), AwaitedRequest):
                self._submit(replacement, command)
            else:
                refuse(command, reason)

    def drop(self, namespace: Namespace, reason: str) -> None:
        """Drops the commands that waited, because the namespace is deleted. Refuses HTTP requests."""
        for command in self._dropped(namespace):
            refuse(command, reason)

    def clear(self) -> None:
        """Drops everything, because all namespaces are replaced."""
        self.by_namespace.clear()

    def _dropped(self, namespace: Namespace) -> list[Command]:
        held = self.by_namespace.pop(namespace, None)
        if held is None:
            return []
        unfinished = [command for waiting in held.unfinished.values() for _, command in waiting]
        return unfinished + held.commands


class _HeldCommands:
    """The commands of one namespace, in order."""

    __slots__ = ("commands", "unfinished")

    def __init__(self, namespace: Namespace, unfinished: dict[Peer, Inbox]) -> None:
        """Takes the unfinished commands of the namespace."""
        self.unfinished = {
            peer: waiting for peer, waiting in unfinished.items() if waiting[0][0] is namespace
        }
        for peer in self.unfinished:
            del unfinished[peer]
        self.commands: list[Command] = []
