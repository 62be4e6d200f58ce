"""One fault rule: the operations that fit it, those of them on which it acts, and what it does.

A rule counts all operations that fit, also those on which it does not act. The protocols carry out what it does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from protocol.addresses import split_sub_queue
from protocol.faults.conditions import DETACH_FORCED, SERVER_BUSY, InjectedFault
from protocol.faults.fault_kinds import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    from broker.core.contract.message import Message
    from protocol.faults.fault_kinds import Operation
    from protocol.faults.occurrence import Occurrence

REMEMBERED_MAX = 100_000
"""How many messages are remembered for each purpose. The oldest are forgotten."""

_CONDITIONS = {FaultKind.SERVER_BUSY: SERVER_BUSY, FaultKind.DETACH: DETACH_FORCED}


@dataclass(frozen=True, slots=True)
class FaultAction:
    """What a rule does."""

    kind: FaultKind
    condition: str | None = None
    description: str | None = None
    seconds: float = 0.0
    is_after: bool = False
    """It happens when the effect of the operation is durable, and not instead of the operation."""

    def error(self) -> InjectedFault:
        """Returns the error that the client gets, of a kind that has one."""
        condition = self.condition or _CONDITIONS[self.kind]
        return InjectedFault(condition, self.description)


@dataclass(frozen=True, slots=True)
class OperationOfClient:
    """One operation of a client, as far as rules look at it."""

    operations: Collection[Operation]
    """Several, if it counts as each of them."""
    path: str = ""
    """The entity or sub-queue."""
    container_id: str = ""
    key_names: Collection[str] = ()
    management_operation: str = ""


@dataclass(slots=True, eq=False)
class FaultRule:
    """A rule with its counts."""

    name: str
    operation: Operation
    action: FaultAction
    occurrence: Occurrence
    entity: str | None = None
    """In lower case, without sub-queue."""
    sub_queue: str | None = None
    """None: of an entity its queue, and of all entities every queue and sub-queue."""
    management_operation: str | None = None
    container_id: str | None = None
    key_name: str | None = None
    matches: Callable[[Message], bool] | None = None
    """The filter. None: every message."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """The rule as its maker wrote it."""
    matched: int = 0
    """Operations that fit."""
    hits: int = 0
    """Operations on which it has acted."""
    deliveries: dict[bytes, None] = field(default_factory=dict)
    """Lock tokens of delivered messages for which the filter of a settle rule is true. A settlement names only the
    token, so the filter is evaluated when the message is delivered."""

    def is_about(self, one: OperationOfClient) -> bool:
        """Whether the operation fits, apart from the message."""
        return (
            self.operation in one.operations
            and self._is_about_path(one.path)
            and _fits(self.container_id, (one.container_id,))
            and _fits(self.key_name, one.key_names)
            and self.management_operation in (None, one.management_operation)
        )

    def _is_about_path(self, path: str) -> bool:
        if self.entity is None and self.sub_queue is None:
            return True
        entity, sub_queue = split_sub_queue(path.lower())
        if self.entity is None:
            return sub_queue == self.sub_queue
        return entity == self.entity and sub_queue == (self.sub_queue or "main")

    def fits(self, messages: Iterable[Message]) -> bool:
        """Whether the filter is true for one of the messages of an operation."""
        return self.matches is None or any(map(self.matches, messages))

    def remember(self, message: Message, token: bytes) -> None:
        """Evaluates the filter of a settle rule for a message that is delivered."""
        if self.matches is not None and self.matches(message):
            self.deliveries[token] = None
            if len(self.deliveries) > REMEMBERED_MAX:
                del self.deliveries[next(iter(self.deliveries))]

    def fits_delivery(self, tokens: Iterable[bytes]) -> bool:
        """Whether the filter was true when a message was delivered. Forgets the tokens."""
        if self.matches is None:
            return True
        found = [token for token in tokens if token in self.deliveries]
        for token in found:
            del self.deliveries[token]
        return bool(found)

    def count(self) -> bool:
        """Counts an operation that fits. Returns whether the rule is to act on it."""
        self.matched += 1
        return self.occurrence.is_due(self.matched)


def decide(rules: Iterable[FaultRule], fits: Callable[[FaultRule], bool]) -> FaultAction | None:
    """Counts one operation in all rules that it fits, and returns what the first of those that are due does. Each rule
    counts for itself, so that another rule does not change which operations it acts on."""
    acting: FaultRule | None = None
    for rule in rules:
        if fits(rule) and rule.count() and acting is None:
            acting = rule
    if acting is None:
        return None
    acting.hits += 1
    return acting.action


def _fits(pattern: str | None, names: Iterable[str]) -> bool:
    if pattern is None:
        return True
    expression = re.escape(pattern).replace(r"\*", ".*")
    return any(re.fullmatch(expression, name, re.IGNORECASE | re.DOTALL) for name in names)
