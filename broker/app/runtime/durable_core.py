"""The namespaces in memory, the store, and the turns between them.

Restores the namespaces at start, handles a full disk, and restores the namespaces again if memory may be wrong. Effects
are released only after what they depend on is stored. If several processes share the store, the namespaces are restored
when this one owns it, and commands run only while it does.
"""

from __future__ import annotations

import asyncio
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

from broker.app.runtime import undeclared_entities
from broker.app.runtime.committer import Committer
from broker.app.runtime.core_observer import HttpPeer
from broker.app.runtime.disk_space import DiskSpace
from broker.app.runtime.garbage_collection import collect_replaced
from broker.app.runtime.history import Histories
from broker.app.runtime.namespace_registry import NamespaceRegistry
from broker.app.runtime.payload_reads import PayloadReads
from broker.app.runtime.restored_namespaces import restored_namespaces
from broker.app.runtime.rule_compiler import RuleCompiler
from broker.app.runtime.standby import Standby
from broker.app.runtime.turn_loop import TurnLoop
from broker.core.contract.commands import Tick
from broker.core.contract.errors import AnswerFailed, NamespaceNotFound, ServerBusy
from broker.core.contract.turn import Turn
from broker.core.messages.identifiers import lock_tokens
from broker.core.namespace import Namespace
from protocol.codec import Reader
from storage.contract import StorageFull
from storage.urls import store_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.app.runtime.clock import Clock
    from broker.app.runtime.core_observer import CoreObserver
    from broker.app.runtime.restored_namespaces import RestoredNamespaces
    from broker.app.runtime.standby import NotServing
    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from broker.core.messages.identifiers import MessageIds
    from broker.core.queues.backlog import Work
    from config.files.topology import Topology
    from config.settings.settings import Settings
    from storage.contract import StorageError, Store

log = structlog.get_logger("peeklock.core")

STOPPING_TEXT = "The broker is stopping."
RESTARTING_TEXT = "The broker is starting again; try again at once."
FAILED_RESTARTS_MAX = 5
"""After so many restorations, none of which was of use, the process stops: see `_has_recovered`."""
RECOVERED_S = 0.1
"""A turn that fails sooner after a restoration than this may fail after each one. A client needs longer to connect again
and repeat what made a turn fail: others are served meanwhile."""
ON_DEMAND_PAYLOAD_BYTES = 4 << 20
"""Memory for the bodies of waiting messages in a namespace that was created while the broker ran. There may be many
of them."""


class DurableCore:
    """Takes commands, and releases their effects once what they depend on is durable."""

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        clock: Clock,
        observer: CoreObserver,
        store: Store | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._clock = clock
        self._observer = observer
        self._store: Store = store_for(settings.storage) if store is None else store
        self._random_bytes = random_bytes
        self._reads = ThreadPoolExecutor(1, "read")
        self._standby = Standby(self._store, settings, clock, self._ownership_ended)
        self._restarting: asyncio.Task[None] | None = None
        self._restoring = False
        self._failed_restarts = 0
        self._restart_reason: Exception | None = None
        self._resumed_s = 0.0
        """When the last restoration had ended."""
        """Restorations since a turn was last released."""
        self.registry = NamespaceRegistry(topology.authorization_rules)
        self.namespaces = self.registry.live
        self.histories = Histories(
            settings.history,
            self.namespaces,
            self.registry.definitions,
            can_be_read=settings.serves_control_api,
        )
        self.default_namespace = next(iter(topology.namespaces))
        self._disk_space = DiskSpace(self._store, settings.storage, self._has_room_again)
        self._rule_compiler = RuleCompiler(settings.limits)
        self._payload_reads = PayloadReads(
            self._store,
            self._reads,
            self._payloads_loaded,
            self._store_failed,
        )
        self.turns = TurnLoop(
            self.namespaces,
            clock,
            self._payload_reads.begin,
            self._restart_from_store,
            self._rule_compiler,
            self._peer_failed,
            lambda: self._standby.is_certain,
        )
        self._committer = Committer(
            self._store,
            self._release,
            self.turns.release,
            self._commit_failed,
            observer.committed,
            clock.stopwatch_s,
            self._standby.ownership,
            preparation=self.turns,
        )
        self.turns.attach(self._committer)

    # --- start and stop ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Opens the store. Waits for a database that cannot be reached. Raises `StoreUnusable`, or `StoreUnavailable`
        after the time in the settings."""
        await self._standby.open(self._open)

    async def _open(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._reads, self._store.open)

    async def begin(self) -> None:
        """Restores the namespaces from the store, and stores what the configuration declares. If another process owns
        the store, waits until this one does."""
        await self._standby.load(self._begin)
        self._standby.not_serving = None

    async def _begin(self) -> None:
        await self._restore(keeps_ephemeral=False)
        turn = Turn()
        undeclared_entities.handle_undeclared_entities(
            {
                name: namespace
                for name, namespace in self.namespaces.items()
                if name not in self.registry.definitions
            },
            self._topology,
            self._settings.undeclared_entities,
            self._clock.now_ms(),
            turn,
        )
        if turn:
            self._committer.submit(turn)
        self.turns.tick()
        await self._committer.settle()
        if self._committer.failure is not None:
            raise self._committer.failure
        await self._disk_space.begin_again()

    async def settle(self) -> None:
        """Waits until all commands so far are durable and answered."""
        if self._restarting is not None:
            if self._standby.not_serving is not None:
                self._restarting.cancel()  # it may wait for the other process for ever
            await asyncio.wait([self._restarting])
        await self._settle()

    async def _settle(self) -> None:
        self.turns.run_waiting()
        await self._committer.settle()
        await self.turns.settle()

    async def finish_postponed(self) -> None:
        """Waits until all turns so far are durable, and the store has finished what it has postponed: then a copy of
        its file has all of it. Raises `ServerBusy` if the store fails."""
        self.turns.run_waiting()
        if not await self._committer.finish():
            raise ServerBusy("A commit to the broker's store failed; the log says why. Try again.")

    async def hand_over(self) -> None:
        """Commits what has run, and lets another process own the store. Commands that have not run are dropped."""
        if self._standby.ownership is None or not self._standby.ownership.is_held:
            return
        self.turns.stop()
        self.turns.suspend()
        await self._settle()
        self.turns.drop(STOPPING_TEXT)
        await self._standby.hand_over()

    async def close(self) -> None:
        """Commits what waits for the store, and closes the store. Commands that have not run are dropped;
        they were not answered."""
        self.turns.stop()
        self.turns.suspend()
        await self._committer.rest()
        self.turns.drop(STOPPING_TEXT)
        self._committer.close()
        self._standby.close()
        self._payload_reads.cancel()
        self._reads.shutdown(wait=True)
        self._rule_compiler.close()
        await self._disk_space.finish()
        self._disk_space.close()
        self._store.close()

    @property
    def is_serving(self) -> bool:
        """Whether commands are run; not while the namespaces are restored from the store."""
        return self._restarting is None and self._standby.not_serving is None

    @property
    def is_shared(self) -> bool:
        """Whether other processes can own the store."""
        return self._standby.ownership is not None

    @property
    def not_serving(self) -> NotServing | None:
        """Why no client is served: the broker starts, or another process owns its store. None if this process owns it."""
        return self._standby.not_serving

    @property
    def is_writing(self) -> bool:
        """Whether records wait for the store or are being written. The observer is called after that."""
        return self._committer.is_writing

    @property
    def turn_count(self) -> int:
        """How many turns were submitted since the start."""
        return self._committer.submitted

    # --- commands --------------------------------------------------------------------------------

    def enter(self, name: str) -> Callable[[Command], None]:
        """Returns a function that submits commands to a namespace. Raises `NamespaceNotFound`."""
        return functools.partial(self.turns.submit, self._namespace(name))

    def has_entity(self, name: str, path: str) -> bool:
        """Returns whether a namespace has an entity with this path or below it."""
        namespace = self.namespaces.get(name)
        return namespace is not None and namespace.has_entity(path)

    async def ask(self, name: str, build: Callable[[Peer, object], Command]) -> object:
        """Runs a request command and returns its answer. Raises its error."""
        return await self.turns.ask(self._namespace(name), build)

    def _namespace(self, name: str) -> Namespace:
        namespace = self.namespaces.get(name)
        if namespace is None:
            raise NamespaceNotFound(name)
        return namespace

    async def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """Returns bodies and annotations by payload id. Stops the process if the store fails."""
        return await self._payload_reads.read(payload_ids)

    # --- memory and store ----------------------------------------------------------------------

    def new_namespace(
        self, name: str, ids: MessageIds | None = None, *, in_memory: bool = False
    ) -> Namespace:
        """Returns an empty namespace. `in_memory` keeps all bodies in memory, because the store does not get them."""
        settings = self._settings
        in_memory = in_memory or self._store.keeps_payloads_in_memory
        budget_bytes: int = settings.payload_memory_bytes
        if name not in self._topology.namespaces:
            budget_bytes = min(budget_bytes, ON_DEMAND_PAYLOAD_BYTES)
        return Namespace(
            name,
            reader=Reader(),
            new_lock_tokens=lock_tokens(self._random_bytes),
            limits=settings.limits,
            ids=self.registry.ids if ids is None else ids,
            payload_budget_bytes=None if in_memory else budget_bytes,
            hold_locks_after_connection_loss=settings.hold_locks_after_connection_loss,
            create_on_first_use=settings.create_on_first_use,
            azure_limits=settings.azure_limits,
            room=None if in_memory else self._disk_space.room,
        )

    def added(self, namespace: Namespace) -> None:
        """A namespace was added while the broker runs. Does what is due in it."""
        self.histories.attach(namespace)
        self.turns.submit(namespace, Tick())

    def removed(self, name: str) -> None:
        """A namespace was deleted while the broker runs."""
        self.histories.forget(name)

    def do_in_background(self, works: Sequence[Work]) -> None:
        """Does work of namespaces that are closed, in parts."""
        if works:
            default = self.namespaces[self.default_namespace]
            for work in works:
                default.add_background_work(work)
            self.turns.submit(default, Tick())

    @property
    def keeps_payloads_in_memory(self) -> bool:
        """Whether the store is in memory."""
        return self._store.keeps_payloads_in_memory

    async def _restore(self, *, keeps_ephemeral: bool = True) -> None:
        """Replaces the namespaces by what the store holds, then stores the declared topology.

        A thread reads the store, so that the broker answers probes and refuses clients meanwhile. Raises the
        error of the store.
        """
        self._restoring = True
        try:
            loop = asyncio.get_running_loop()
            restore = functools.partial(self._restored_namespaces, keeps_ephemeral=keeps_ephemeral)
            await self._committer.rest()  # loading the store finishes what it has postponed, too
            restored = await loop.run_in_executor(self._reads, restore)
            self.turns.drop(
                RESTARTING_TEXT
            )  # commands that came meanwhile were for the old namespaces
            self.registry.replace(restored)
            self.histories.retain(self.namespaces)
            for namespace in self.namespaces.values():
                self.histories.attach(namespace)
            now_ms = self._clock.now_ms()
            turn = Turn()
            turn.records += restored.deletions
            for name, entities in self._topology.namespaces.items():
                self.namespaces[name].declare(entities, now_ms, turn)
            self._committer.restart()
            if turn:
                self._committer.submit(turn)
                await self._committer.settle()
            if self._committer.failure is not None:
                raise self._committer.failure
        finally:
            self._restoring = False

    async def _restore_again(self) -> None:
        await self._restore()
        await self._disk_space.begin_again()

    def _restored_namespaces(self, *, keeps_ephemeral: bool) -> RestoredNamespaces:
        return restored_namespaces(
            self._store.load(),
            self._topology.namespaces,
            self.default_namespace,
            self.new_namespace,
            self._clock.now_ms(),
            keeps_ephemeral=keeps_ephemeral,
        )

    def _release(self, turn: Turn) -> None:
        if self._failed_restarts and self._has_recovered:
            self._failed_restarts = 0
        if turn.unstored_bytes or self._disk_space.room.is_scarce:
            self._disk_space.stored(turn)
        self.turns.release(turn.effects)
        if turn.transitions:
            self.histories.publish(turn.transitions)
        self._observer.released(turn)

    def _payloads_loaded(self, payloads: Mapping[int, tuple[bytes, bytes]]) -> None:
        self.turns.payloads_loaded(payloads)

    def _peer_failed(self, peer: Peer) -> None:
        error = AnswerFailed("The broker failed while it answered. Connect again, and try again.")
        if hasattr(peer, "connection"):
            self._observer.peer_failed(peer, error)
        elif isinstance(peer, HttpPeer):
            peer.refuse(error)

    # --- failures --------------------------------------------------------------------

    def _commit_failed(self, error: Exception) -> None:
        """If the disk is full, clients can still receive, which frees space."""
        if self._restoring:
            return  # `_restore` raises it
        if isinstance(error, StorageFull):
            self._restart_from_store(error)
        else:
            self._store_failed(error)

    def _store_failed(self, error: Exception) -> None:
        """Stops the process, unless it can wait for a shared store."""
        if not self._standby.store_failed(error):
            self._stop_process(error)

    def _stop_process(self, error: Exception) -> None:
        """Runs nothing more, refuses waiting requests, and stops the process."""
        self.turns.suspend()
        self.turns.drop("The broker's store failed, and the broker stops.")
        self._observer.failed(error)

    def _restart_from_store(self, error: Exception) -> None:
        """Restores the namespaces from the store, because memory is ahead of it or wrong.

        No accepted operation is lost: what was not stored was not accepted. Clients reconnect.
        """
        if self._restarting is None:
            self._failed_restarts += 1
            if self._failed_restarts > FAILED_RESTARTS_MAX:
                self._stop_process(error)  # it would fail in the same way again and again
                return
            self._restart_reason = error
            log.error("starting_again", reason=str(error))
            self.turns.suspend()
            self._observer.restored_from_store(str(error))
            loop = asyncio.get_running_loop()
            self._restarting = loop.create_task(self._restore_and_resume(str(error)))

    async def _restore_and_resume(self, reason: str) -> None:
        try:
            await self._settle()  # what is being written becomes durable
            self.turns.drop(RESTARTING_TEXT)
            self._payload_reads.cancel()
            await self._standby.load(self._restore_again)
        except Exception as error:
            # Without the store nothing can be served.
            log.exception("start_again.failed")
            self._stop_process(error)
            return
        # Clients that connected meanwhile attached to the old namespaces.
        self._observer.restored_from_store(reason)
        collect_replaced()
        self._restarting = None
        self._resumed_s = self._clock.stopwatch_s()
        had_stopped, self._standby.not_serving = self._standby.not_serving is not None, None
        self.turns.resume()
        if had_stopped:
            self._observer.serving_again()

    @property
    def _has_recovered(self) -> bool:
        """Whether the last restoration was of use, if a turn can be released now. On a full disk every release frees
        space. A turn that fails may be due again after each restoration, and other turns are released before it."""
        if self._restoring:
            return False
        lasts_s = self._clock.stopwatch_s() - self._resumed_s
        return isinstance(self._restart_reason, StorageFull) or lasts_s >= RECOVERED_S

    def check_room(self, size_bytes: int) -> None:
        """Raises `ServerBusy` if the store has no room for messages of this size."""
        if self._disk_space.room.is_scarce:
            self._disk_space.room.check(size_bytes)

    def check_disk_space(self) -> None:
        """Refuses sends while the disk is nearly full. Clients may retry. Does not wait for the disk."""
        self._disk_space.check()

    def _has_room_again(self) -> None:
        for namespace in self.namespaces.values():
            namespace.retry_forwarding()
        self.turns.tick()

    def _ownership_ended(self, error: StorageError) -> None:
        """Releases nothing more, and restores the namespaces when this process owns the store again."""
        self.turns.suspend()
        self.turns.drop_effects()
        self._observer.stopped_serving(str(error))
        if self._restarting is None:
            loop = asyncio.get_running_loop()
            self._restarting = loop.create_task(self._restore_and_resume(str(error)))
