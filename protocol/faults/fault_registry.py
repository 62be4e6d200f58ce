"""The fault rules of all namespaces.

The protocols look at `is_used` for each batch of operations, and at the rules only if it is set. Rules are in memory,
and end with their namespace.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from protocol.faults.fault_rule import REMEMBERED_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from protocol.faults.fault_rule import FaultRule, OperationOfClient


class NamespaceFaults:
    """The rules of one namespace, in the order in which they were made."""

    __slots__ = ("_redelivered", "rules", "twice")

    def __init__(self) -> None:
        self.rules: dict[str, FaultRule] = {}
        self.twice: dict[bytes, int] = {}
        """Sequence numbers of messages that are to be delivered again when they are completed, by lock token."""
        self._redelivered: dict[tuple[str, int], None] = {}
        """Paths in lower case and sequence numbers of messages that are to be delivered for the second time."""

    def deliver_again(self, token: bytes, sequence_number: int) -> None:
        """Remembers that a message is to be delivered again when it is completed."""
        self.twice[token] = sequence_number
        _bound(self.twice)

    def completed(self, path: str, token: bytes) -> None:
        """Notes that a message which is to be delivered again was completed."""
        number = self.twice.pop(token, None)
        if number is not None:
            self._redelivered[path.lower(), number] = None
            _bound(self._redelivered)

    def is_second_delivery(self, path: str, sequence_number: int) -> bool:
        """Whether a message is delivered again after it was completed. True once."""
        key = (path.lower(), sequence_number)
        if key not in self._redelivered:
            return False
        del self._redelivered[key]
        return True

    def about(self, one: OperationOfClient) -> list[FaultRule]:
        """Returns the rules that an operation fits, apart from the message."""
        return [rule for rule in self.rules.values() if rule.is_about(one)]


class FaultRegistry:
    """All fault rules of a broker."""

    __slots__ = ("_call_later", "_namespaces", "is_used")

    def __init__(
        self, call_later: Callable[[float, Callable[[], None]], object] | None = None
    ) -> None:
        self.is_used = False
        """Whether a rule was made since the broker started. Once it is set it stays so: operations may still be
        delayed when the last rule is removed."""
        self._namespaces: dict[str, NamespaceFaults] = {}
        self._call_later = call_later

    def of(self, namespace: str) -> NamespaceFaults | None:
        """Returns the rules of a namespace, or None if it has never had one."""
        return self._namespaces.get(namespace)

    def rules(self, namespace: str) -> list[FaultRule]:
        """Returns the rules of a namespace in the order in which they were made."""
        found = self._namespaces.get(namespace)
        return [] if found is None else list(found.rules.values())

    def find(self, namespace: str, name: str) -> FaultRule | None:
        """Returns one rule."""
        found = self._namespaces.get(namespace)
        return None if found is None else found.rules.get(name)

    def add(self, namespace: str, rule: FaultRule) -> None:
        """Adds a rule. Its name must be free."""
        faults = self._namespaces.setdefault(namespace, NamespaceFaults())
        assert rule.name not in faults.rules, "the caller checks the name"
        faults.rules[rule.name] = rule
        self.is_used = True

    def remove(self, namespace: str, name: str) -> FaultRule | None:
        """Removes a rule and returns it, or None if there is none."""
        found = self._namespaces.get(namespace)
        return None if found is None else found.rules.pop(name, None)

    def clear(self, namespace: str) -> int:
        """Removes all rules of a namespace and returns their number. What a rule has begun goes on."""
        found = self._namespaces.pop(namespace, None)
        return 0 if found is None else len(found.rules)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls after a time by the event loop's clock: a test that moves the broker's clock does not move the time
        that its client waits."""
        later = self._call_later or asyncio.get_running_loop().call_later
        later(seconds, call)


def _bound(remembered: dict[Any, Any]) -> None:
    """Forgets the oldest of what is remembered about messages: some are deleted and never settled."""
    if len(remembered) > REMEMBERED_MAX:
        del remembered[next(iter(remembered))]
