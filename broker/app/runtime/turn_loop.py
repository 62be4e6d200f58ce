"""Runs commands in turns, one turn per pass of the event loop.

Sockets, timers and HTTP requests submit commands, and only this module runs them. The records of a turn go to
the committer; its effects leave once what they depend on is durable. Each connection with output is
flushed once. A turn ends after some milliseconds; the remaining commands run in the next turn, in order. A
command with much work runs in parts (`unfinished_commands.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import structlog

from broker.app.runtime.awaited_request import AwaitedRequest, refuse
from broker.app.runtime.clock import timer_delay_s
from broker.app.runtime.connection_output import ConnectionOutput
from broker.app.runtime.effect_release import WAITING_FEW, EffectRelease
from broker.app.runtime.held_commands import HeldNamespaces
from broker.app.runtime.rule_compiler import HAVE_RULES
from broker.app.runtime.unawaited_commands import UNAWAITED_S, is_unawaited
from broker.app.runtime.unfinished_commands import UnfinishedCommands
from broker.core.contract.commands import PayloadsLoaded, Tick
from broker.core.contract.effects import Reply
from broker.core.contract.errors import ServerBusy
from broker.core.contract.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from broker.app.runtime.clock import Clock
    from broker.app.runtime.committer import Committer
    from broker.app.runtime.connection_output import OutputConnection
    from broker.app.runtime.core_observer import HttpPeer
    from broker.app.runtime.rule_compiler import RuleCompiler
    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect, Peer
    from broker.core.namespace import Namespace

log = structlog.get_logger("peeklock.turn")

TURN_S = 0.005
"""After so long a turn ends, between two commands, so that sockets are read and written."""

GATHERED_MAX = 64
"""So many commands are enough for a turn."""

RELEASE_POLL_S = 0.01
"""How soon to check again if effects may be released."""

COMMIT_POLL_S = 0.002
"""How soon to check again if something is due during a commit."""

REPLACED_TEXT = (
    "The broker started again, or the namespace was replaced or deleted; try again at once."
)
"""The refusal of a command whose namespace does not exist any more."""


class TurnLoop:
    """Runs all commands of all namespaces, in order."""

    def __init__(
        self,
        namespaces: Mapping[str, Namespace],
        clock: Clock,
        read_payloads: Callable[[Sequence[int]], None],
        failed: Callable[[Exception], None],
        rule_compiler: RuleCompiler | None = None,
        peer_failed: Callable[[Peer], None] = lambda _: None,
        may_release: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_release = may_release
        """Whether this process certainly owns its store. Asked again if effects are released later than their turn."""
        self._rule_compiler = rule_compiler
        self._namespaces = namespaces
        self._clock = clock
        self._stopwatch_s = clock.stopwatch_s
        self._failed = failed
        self._committer: Committer | None = None
        self._inbox: deque[tuple[Namespace, Command]] = deque()
        self._parts = UnfinishedCommands(clock.stopwatch_s)
        self._unfinished = self._parts.by_peer
        """The same dict, because each command looks at it."""
        self.held = HeldNamespaces(self._inbox, self._unfinished, self.submit)
        """Namespaces that must not change now, and the commands that wait for them."""
        self._must_run = False
        """Somebody waits for a command in the inbox, so it runs in the next pass of the event loop."""
        self._unawaited_timer: asyncio.TimerHandle | None = None
        """Ends the wait of commands that nobody waits for."""
        self._output = ConnectionOutput()
        self._is_prepared = False
        """The effects of a turn are given to their peers, and the turn is being committed."""
        self._loop = asyncio.get_running_loop()
        self._effects = EffectRelease(self._stopwatch_s, read_payloads, peer_failed)
        self._all_released = asyncio.Event()
        self._all_released.set()
        self._scheduled = False
        self._gathered_count = 0
        """How many commands there were when the sockets were looked at again before a turn."""
        self._suspended = False
        self._asking: dict[AwaitedRequest, None] = {}
        self.http_peers: set[HttpPeer] = set()
        """HTTP requests that have links. No connection ends with them."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._tick_turns = 0
        """How many turns had been submitted after the tick of the last timer."""
        self._tick_is_new = False
        self.after_turn: Callable[[Turn], None] | None = None
        """Called after each turn has run, before it is durable, while somebody waits for a change."""

    def attach(self, committer: Committer) -> None:
        """Sets the committer, which releases effects through this loop."""
        self._committer = committer
        self._parts.attach(committer)

    def submit(self, namespace: Namespace, command: Command) -> None:
        """Runs a command in the next turn, which may be some milliseconds later if nobody waits for the command. If its
        rules are long, they are compiled first, and the command runs in a turn after that."""
        if type(command) in HAVE_RULES and self._compile(namespace, command):
            return
        self._inbox.append((namespace, command))
        if not self._must_run and is_unawaited(command):
            if self._unawaited_timer is None:
                self._unawaited_timer = self._loop.call_later(UNAWAITED_S, self._run_unawaited)
            return
        self._must_run = True
        self._schedule()

    def _run_unawaited(self) -> None:
        self._unawaited_timer = None
        if self._inbox:
            self._must_run = True
            self._schedule()

    def run_waiting(self) -> None:
        """Runs the commands that have come so far, before the clock is moved, a namespace is copied or the broker
        stops. Takes as many turns as they need. Parts of commands with much work may remain."""
        while self._inbox and not self._suspended:
            self._must_run = True
            self._run()

    def hold(self, namespace: Namespace) -> None:
        """Lets the next commands of a namespace wait, see `HeldNamespaces`."""
        self.run_waiting()
        self.held.hold(namespace)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run_or_gather)

    def _compile(self, namespace: Namespace, command: Command) -> bool:
        """Returns whether the command waits until its rules are compiled."""

        def run(compiled: Command) -> None:
            if self._is_current(namespace):
                self.submit(namespace, compiled)
            else:
                refuse(compiled, REPLACED_TEXT)

        return self._rule_compiler is not None and self._rule_compiler.start(command, run)

    def touch(self, connection: OutputConnection) -> None:
        """Flushes this connection at the end of the next turn."""
        self._output.touch(connection)
        self._schedule()

    def forget(self, connection: OutputConnection) -> None:
        """Removes a closed connection."""
        self._output.forget(connection)

    def payloads_loaded(self, payloads: Mapping[int, tuple[bytes, bytes]]) -> None:
        """Passes bodies from the store to the namespaces that wait for some. A namespace ignores those it did
        not request."""
        for namespace in self._namespaces.values():
            if namespace.awaits_bodies:
                self.submit(namespace, PayloadsLoaded(payloads))

    def clock_moved(self) -> None:
        """Runs what is due now and sets the timer again, because timers run in real time."""
        self.stop()
        self.tick()

    def tick(self) -> None:
        """Runs everything that is due, in every namespace."""
        for namespace in self._namespaces.values():
            if namespace not in self.held:
                self.submit(namespace, Tick())

    async def commit(self, turn: Turn) -> None:
        """Commits a turn that no command has made, and waits until it is durable. Raises `ServerBusy` if the broker
        starts again from its store instead."""
        assert self._committer is not None
        asker = AwaitedRequest(self._loop.create_future())
        self._asking[asker] = None
        turn.effects.append(Reply(asker, asker))
        try:
            self._committer.submit(turn)
            await asker.answer
        finally:
            self._asking.pop(asker, None)
        if self.after_turn is not None:
            self.after_turn(turn)  # it may have deleted or replaced a namespace

    async def ask(self, namespace: Namespace, build: Callable[[Peer, object], Command]) -> object:
        """Runs a request command and returns its answer. Raises its error."""
        asker = AwaitedRequest(self._loop.create_future())
        self._asking[asker] = None
        try:
            self.submit(namespace, build(asker, asker))
            return await asker.answer
        finally:
            self._asking.pop(asker, None)

    def release(self, effects: list[Effect]) -> None:
        """Gives durable effects to their peers, in the order of each connection, and flushes each connection
        once. If there are many effects, some follow in the next passes of the event loop."""
        self._is_prepared = False
        self._send_to_peers(effects)
        if not self._effects.is_done and self._all_released.is_set():
            self._all_released.clear()
            self._loop.call_soon(self._release_more)
        self._output.flush()  # what the effects have touched, so that it needs no pass of its own
        if self._must_run or self._unfinished:
            self._schedule()  # effects may submit commands, and the store has capacity again

    def prepare(self, turn: Turn) -> None:
        """Gives the effects of a turn to its AMQP clients while the turn is being committed. Their frames are built, and
        written by the next `release`. Does nothing if one of the effects is for somebody else, who would act on it."""
        if not self._effects.is_done:
            return
        for effect in turn.effects:
            if not hasattr(getattr(effect, "to", None), "connection"):
                return
        self._is_prepared = True
        effects, turn.effects = turn.effects, []
        self._send_to_peers(effects)
        self._output.prepare()

    def drop_prepared(self) -> None:
        """A turn could not be committed. If it was prepared, ends the connections whose output may say that it was."""
        if self._is_prepared:
            self._is_prepared = False
            self._effects.drop()
            self._output.abort()

    def _send_to_peers(self, effects: list[Effect]) -> None:
        is_scheduled, self._scheduled = self._scheduled, True  # the caller writes the output
        try:
            self._effects.release(effects)
        finally:
            self._scheduled = is_scheduled

    @property
    def is_behind(self) -> bool:
        """Whether so many answers wait that clients with many requests should wait for them."""
        return self._effects.waiting_count > WAITING_FEW

    async def settle(self) -> None:
        """Waits until all released effects are given to their peers."""
        await self._all_released.wait()

    def _release_more(self) -> None:
        if not (self._effects.is_done or self._may_release()):
            self._loop.call_later(RELEASE_POLL_S, self._release_more)
            return
        self._effects.continue_release()
        if self._effects.is_done:
            self._all_released.set()
        else:
            self._loop.call_soon(self._release_more)
        self._output.flush()

    def suspend(self) -> None:
        """Runs no more commands. Turns that have run may still be committed."""
        self._suspended = True

    def drop(self, reason: str) -> None:
        """Drops all commands that have not run, because their namespaces are replaced or closed. Requests are
        refused with `ServerBusy`, and clients retry them."""
        self._inbox.clear()
        self._must_run = False
        self._unfinished.clear()
        self.held.clear()
        for peer in (*self._asking, *self.http_peers):
            peer.refuse(ServerBusy(reason))

    def drop_effects(self) -> None:
        """Drops effects that are not given to their peers yet. The connections of these peers are closed."""
        self._effects.drop()

    def resume(self) -> None:
        """Runs commands again, in the new namespaces."""
        self._suspended = False
        self.tick()

    def stop(self) -> None:
        """Cancels the timer for what becomes due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_or_gather(self) -> None:
        """Runs a turn, or looks at the sockets once more before it. If several commands came with the last look, more have
        probably come since then, and a commit for them costs as much as many looks."""
        count = len(self._inbox)
        if (
            self._must_run
            and self._gathered_count < count < GATHERED_MAX
            and count > 1
            and self._committer is not None
            and self._committer.takes_time
        ):
            self._gathered_count = count
            self._loop.call_soon(self._run_or_gather)
        else:
            self._run()

    def _run(self) -> None:
        self._scheduled = False
        self._gathered_count = 0
        if (self._must_run or self._unfinished) and not self._suspended:
            self._must_run = False
            try:
                active: dict[Namespace, None] = {}
                began_s = self._stopwatch_s()
                self._submit_turn(self._turn(active, began_s))
                if self._unfinished and self._parts.may_continue and self._parts.has_time(began_s):
                    self._submit_parts(active)
                self._set_timer(active)
            except Exception as error:
                # The turn ran in part, or was not submitted: memory may be wrong, the store is right.
                log.exception("turn.failed")
                self._failed(error)
                return
            if self._must_run or (
                self._unfinished and self._parts.may_continue and not self._parts.store_is_loaded
            ):
                self._schedule()
        self._output.flush()

    def _turn(self, active: dict[Namespace, None], began_s: float) -> Turn:
        """Runs commands. Adds the namespaces in which some ran."""
        ends_s = began_s + TURN_S
        now_ms = self._clock.now_ms()
        turn = Turn()
        inbox, held, namespaces = self._inbox, self.held.by_namespace, self._namespaces
        while inbox:
            namespace, command = inbox.popleft()
            if namespaces.get(namespace.name) is not namespace:  # see `_is_current`
                refuse(command, REPLACED_TEXT)
                continue
            if held and self.held.takes(namespace, command):
                continue
            if self._unfinished and self._parts.waits(namespace, command, now_ms, turn):
                continue
            if parts := namespace.parts(command):
                self._parts.begin(namespace, parts)
                continue
            namespace.apply(command, now_ms, turn)
            active[namespace] = None
            if inbox and self._stopwatch_s() > ends_s:
                self._must_run = True
                break
        for namespace in active:
            namespace.dispatch(now_ms, turn)
        return turn

    def _submit_parts(self, active: dict[Namespace, None]) -> None:
        """Does parts of unfinished commands. They have a turn of their own, so that commands of other clients do not
        wait until the many records of a part are stored. Adds the namespaces in which parts were done."""
        turn = self._parts.run(self._clock.now_ms(), self._stopwatch_s() + TURN_S, active)
        self._submit_turn(turn)
        self._parts.submitted(turn)

    def _is_current(self, namespace: Namespace) -> bool:
        """Returns False for a namespace that was replaced by what the store holds. Records of changes to
        it would contradict the store."""
        return self._namespaces.get(namespace.name) is namespace

    def _submit_turn(self, turn: Turn) -> None:
        if self.after_turn is not None:
            self.after_turn(turn)
        if self._committer is None:
            return
        if turn:
            self._committer.submit(turn)
        if self._tick_is_new:
            self._tick_is_new = False
            self._tick_turns = self._committer.submitted

    def _set_timer(self, active: Iterable[Namespace]) -> None:
        """Sets one timer to the earliest deadline of all namespaces. Only those in which commands ran can have an
        earlier one than before. When the timer fires, the deadlines of all are looked at."""
        earliest_ms = 0
        for namespace in active:
            deadline_ms = namespace.next_deadline_ms()
            if deadline_ms is not None and (not earliest_ms or deadline_ms < earliest_ms):
                earliest_ms = deadline_ms
        if self._timer is not None:
            if not earliest_ms or self._timer_at_ms <= earliest_ms:
                return  # it fires early, finds nothing due and is set again: cheaper than moving it
            self._timer.cancel()
            self._timer = None
        if earliest_ms:
            self._timer_at_ms = earliest_ms
            delay_s = timer_delay_s(earliest_ms - self._clock.now_ms())
            self._timer = self._loop.call_later(delay_s, self._due)

    def _due(self) -> None:
        # A million messages may be due at once. They are activated in parts. Each part waits until the
        # part before it is durable, so that not too many records wait for the store. It does not wait
        # for an idle store: under constant load, the store is never idle.
        if self._committer is not None and not self._committer.has_released(self._tick_turns):
            self._timer = self._loop.call_later(COMMIT_POLL_S, self._due)
            return
        self._timer = None
        self._tick_is_new = True
        now_ms = self._clock.now_ms()
        later: list[Namespace] = []
        for namespace in self._namespaces.values():
            deadline_ms = namespace.next_deadline_ms()
            if deadline_ms is None or namespace in self.held:
                continue
            if deadline_ms <= now_ms:
                self.submit(namespace, Tick())
            else:
                later.append(namespace)
        self._set_timer(later)
