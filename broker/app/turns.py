"""The turn loop: everything that came in since the last turn becomes one turn.

Sockets, timers and HTTP requests only submit; commands run here, one turn per pass of the event
loop, then their records go to the committer and their effects, once durable, to their peers. Each
touched connection is flushed once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from broker.app.rule_compiler import HAVE_RULES
from broker.core.commands import PayloadsLoaded, Tick
from broker.core.effects import PayloadsNeeded, Reply
from broker.core.errors import ServerBusy
from broker.core.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.app.clock import Clock
    from broker.app.committer import Committer
    from broker.app.rule_compiler import RuleCompiler
    from broker.core.commands import Command, Peer
    from broker.core.effects import Effect
    from broker.core.errors import BrokerError
    from broker.core.namespace import Namespace

log = structlog.get_logger("peeklock.turn")

MAX_TIMER_S = 3600.0
"""A far deadline is looked at again after this long: the clock may have been set meanwhile."""

COMMIT_POLL_S = 0.002
"""How soon to look again when something is due in the middle of a commit."""


class Flushable(Protocol):
    """A connection with something to write."""

    def flush(self) -> None: ...

    def abort(self) -> None:
        """End it without another word."""


class TurnLoop:
    """Owns the order in which things happen."""

    def __init__(
        self,
        namespaces: Mapping[str, Namespace],
        clock: Clock,
        read_payloads: Callable[[Sequence[int]], None],
        failed: Callable[[Exception], None],
        rule_compiler: RuleCompiler | None = None,
    ) -> None:
        self._rule_compiler = rule_compiler
        self._namespaces = namespaces
        self._clock = clock
        self._read_payloads = read_payloads
        self._failed = failed
        self._committer: Committer | None = None
        self._inbox: list[tuple[Namespace, Command]] = []
        self._touched: dict[Flushable, None] = {}
        """Ordered, so that the same run happens again in a simulation."""
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._suspended = False
        self._asking: dict[_Asker, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._tick_turns = 0
        """How many turns had been submitted when the last timer's tick had run."""
        self._tick_is_new = False

    def attach(self, committer: Committer) -> None:
        """Complete the pair: the committer releases through this loop."""
        self._committer = committer

    def submit(self, namespace: Namespace, command: Command) -> None:
        """Run a command in the next turn. One with long rules is compiled first, and runs in the
        turn after that."""
        if type(command) in HAVE_RULES and self._compile(namespace, command):
            return
        self._inbox.append((namespace, command))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _compile(self, namespace: Namespace, command: Command) -> bool:
        """Whether the command waits for its rules to be compiled."""

        def run(compiled: Command) -> None:
            if self._namespaces.get(namespace.name) is namespace:  # else it was given up meanwhile
                self.submit(namespace, compiled)

        return self._rule_compiler is not None and self._rule_compiler.start(command, run)

    def touch(self, connection: Flushable) -> None:
        """Flush this connection at the end of the next turn."""
        self._touched[connection] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def forget(self, connection: Flushable) -> None:
        """The connection is gone."""
        self._touched.pop(connection, None)

    def payloads_loaded(self, payloads: Mapping[int, tuple[bytes, bytes]]) -> None:
        """Bodies are back from the store; a namespace ignores those it did not ask for."""
        for namespace in self._namespaces.values():
            self.submit(namespace, PayloadsLoaded(payloads))

    def clock_moved(self) -> None:
        """Act on what has become due, and set the timer by the new time: it runs in real time."""
        self.stop()
        self.tick()

    def tick(self) -> None:
        """Act on whatever is due, for every namespace."""
        for namespace in self._namespaces.values():
            self.submit(namespace, Tick())

    async def ask(self, namespace: Namespace, build: Callable[[Peer, object], Command]) -> object:
        """Run a request command and wait for its answer; raises its refusal."""
        asker = _Asker(self._loop.create_future())
        self._asking[asker] = None
        try:
            self.submit(namespace, build(asker, asker))
            return await asker.answer
        finally:
            self._asking.pop(asker, None)

    def release(self, effects: list[Effect]) -> None:
        """Hand durable effects to their peers, in order, and write once per connection."""
        for effect in effects:
            if isinstance(effect, PayloadsNeeded):
                self._read_payloads(effect.payload_ids)
            else:
                try:
                    effect.to.receive(effect)
                except Exception:
                    # One peer's trouble is not another's: what is durable stays so, and its
                    # connection finds out for itself.
                    log.exception("effect.failed", effect=type(effect).__name__)
        self._flush()

    def suspend(self) -> None:
        """Run nothing more; what has been run may still be on its way into the store."""
        self._suspended = True

    def drop(self, reason: str) -> None:
        """What has not been run never will be: the namespaces it was asked of are going. Those who
        still want it ask again."""
        self._inbox = []
        for asker in self._asking:
            asker.refuse(ServerBusy(reason))

    def resume(self) -> None:
        """Go on, with the new namespaces."""
        self._suspended = False
        self.tick()

    def stop(self) -> None:
        """No more timers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._scheduled = False
        inbox = self._inbox
        if inbox and not self._suspended:
            self._inbox = []
            try:
                self._hand_over(self._turn(inbox))
                self._arm()
            except Exception as error:
                # A turn half run, or run and not handed over: memory can no longer be trusted,
                # what is stored can.
                log.exception("turn.failed")
                self._failed(error)
                return
        self._flush()

    def _turn(self, inbox: list[tuple[Namespace, Command]]) -> Turn:
        now_ms = self._clock.now_ms()
        turn = Turn()
        active: dict[Namespace, None] = {}
        for namespace, command in inbox:
            namespace.apply(command, now_ms, turn)
            active[namespace] = None
        for namespace in active:
            namespace.dispatch(now_ms, turn)
        return turn

    def _hand_over(self, turn: Turn) -> None:
        if self._committer is None:
            return
        if turn:
            self._committer.submit(turn)
        if self._tick_is_new:
            self._tick_is_new = False
            self._tick_turns = self._committer.submitted

    def _flush(self) -> None:
        while self._touched:
            connection, _ = self._touched.popitem()
            try:
                connection.flush()
            except Exception:
                # A bug on one connection ends that one; the others get their answers.
                log.exception("flush.failed")
                connection.abort()

    def _arm(self) -> None:
        """Keep one timer on the earliest deadline of all namespaces."""
        earliest_ms = 0
        for namespace in self._namespaces.values():
            deadline_ms = namespace.next_deadline_ms()
            if deadline_ms is not None and (not earliest_ms or deadline_ms < earliest_ms):
                earliest_ms = deadline_ms
        if self._timer is not None:
            if not earliest_ms or self._timer_at_ms <= earliest_ms:
                return  # it fires early, finds nothing due and is set anew: cheaper than moving it
            self._timer.cancel()
            self._timer = None
        if earliest_ms:
            self._timer_at_ms = earliest_ms
            delay_s = max(0.0, (earliest_ms - self._clock.now_ms()) / 1000)
            self._timer = self._loop.call_later(min(delay_s, MAX_TIMER_S), self._due)

    def _due(self) -> None:
        # What becomes due at once may be a million messages; they are activated in parts. The next
        # part waits until the one before is durable, so that they do not pile up in front of the
        # store. It does not wait for an idle store: time goes on under any load.
        if self._committer is not None and not self._committer.has_released(self._tick_turns):
            self._timer = self._loop.call_later(COMMIT_POLL_S, self._due)
            return
        self._timer = None
        self._tick_is_new = True
        self.tick()


class _Asker:
    """The peer of one awaited request."""

    __slots__ = ("answer",)

    def __init__(self, answer: asyncio.Future[object]) -> None:
        self.answer = answer

    def refuse(self, error: BrokerError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def receive(self, effect: Effect) -> None:
        if not isinstance(effect, Reply) or self.answer.done():
            return
        if effect.error is not None:
            self.answer.set_exception(effect.error)
        else:
            self.answer.set_result(effect.value)
