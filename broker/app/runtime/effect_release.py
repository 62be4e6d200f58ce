"""Gives effects to their peers, for some milliseconds at a time.

An effect takes time: the answer to an attach, for instance, is a frame that has to be built. If a batch has
more effects than that time allows, the others wait by connection, and connections take turns. So a client
with one answer does not wait for the thousand answers of another. Each connection keeps its order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import structlog

from broker.core.contract.effects import PayloadsNeeded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.effects import Effect, Peer

log = structlog.get_logger("peeklock.turn")

RELEASE_S = 0.003
"""After so long, sockets are read and written."""
WAITING_FEW = 1_000
"""If more effects wait than this, nothing is read from clients that have sent much."""
WAITING_MAX = 10_000
"""If more effects wait than this, they are given to their peers without a break, because they take memory."""


class EffectRelease:
    """Gives durable effects to their peers."""

    def __init__(
        self,
        stopwatch_s: Callable[[], float],
        read_payloads: Callable[[Sequence[int]], None],
        peer_failed: Callable[[Peer], None],
    ) -> None:
        self._stopwatch_s = stopwatch_s
        self._peer_failed = peer_failed
        self._read_payloads = read_payloads
        self._waiting: dict[object, deque[Effect]] = {}
        self.waiting_count = 0
        """How many effects wait for `continue_release`."""

    @property
    def is_done(self) -> bool:
        """Whether nothing waits for `continue_release`."""
        return not self._waiting

    def release(self, effects: Sequence[Effect]) -> None:
        """Gives effects to their peers, after the waiting effects of the same connection. Some may have to wait."""
        if len(effects) == 1 and not self._waiting:
            self._send_to_peer(effects[0])
            return
        ends_s = self._stopwatch_s() + RELEASE_S
        is_over = False
        for effect in effects:
            if (is_over or self._waiting) and self._waits(effect, is_over=is_over):
                continue
            self._send_to_peer(effect)
            is_over = is_over or self._stopwatch_s() > ends_s

    def continue_release(self) -> None:
        """Gives some of the waiting effects to their peers, of each connection in turn."""
        ends_s = self._stopwatch_s() + RELEASE_S
        while self._waiting:
            connection, line = next(iter(self._waiting.items()))
            self._send_to_peer(line.popleft())
            self.waiting_count -= 1
            del self._waiting[connection]
            if line:
                self._waiting[connection] = line  # after the other connections
            if self._stopwatch_s() > ends_s and self.waiting_count <= WAITING_MAX:
                break

    def drop(self) -> None:
        """Drops the waiting effects."""
        self._waiting.clear()
        self.waiting_count = 0

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
            # A bug of the broker with one peer. The others get their effects, and what is durable stays so.
            # The peer would wait for its answer for ever, and its later answers may be wrong: it is ended.
            log.exception("effect.failed", effect=type(effect).__name__)
            self._peer_failed(effect.to)
