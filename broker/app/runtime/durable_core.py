"""The namespaces in memory, the store behind them, and the turns between: one durable whole.

Owns restoring at start, reading bodies back, a full disk, and starting again from the store when
memory can no longer be trusted. What it answers has been stored.
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
    from collections.abc import Callable, Sequence

    from broker.app.runtime.clock import Clock
    from broker.core.contract.commands import Command, Peer
    from broker.core.contract.errors import BrokerError
    from config.files.topology import Topology
    from config.settings.settings import Settings
    from storage.contract import Store

log = structlog.get_logger("peeklock.core")

RESTARTING_TEXT = "The broker is starting again; try again at once."
FAILED_RESTARTS_MAX = 5
"""A broker that starts again so often without getting a single turn done stops."""
FULL_DISK_FIX = "Receive messages, or free space on it; sends are refused until then."


class CoreObserver(Protocol):
    """Who wants to know what becomes of the core."""

    def released(self, turn: Turn) -> None:
        """Its effects are on their way to their peers, and all it rests on is durable."""

    def committed(self, seconds: float, records: int) -> None:
        """A commit took so long."""

    def restored_from_store(self, reason: str) -> None:
        """Memory is given up: whoever is connected holds nothing any more."""

    def failed(self, error: Exception) -> None:
        """The store, or this process, cannot go on."""


class DurableCore:
    """Commands in; effects out, once durable."""

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
        """How often it started again since a turn was last released."""
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
            self._store, self._release, self._commit_failed, observer.committed
        )
        self.turns.attach(self._committer)

    # --- life ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take the store. Raises `StoreUnusable`."""
        await asyncio.get_running_loop().run_in_executor(self._reads, self._store.open)

    async def begin(self) -> None:
        """Bring memory to what the store holds and the configuration declares, durably."""
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
        """Wait until everything asked so far is durable and answered."""
        if self._restarting is not None:
            await self._restarting
        await self._settle()

    async def _settle(self) -> None:
        await self._committer.settle()
        await self.turns.settle()

    async def close(self) -> None:
        """Give the store back. What came too late for it was not answered, so it may be dropped;
        what is on its way into the store gets there."""
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
        """False while memory is being restored from the store."""
        return self._restarting is None

    @property
    def is_idle(self) -> bool:
        """True when nothing waits for the store."""
        return self._committer.idle

    @property
    def turn_count(self) -> int:
        """How many turns there were since the start."""
        return self._committer.submitted

    # --- asking --------------------------------------------------------------------------------

    def enter(self, name: str) -> Callable[[Command], None]:
        """How commands reach a namespace."""
        return functools.partial(self.turns.submit, self.namespaces[name])

    def has_entity(self, name: str, path: str) -> bool:
        """Whether a link to this path of a namespace could find an entity there or below it."""
        namespace = self.namespaces.get(name)
        return namespace is not None and namespace.has_entity(path)

    async def ask(self, name: str, build: Callable[[Peer, object], Command]) -> object:
        """Run a request and wait for its answer; raises its refusal."""
        return await self.turns.ask(self.namespaces[name], build)

    # --- memory and store ----------------------------------------------------------------------

    async def _restore(self) -> None:
        """Replace the namespaces by what the store holds, then store the declared topology.

        The store is read in a thread of its own, so that a live broker goes on answering probes
        and telling its clients why they have to wait. Raises what keeps the store from it.
        """
        self._restoring = True
        try:
            loop = asyncio.get_running_loop()
            restored = await loop.run_in_executor(self._reads, self._restored_namespaces)
            self.turns.drop(RESTARTING_TEXT)  # what came meanwhile was for the old namespaces
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
                new_lock_token=lock_tokens(self._random_bytes),
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

    # --- when it goes wrong --------------------------------------------------------------------

    def _commit_failed(self, error: Exception) -> None:
        """With a full disk, clients can still make room by receiving; otherwise stop."""
        if self._restoring:
            return  # `_restore` raises it
        if isinstance(error, StorageFull):
            self._restart_from_store(error)
        else:
            self._stop_process(error)

    def _stop_process(self, error: Exception) -> None:
        """Answer nothing more, tell those who wait, and have the process stopped."""
        self.turns.suspend()
        self.turns.drop("The broker's store failed, and the broker stops.")
        self._observer.failed(error)

    def _restart_from_store(self, error: Exception) -> None:
        """Memory is ahead of the store, or wrong: begin anew from what is durable.

        Nothing is lost by it: what was not stored was not accepted, and clients reconnect.
        """
        if self._restarting is None:
            self._failed_restarts += 1
            if self._failed_restarts > FAILED_RESTARTS_MAX:
                self._stop_process(error)  # it would fail like this for ever, and serve nobody
                return
            log.error("starting_again", reason=str(error))
            self.turns.suspend()
            self._observer.restored_from_store(str(error))
            loop = asyncio.get_running_loop()
            self._restarting = loop.create_task(self._restore_and_resume(str(error)))

    async def _restore_and_resume(self, reason: str) -> None:
        try:
            await self._settle()  # what is being written still counts
            self.turns.drop(RESTARTING_TEXT)
            await self._restore()
            self._has_disk_space = True
            self.check_disk_space()
        except Exception as error:
            # Nothing can be served without the store, and nobody would ever be answered.
            log.exception("start_again.failed")
            self._stop_process(error)
            return
        self._observer.restored_from_store(
            reason
        )  # whoever came meanwhile came to the old namespaces
        self._restarting = None
        self.turns.resume()

    def check_disk_space(self) -> None:
        """Refuse sends while the store has no room to spare; the client may try again."""
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
