"""Creates and deletes namespaces while the broker runs, takes snapshots of them, and restores snapshots.

A namespace is copied in parts (`broker/core/namespace_copy.py`). Its commands wait meanwhile, so the copy shows one
moment; other namespaces are served between two parts. The last part is one commit, which makes the copy exist and,
where it replaces a namespace, ends the old one. Answers wait for that commit, as those of all commands do.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from broker.app.runtime.restored_namespaces import TakenSnapshot, size_bytes
from broker.core.contract.errors import (
    ArgumentError,
    BrokerError,
    NamespaceAlreadyExists,
    NamespaceNotFound,
    NamespaceRestored,
    NotAllowed,
    QuotaExceeded,
    ServerBusy,
    SnapshotAlreadyExists,
    SnapshotNotFound,
)
from broker.core.contract.records import NamespaceDeleted, NamespaceStored
from broker.core.contract.turn import Turn
from broker.core.entities.stored_definitions import namespace_to_json
from broker.core.namespace_copy import NamespaceCopy
from broker.core.operations.namespace_closing import UnstoredDeletion
from config.model.authorization_keys import derived_secondary_key
from config.model.definitions import AuthorizationRule
from config.model.names import namespace_name_error, snapshot_name_error
from config.model.namespaces import NamespaceDefinition, SnapshotDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from broker.app.runtime.clock import Clock
    from broker.app.runtime.durable_core import DurableCore
    from broker.core.namespace import Namespace
    from config.model.definitions import EntityDefinition
    from config.model.limits import Limits

PART_MESSAGES = 1_000
"""Messages that are copied at once: some five milliseconds."""
PART_ENTITIES = 50
PART_MESSAGE_IDS = 4_000
KEY_BYTES = 32
NAME_BYTES = 6
RESTARTED = "The broker has started again from its store meanwhile; try again."


class ConnectedClients(Protocol):
    """The AMQP clients of the broker."""

    def closer(self, namespace: str) -> Callable[[BrokerError], None]:
        """Returns a function that closes the connections that are in a namespace now."""


class NamespaceLifecycle:
    """Carries out the operations on whole namespaces."""

    def __init__(
        self,
        core: DurableCore,
        clock: Clock,
        limits: Limits,
        clients: ConnectedClients,
        random_bytes: Callable[[int], bytes],
        own_hosts: Collection[str] = (),
    ) -> None:
        self._core = core
        self._registry = core.registry
        self._clock = clock
        self._limits = limits
        self._clients = clients
        self._random_bytes = random_bytes
        self._own_hosts = own_hosts
        """Host names of the broker. A namespace of such a name would get the clients of the default namespace."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By the names of namespaces. A lock is kept as long as an operation has it or waits for it."""
        self._names_in_use: set[str] = set()
        """Names of namespaces that are being created."""

    # --- namespaces ----------------------------------------------------------------------------

    async def create(
        self,
        name: str | None,
        entities: Mapping[str, EntityDefinition],
        rules: Sequence[AuthorizationRule] = (),
        *,
        is_ephemeral: bool = False,
        snapshot: TakenSnapshot | None = None,
    ) -> str:
        """Creates a namespace with these entities, or with the content of a snapshot. Returns its name when it is
        durable. Raises `NamespaceAlreadyExists`, `QuotaExceeded` or `ArgumentError`."""
        name = self._new_name() if name is None else name.lower()
        self._check_new_name(name)
        key = base64.b64encode(self._random_bytes(KEY_BYTES)).decode()
        own_rule = AuthorizationRule(name, key, derived_secondary_key(name, key))
        if snapshot is not None:
            entities = {view.path: view.definition for view in snapshot.content.views()}
        definition = NamespaceDefinition(
            (own_rule, *rules), self._clock.now_ms(), dict(entities), is_ephemeral
        )
        self._names_in_use.add(name)
        try:
            turn = Turn()
            if snapshot is None:
                namespace = self._core.new_namespace(name)
                await self._declare(namespace, entities, turn)
            else:
                namespace = await self._branch(snapshot, name, turn)
            turn.records.append(NamespaceStored(name, namespace_to_json(definition)))
            self._registry.live[name] = namespace
            self._registry.define(name, definition)
            self._core.added(namespace)
            await self._core.turns.commit(turn)
        finally:
            self._names_in_use.discard(name)
        return name

    async def _declare(
        self, namespace: Namespace, entities: Mapping[str, EntityDefinition], turn: Turn
    ) -> None:
        """Creates the entities, of which there may be many."""
        restorations = self._registry.restorations
        left = list(entities.items())
        # Topics are declared before their subscriptions: see `Topology`.
        while left:
            part, left = left[:PART_ENTITIES], left[PART_ENTITIES:]
            namespace.declare(dict(part), self._clock.now_ms(), turn)
            if left:
                await asyncio.sleep(0)
                self._check_restorations(restorations)

    async def _branch(self, snapshot: TakenSnapshot, name: str, turn: Turn) -> Namespace:
        """Returns a namespace with the content of a snapshot. The turn gets the last part of it."""
        restorations = self._registry.restorations
        async with self._lock(snapshot.definition.namespace):
            self._check_restorations(restorations)
            self._check_taken(snapshot)
            namespace = self._core.new_namespace(name)
            self._set_clock(namespace, snapshot.definition)
            copying = await self._copy(snapshot.content, namespace)
            copying.finish(turn)
        return namespace

    def _new_name(self) -> str:
        return f"ns-{self._random_bytes(NAME_BYTES).hex()}"

    def _check_new_name(self, name: str) -> None:
        self._check_serving()
        if wrong := namespace_name_error(name, self._limits):
            raise ArgumentError(f"'{name}' cannot be the name of a namespace: {wrong}.")
        if name in self._own_hosts or _is_address(name):
            raise ArgumentError(
                f"'{name}' cannot be the name of a namespace: clients use it as the host name of the broker."
            )
        if name in self._registry.live or name in self._names_in_use:
            raise NamespaceAlreadyExists(name)
        most = self._limits.namespaces_max
        if len(self._registry.live.keys() | self._names_in_use) >= most:
            raise QuotaExceeded(f"The broker has {most} namespaces, which is the maximum.")

    async def delete(self, name: str) -> None:
        """Deletes a namespace with everything in it, and its snapshots. Its clients are disconnected."""
        async with self._lock(name):
            self._check_serving()
            namespace = self._namespace(name)
            if name not in self._registry.definitions:
                raise NotAllowed(
                    f"The namespace '{name}' is declared in the config file or is the default namespace; only "
                    "namespaces that this API has created can be deleted."
                )
            error = NamespaceNotFound(name)
            turn = Turn()
            with self._holding(namespace):
                close_clients = self._clients.closer(name)
                for snapshot in self.snapshots(name):
                    self._end_snapshot(snapshot, turn)
                works = namespace.close(error, turn)
                turn.records.append(NamespaceDeleted(name))
                self._registry.remove(name)
                self._core.removed(name)
                self._core.turns.held.drop(namespace, str(error))
            self._core.do_in_background(works)
            await self._core.turns.commit(turn)
            close_clients(error)

    # --- snapshots -----------------------------------------------------------------------------

    def snapshots(self, namespace: str) -> list[TakenSnapshot]:
        """Returns the snapshots of a namespace, ordered by name."""
        return [
            one
            for _, one in sorted(self._registry.snapshots.items())
            if one.definition.namespace == namespace
        ]

    def snapshot(self, namespace: str, name: str) -> TakenSnapshot:
        """Returns a snapshot. Raises `SnapshotNotFound`."""
        found = self._registry.snapshots.get(SnapshotDefinition(namespace, name).stored_name)
        if found is None:
            raise SnapshotNotFound(namespace, name)
        return found

    async def take_snapshot(
        self, namespace: str, name: str, *, is_ephemeral: bool, replace: bool = False
    ) -> TakenSnapshot:
        """Takes a snapshot. Returns it when it is durable. Raises `SnapshotAlreadyExists` if there is one of this name
        that it does not replace, `QuotaExceeded` or `ArgumentError`."""
        if wrong := snapshot_name_error(name, self._limits):
            raise ArgumentError(f"'{name}' cannot be the name of a snapshot: {wrong}.")
        async with self._lock(namespace):
            self._check_serving()
            original = self._namespace(namespace)
            taken_at_ms, ahead_ms, _ = self.clock_of(namespace)
            definition = SnapshotDefinition(namespace, name, taken_at_ms, ahead_ms, is_ephemeral)
            earlier = self._registry.snapshots.get(definition.stored_name)
            if earlier is not None and not replace:
                raise SnapshotAlreadyExists(namespace, name)
            self._check_snapshot_limits(original, earlier, is_ephemeral=is_ephemeral)
            content = self._core.new_namespace(definition.stored_name, in_memory=is_ephemeral)
            taken = TakenSnapshot(definition, content)
            turn = Turn()
            with self._holding(original):
                copying = await self._copy(original, content, is_stored=not is_ephemeral)
                copying.finish(turn)
            if is_ephemeral:
                turn = Turn()
            else:
                text = namespace_to_json(definition)
                turn.records.append(NamespaceStored(definition.stored_name, text))
            if earlier is not None:
                self._end_snapshot(earlier, turn, is_replaced=not is_ephemeral)
            self._registry.snapshots[definition.stored_name] = taken
            await self._core.turns.commit(turn)
        return taken

    async def delete_snapshot(self, namespace: str, name: str) -> None:
        """Deletes a snapshot. Raises `SnapshotNotFound`."""
        async with self._lock(namespace):
            self._check_serving()
            turn = Turn()
            self._end_snapshot(self.snapshot(namespace, name), turn)
            await self._core.turns.commit(turn)

    async def restore_snapshot(self, namespace: str, name: str) -> TakenSnapshot:
        """Replaces the content of a namespace by that of a snapshot. Clients are disconnected and connect again;
        what they were told before is true until then. Raises `SnapshotNotFound`."""
        async with self._lock(namespace):
            self._check_serving()
            original = self._namespace(namespace)
            snapshot = self.snapshot(namespace, name)
            restored = self._core.new_namespace(namespace)
            self._set_clock(restored, snapshot.definition)
            if original.clock.frozen_ms is not None:
                restored.clock.freeze(self._clock.now_ms())
            restorations = self._registry.restorations
            error = NamespaceRestored(namespace)
            turn = Turn()
            with self._holding(original):
                await self._core.settle()  # clients get the answers to what was done before
                self._check_restorations(restorations)
                copying = await self._copy(snapshot.content, restored)
                copying.finish(turn)
                close_clients = self._clients.closer(namespace)
                works = original.close(error, turn)
                _keep_counts(original, restored)
                self._registry.live[namespace] = restored
                self._core.added(restored)
                self._core.turns.held.move(original, restored, str(error))
            self._core.do_in_background(works)
            await self._core.turns.commit(turn)
            close_clients(error)
        return snapshot

    def _end_snapshot(
        self, snapshot: TakenSnapshot, turn: Turn, *, is_replaced: bool = False
    ) -> None:
        definition = snapshot.definition
        self._registry.snapshots.pop(definition.stored_name, None)
        error = NamespaceNotFound(definition.stored_name)
        if definition.is_ephemeral:
            works = snapshot.content.close(error, Turn())
            self._core.do_in_background([UnstoredDeletion(work) for work in works])
            return
        self._core.do_in_background(snapshot.content.close(error, turn))
        if not is_replaced:
            turn.records.append(NamespaceDeleted(definition.stored_name))

    def _check_snapshot_limits(
        self, original: Namespace, earlier: TakenSnapshot | None, *, is_ephemeral: bool
    ) -> None:
        others = [one for one in self._registry.snapshots.values() if one is not earlier]
        limits = self._limits
        if len(others) >= limits.snapshots_max:
            raise QuotaExceeded(
                f"The broker has {limits.snapshots_max} snapshots, which is the maximum; delete one."
            )
        in_memory = self._core.keeps_payloads_in_memory
        new_bytes = size_bytes(original)
        total_bytes = sum(one.size_bytes for one in others) + new_bytes
        in_memory_bytes = sum(
            one.size_bytes for one in others if in_memory or one.definition.is_ephemeral
        )
        if is_ephemeral or in_memory:
            in_memory_bytes += new_bytes
        for found, most in (
            (total_bytes, limits.snapshots_max_bytes),
            (in_memory_bytes, limits.snapshots_in_memory_max_bytes),
        ):
            if found > most:
                where = "" if most == limits.snapshots_max_bytes else " in memory"
                raise QuotaExceeded(
                    f"With this one, the snapshots{where} would have {found} bytes; the maximum is {most}. "
                    "Delete one."
                )

    def _check_taken(self, snapshot: TakenSnapshot) -> None:
        """Raises `SnapshotNotFound` if a snapshot was deleted or replaced meanwhile."""
        definition = snapshot.definition
        if self._registry.snapshots.get(definition.stored_name) is not snapshot:
            raise SnapshotNotFound(definition.namespace, definition.name)

    # --- clock ---------------------------------------------------------------------------------

    def clock_of(self, namespace: str) -> tuple[int, int, bool]:
        """Returns the time that the clock of a namespace shows, by how much it is ahead of the system clock, and
        whether it stands still."""
        clock = self._namespace(namespace).clock
        now_ms = clock.time_ms(self._clock.now_ms())
        is_frozen = clock.frozen_ms is not None or self._clock.is_frozen
        if is_frozen:
            return now_ms, now_ms - self._clock.real_ms(), True
        return now_ms, self._clock.ahead_ms + clock.offset_ms, False

    def advance_clock(self, namespace: str, amount_ms: int) -> None:
        """Moves the clock of one namespace ahead. What becomes due in it is done."""
        self._check_serving()
        self._core.turns.run_waiting()
        self._namespace(namespace).clock.advance(amount_ms)
        self._core.turns.clock_moved()

    def freeze_clock(self, namespace: str) -> None:
        """Stops the clock of one namespace."""
        self._check_serving()
        self._namespace(namespace).clock.freeze(self._clock.now_ms())

    def resume_clock(self, namespace: str) -> None:
        """Lets the clock of one namespace run again, from the time that it shows."""
        self._check_serving()
        self._namespace(namespace).clock.resume(self._clock.now_ms())
        self._core.turns.clock_moved()

    def _set_clock(self, namespace: Namespace, snapshot: SnapshotDefinition) -> None:
        """The clock is as far ahead of the system clock as it was when the snapshot was taken. Not more: clients
        compare the ends of locks with their own clocks."""
        namespace.clock.offset_ms = snapshot.clock_ahead_ms - self._clock.ahead_ms

    # --- one operation at a time ---------------------------------------------------------------

    def _lock(self, namespace: str) -> asyncio.Lock:
        """Returns the lock that lets operations on one namespace follow one another. What an operation knew before it
        waited for the lock may be wrong."""
        return self._locks.setdefault(namespace, asyncio.Lock())

    @contextmanager
    def _holding(self, namespace: Namespace) -> Iterator[None]:
        """Lets the commands of a namespace wait. They run afterwards, unless they were moved or dropped. Raises `ServerBusy`
        if the broker starts again because a command that came before has failed."""
        self._core.turns.hold(namespace)
        try:
            self._check_serving()
            yield
        finally:
            self._core.turns.held.release(namespace)

    # --- copying -------------------------------------------------------------------------------

    async def _copy(
        self, original: Namespace, copy: Namespace, *, is_stored: bool = True
    ) -> NamespaceCopy:
        """Copies a namespace, except for the last part, and stores the copy. Raises `ServerBusy` if the store has no room
        for it."""
        if is_stored:
            self._core.check_room(size_bytes(original))
        restorations = self._registry.restorations
        now_ms = copy.clock.time_ms(self._clock.now_ms())
        copying = NamespaceCopy(original, copy, now_ms)

        async def end_part(turn: Turn | None = None) -> None:
            if turn is not None and is_stored:
                await self._core.turns.commit(turn)
            else:
                await asyncio.sleep(0)
            self._check_restorations(restorations)

        while copying.copy_entities(PART_ENTITIES):
            await end_part()
        while messages := copying.next_messages(PART_MESSAGES):
            missing = [one.payload_id for one in messages if one.body is None]
            payloads = await self._core.read_payloads(missing)
            self._check_restorations(restorations)
            turn = Turn()
            copying.copy_messages(messages, payloads, turn)
            await end_part(turn)
        is_left = True
        while is_left:
            turn = Turn()
            is_left = copying.copy_message_ids(PART_MESSAGE_IDS, turn)
            if turn:
                await end_part(turn)
        return copying

    def _check_restorations(self, restorations: int) -> None:
        if self._registry.restorations != restorations or not self._core.is_serving:
            raise ServerBusy(RESTARTED)

    def _check_serving(self) -> None:
        if not self._core.is_serving:
            raise ServerBusy("The broker is starting again from its store; try again.")

    def _namespace(self, name: str) -> Namespace:
        namespace = self._registry.live.get(name)
        if namespace is None:
            raise NamespaceNotFound(name)
        return namespace


def _keep_counts(original: Namespace, restored: Namespace) -> None:
    """The counters of metrics only increase, also if the messages are those of an earlier time."""
    restored.counts.update(original.counts)
    before = {entity.path.lower(): entity for entity in original.entities()}
    for entity in restored.entities():
        if (earlier := before.get(entity.path.lower())) is not None:
            for queue, earlier_queue in zip(entity.queues, earlier.queues, strict=True):
                queue.counts.update(earlier_queue.counts)


def _is_address(name: str) -> bool:
    """Whether a name is an IPv4 address."""
    return "." in name and name.replace(".", "").isdigit()
