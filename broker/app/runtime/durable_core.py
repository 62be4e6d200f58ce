"""The namespaces in memory, the store, and the turns between them.

Restores the namespaces at start, reads bodies from the store, handles a full disk, and restores the
namespaces again if memory may be wrong. Effects are released only after their records are stored.
"""

from __future__ import annotations

import asyncio
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import structlog

from broker.app.runtime import undeclared_entities
from broker.app.runtime.committer import Committer
from broker.app.runtime.rule_compiler import RuleCompiler
from broker.app.runtime.turn_loop import TurnLoop
from broker.core.contract.errors import ServerBusy
from broker.core.contract.turn import Turn
from broker.core.messages.identifiers import MessageIds, lock_tokens
from broker.core.namespace import Namespace
from protocol.codec import Reader
from storage.contract import StorageError, StorageFull
from storage.urls import store_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.app.runtime.clock import Clock
    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from broker.core.contract.errors import BrokerError
    from config.files.topology import Topology
    from config.settings.settings import Settings
    from storage.contract import Store

log = structlog.get_logger("peeklock.core")

RESTARTING_TEXT = "The broker is starting again; try again at once."
FAILED_RESTARTS_MAX = 5
"""After so many restorations without a released turn between them, the process stops."""
FULL_DISK_FIX = "Receive messages, or free space on it; sends are refused until then."


class CoreObserver(Protocol):
    """Called about events of the core."""

    def released(self, turn: Turn) -> None:
        """A turn is durable, and its effects are released."""

    def committed(self, seconds: float, records: int, *, inline: bool) -> None:
        """A commit is done, inline on the event loop or in the commit thread."""

    def restored_from_store(self, reason: str) -> None:
        """The namespaces are replaced by what the store holds. Existing links are invalid."""

    def failed(self, error: Exception) -> None:
        """The store failed, and the process must stop."""


class DurableCore:
    """Takes commands, and releases their effects once they are durable."""

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
        self._has_disk_space = True
        self._restarting: asyncio.Task[None] | None = None
        self._restoring = False
        self._failed_restarts = 0
        """Restorations since a turn was last released."""
        self.namespaces: dict[str, Namespace] = {}
        self.default_namespace = next(iter(topology.namespaces))
        self._rule_compiler = RuleCompiler(settings.limits)
        self.turns = TurnLoop(
            self.namespaces,
            clock,
            self._read_payloads,
            self._restart_from_store,
            self._rule_compiler,
        )
        self._committer = Committer(
            self._store, self._release, self._commit_failed, observer.committed, clock.stopwatch_s
        )
        self.turns.attach(self._committer)

    # --- start and stop ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Opens the store. Raises `StoreUnusable`."""
        await asyncio.get_running_loop().run_in_executor(self._reads, self._store.open)

    async def begin(self) -> None:
        """Restores the namespaces from the store, and stores what the configuration declares."""
        await self._restore()
        turn = Turn()
        undeclared_entities.handle_undeclared_entities(
            self.namespaces,
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

    async def settle(self) -> None:
        """Waits until all commands so far are durable and answered."""
        if self._restarting is not None:
            await self._restarting
        await self._settle()

    async def _settle(self) -> None:
        await self._committer.settle()
        await self.turns.settle()

    async def close(self) -> None:
        """Commits what waits for the store, and closes the store. Commands that have not run are dropped;
        they were not answered."""
        self.turns.stop()
        self.turns.suspend()
        await self._committer.settle()
        self.turns.drop("The broker is stopping.")
        self._committer.close()
        self._reads.shutdown(wait=True)
        self._rule_compiler.close()
        self._store.close()

    @property
    def is_serving(self) -> bool:
        """Whether commands are run; not while the namespaces are restored from the store."""
        return self._restarting is None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for the store."""
        return self._committer.idle

    @property
    def turn_count(self) -> int:
        """How many turns were submitted since the start."""
        return self._committer.submitted

    # --- commands --------------------------------------------------------------------------------

    def enter(self, name: str) -> Callable[[Command], None]:
        """Returns a function that submits commands to a namespace."""
        return functools.partial(self.turns.submit, self.namespaces[name])

    def has_entity(self, name: str, path: str) -> bool:
        """Returns whether a namespace has an entity with this path or below it."""
        namespace = self.namespaces.get(name)
        return namespace is not None and namespace.has_entity(path)

    async def ask(self, name: str, build: Callable[[Peer, object], Command]) -> object:
        """Runs a request command and returns its answer. Raises its error."""
        return await self.turns.ask(self.namespaces[name], build)

    async def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """Returns bodies and annotations from the store. Those of deleted messages are missing."""
        if not self._store.blocking:
            return self._store.read_payloads(payload_ids)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reads, self._store.read_payloads, payload_ids)

    # --- memory and store ----------------------------------------------------------------------

    async def _restore(self) -> None:
        """Replaces the namespaces by what the store holds, then stores the declared topology.

        A thread reads the store, so that the broker answers probes and refuses clients meanwhile. Raises the
        error of the store.
        """
        self._restoring = True
        try:
            loop = asyncio.get_running_loop()
            restored = await loop.run_in_executor(self._reads, self._restored_namespaces)
            self.turns.drop(
                RESTARTING_TEXT
            )  # commands that came meanwhile were for the old namespaces
            self.namespaces.clear()
            self.namespaces.update(restored)
            now_ms = self._clock.now_ms()
            turn = Turn()
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

    def _restored_namespaces(self) -> dict[str, Namespace]:
        snapshot = self._store.load()
        ids = MessageIds()
        in_memory = self._store.keeps_payloads_in_memory
        budget_bytes = None if in_memory else self._settings.payload_memory_bytes
        names = {*self._topology.namespaces, *(entity.namespace for entity in snapshot.entities)}
        namespaces = {
            name: Namespace(
                name,
                reader=Reader(),
                new_lock_tokens=lock_tokens(self._random_bytes),
                limits=self._settings.limits,
                ids=ids,
                payload_budget_bytes=budget_bytes,
                hold_locks_after_connection_loss=self._settings.hold_locks_after_connection_loss,
                create_on_first_use=self._settings.create_on_first_use,
            )
            for name in (self.default_namespace, *sorted(names - {self.default_namespace}))
        }
        Namespace.restore_all(namespaces, snapshot, self._clock.now_ms())
        return namespaces

    def _release(self, turn: Turn) -> None:
        if not self._restoring:
            self._failed_restarts = 0
        self.turns.release(turn.effects)
        self._observer.released(turn)

    def _read_payloads(self, payload_ids: Sequence[int]) -> None:
        if not self._store.blocking:
            self.turns.payloads_loaded(self._store.read_payloads(payload_ids))
            return
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._reads, self._store.read_payloads, payload_ids)
        reading.add_done_callback(
            lambda done: (
                self._stop_process(StorageError(str(done.exception())))
                if done.exception()
                else self.turns.payloads_loaded(done.result())
            )
        )

    # --- failures --------------------------------------------------------------------

    def _commit_failed(self, error: Exception) -> None:
        """If the disk is full, clients can still receive, which frees space. Any other failure stops the process."""
        if self._restoring:
            return  # `_restore` raises it
        if isinstance(error, StorageFull):
            self._restart_from_store(error)
        else:
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
            log.error("starting_again", reason=str(error))
            self.turns.suspend()
            self._observer.restored_from_store(str(error))
            loop = asyncio.get_running_loop()
            self._restarting = loop.create_task(self._restore_and_resume(str(error)))

    async def _restore_and_resume(self, reason: str) -> None:
        try:
            await self._settle()  # what is being written becomes durable
            self.turns.drop(RESTARTING_TEXT)
            await self._restore()
            self._has_disk_space = True
            self.check_disk_space()
        except Exception as error:
            # Without the store nothing can be served.
            log.exception("start_again.failed")
            self._stop_process(error)
            return
        self._observer.restored_from_store(
            reason
        )  # clients that connected meanwhile attached to the old namespaces
        self._restarting = None
        self.turns.resume()

    def check_disk_space(self) -> None:
        """Refuses sends while the disk is nearly full. Clients may retry."""
        has_room = self._store.has_room
        if has_room == self._has_disk_space:
            return
        self._has_disk_space = has_room
        refusal: BrokerError | None = None
        if has_room:
            log.info("storage.has_room", storage=self._settings.storage)
        else:
            log.error("storage.full", storage=self._settings.storage, fix=FULL_DISK_FIX)
            refusal = ServerBusy(f"The broker's disk is full. {FULL_DISK_FIX}")
        for namespace in self.namespaces.values():
            namespace.refuse_sends(refusal)
        if has_room:
            self.turns.tick()
