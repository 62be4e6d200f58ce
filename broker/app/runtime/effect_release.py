"""Durable effects on their way to their peers, for some milliseconds at a time.

Telling a peer takes time: an answer to an attach is a frame that has to be built. If a batch of the
committer has more to tell than that time allows, the rest waits by connection, and connections take turns.
So a client with one answer does not wait for another's thousand. On each connection the order is kept.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import structlog

from broker.core.contract.effects import PayloadsNeeded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.effects import Effect

log = structlog.get_logger("peeklock.turn")

RELEASE_S = 0.003
"""After so long others are read from and written to."""
WAITING_FEW = 1_000
"""With more effects waiting than this, clients that have sent much are not read from."""
WAITING_MAX = 10_000
"""With more effects waiting than this, they are told without a break: they take memory."""


class EffectRelease:
    """Tells peers what is durable."""

    def __init__(
        self,
        stopwatch_s: Callable[[], float],
        read_payloads: Callable[[Sequence[int]], None],
    ) -> None:
        self._stopwatch_s = stopwatch_s
        self._read_payloads = read_payloads
        self._waiting: dict[object, deque[Effect]] = {}
        self.waiting_count = 0
        """How many effects wait for `continue_release`."""

    @property
    def is_done(self) -> bool:
        """Whether nothing waits for `continue_release`."""
        return not self._waiting

    def release(self, effects: Sequence[Effect]) -> None:
        """Tell these, after those of the same connection that wait; the last may have to wait, too."""
        ends_s = self._stopwatch_s() + RELEASE_S
        is_over = False
        for effect in effects:
            if (is_over or self._waiting) and self._waits(effect, is_over=is_over):
                continue
            self._send_to_peer(effect)
            is_over = is_over or self._stopwatch_s() > ends_s

    def continue_release(self) -> None:
        """Tell some of what waits, of each connection in turn."""
        ends_s = self._stopwatch_s() + RELEASE_S
        while self._waiting:
            connection, line = next(iter(self._waiting.items()))
            self._send_to_peer(line.popleft())
            self.waiting_count -= 1
            del self._waiting[connection]
            if line:
                self._waiting[connection] = line  # behind the others
            if self._stopwatch_s() > ends_s and self.waiting_count <= WAITING_MAX:
                break

    def _waits(self, effect: Effect, *, is_over: bool) -> bool:
        if isinstance(effect, PayloadsNeeded):
            return False
        connection = getattr(effect.to, "connection", effect.to)
        line = self._waiting.get(connection)
        if line is None:
            if not is_over:
                return False
            line = self._waiting[connection] = deque()
        line.append(effect)
        self.waiting_count += 1
        return True

    def _send_to_peer(self, effect: Effect) -> None:
        if isinstance(effect, PayloadsNeeded):
            self._read_payloads(effect.payload_ids)
            return
        try:
            effect.to.receive(effect)
        except Exception:
            # One peer's trouble is not another's: what is durable stays so, and its connection
            # finds out for itself.
            log.exception("effect.failed", effect=type(effect).__name__)
