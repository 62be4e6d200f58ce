"""Commands with much work, which are done in parts, and the later commands of their peers, which wait for the last part.

Parts have turns of their own. How many are done in one, and how soon the next one follows, depends on the time that
they take and on what the store has to do.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.core.contract.commands import Credit, Detach
from broker.core.contract.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.app.runtime.committer import Committer
    from broker.core.contract.commands import Command, Send, Settle
    from broker.core.contract.effects import Peer
    from broker.core.namespace import Namespace

SHORT_TURN_S = 0.002
"""After a turn that took longer, parts of unfinished commands have to wait for the next pass of the event loop."""

PART_WEIGHT = 1_024
"""A turn with more rows and effects than this does not continue unfinished commands."""

LARGE_PART_WEIGHT = 1_024
"""After parts with more rows and effects than this, the next part waits until these are durable."""

PART_INTERVAL_S = 0.1
"""While the store is loaded, one part of long work is done after so long: see `_part_due_s`."""


class UnfinishedCommands:
    """The unfinished commands of a turn loop."""

    def __init__(self, stopwatch_s: Callable[[], float]) -> None:
        self._stopwatch_s = stopwatch_s
        self._committer: Committer | None = None
        self.by_peer: dict[Peer, deque[tuple[Namespace, Command]]] = {}
        """Commands that have been done in part, and later commands of the same peers, in order: at least one for each
        peer. The turn loop and its held namespaces use this dict, too."""
        self._part_due_s = 0.0
        """From this time on one part is done even if the store is loaded. Other clients may keep the
        store loaded for as long as they like."""
        self._part_turns = 0
        """How many turns had been submitted after the last large part."""

    def attach(self, committer: Committer) -> None:
        """Sets the committer, which knows how much the store has to do."""
        self._committer = committer

    def begin(self, namespace: Namespace, parts: Sequence[Send | Settle]) -> None:
        """Adds the parts of a command."""
        if not self.by_peer:
            self._part_due_s = self._stopwatch_s() + PART_INTERVAL_S
        self.by_peer[parts[0].peer] = deque((namespace, part) for part in parts)

    def waits(self, namespace: Namespace, command: Command, now_ms: int, turn: Turn) -> bool:
        """Returns whether a command waits after unfinished commands of its peer. If so, adds it there."""
        peers = command.peers if isinstance(command, Detach) else (getattr(command, "peer", None),)
        for peer in peers:
            if peer in self.by_peer:
                if isinstance(command, Detach):
                    self._withdraw_credit(namespace, command.peers, now_ms, turn)
                self.by_peer.setdefault(peer, deque()).append((namespace, command))
                return True
        return False

    def _withdraw_credit(
        self, namespace: Namespace, peers: Sequence[Peer], now_ms: int, turn: Turn
    ) -> None:
        """Delivers no more messages to detached links while their unfinished commands are done: each message
        would count as a failed delivery."""
        for peer in peers:
            waiting = self.by_peer.pop(peer, ())
            left = deque(one for one in waiting if type(one[1]) is not Credit)
            if left:
                self.by_peer[peer] = left
            namespace.apply(Credit(peer, 0), now_ms, turn)

    @property
    def may_continue(self) -> bool:
        """Whether the last large part of unfinished commands is durable. A second one in the store would only delay the
        commits of other clients."""
        return self._committer is None or self._committer.has_released(self._part_turns)

    def has_time(self, began_s: float) -> bool:
        """Whether parts may follow a turn that began then. After a longer turn, sockets are read and written first,
        unless the parts have waited for `PART_INTERVAL_S`."""
        now_s = self._stopwatch_s()
        return now_s - began_s < SHORT_TURN_S or now_s >= self._part_due_s

    @property
    def store_is_loaded(self) -> bool:
        """Whether the store has enough to do."""
        return self._committer is not None and self._committer.is_loaded

    def run(self, now_ms: int, ends_s: float, active: dict[Namespace, None]) -> Turn:
        """Does parts until this time and returns their turn. Adds the namespaces in which parts were done."""
        turn = Turn()
        continued: dict[Namespace, None] = {}
        self._continue(now_ms, ends_s, turn, continued)
        for namespace in continued:
            namespace.dispatch(now_ms, turn)
        active.update(continued)
        return turn

    def submitted(self, turn: Turn) -> None:
        """A turn of parts was submitted."""
        if self._committer is not None and turn.weight > LARGE_PART_WEIGHT:
            self._part_turns = self._committer.submitted

    def _continue(
        self, now_ms: int, ends_s: float, turn: Turn, active: dict[Namespace, None]
    ) -> None:
        """Does a part of each unfinished command, one peer after the other: at least one part in a turn, unless
        the store has enough to do. Then the next part waits until the store is no longer loaded, or for
        `PART_INTERVAL_S`."""
        while self.by_peer and (
            not self.store_is_loaded or self._stopwatch_s() >= self._part_due_s
        ):
            peer, waiting = next(iter(self.by_peer.items()))
            namespace, command = waiting.popleft()
            if parts := namespace.parts(command):
                waiting.extendleft((namespace, part) for part in reversed(parts))
                continue
            del self.by_peer[peer]
            is_end = isinstance(command, Detach)
            if not (is_end and self.waits(namespace, command, now_ms, turn)):
                self._part_due_s = self._stopwatch_s() + PART_INTERVAL_S
                namespace.apply(command, now_ms, turn)
                active[namespace] = None
            if waiting:
                self.by_peer[peer] = waiting  # after the other peers
            if self._stopwatch_s() > ends_s or turn.weight > PART_WEIGHT:
                return
