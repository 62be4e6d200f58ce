"""The operations on whole namespaces as the control API calls them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from broker.app.runtime.restored_namespaces import message_count
from broker.core.contract.errors import NamespaceNotFound
from protocol.http.control_services import ClockState, NamespaceView, SnapshotView

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from broker.app.runtime.durable_core import DurableCore
    from broker.app.runtime.namespace_lifecycle import NamespaceLifecycle
    from broker.app.runtime.restored_namespaces import TakenSnapshot
    from config.files.namespace_topology import NamespaceTopology

_T = TypeVar("_T")


class NamespaceReports(Protocol):
    """The reports of namespaces, which begin and end with them."""

    def began(self, name: str, event: str) -> None:
        """A namespace was created or restored."""

    async def deleting(self, name: str) -> None:
        """A namespace is about to be deleted."""

    def deleted(self, name: str) -> None:
        """A namespace was deleted."""


class NamespaceOperations:
    """Implements `NamespaceControl`."""

    def __init__(
        self,
        lifecycle: NamespaceLifecycle,
        core: DurableCore,
        reports: NamespaceReports,
        *,
        deleted: Callable[[str], None],
    ) -> None:
        """`deleted` is called with the name of a namespace that was deleted."""
        self._lifecycle = lifecycle
        self._registry = core.registry
        self._reports = reports
        self._deleted = deleted
        self._running: set[asyncio.Task[Any]] = set()

    async def _finish(self, operation: Coroutine[Any, Any, _T]) -> _T:
        """Carries out an operation to its end, even if the client that asked for it is gone: half of it would leave
        clients connected to a namespace that is replaced, or messages of a copy that is not used."""
        task = asyncio.get_running_loop().create_task(operation)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # the client gets it, or is gone

    async def create(
        self,
        name: str | None,
        topology: NamespaceTopology,
        *,
        is_ephemeral: bool,
        snapshot: tuple[str, str] | None,
    ) -> NamespaceView:
        """Creates a namespace."""
        created = await self._finish(
            self._lifecycle.create(
                name,
                topology.entities,
                topology.authorization_rules,
                is_ephemeral=is_ephemeral,
                snapshot=None if snapshot is None else self._lifecycle.snapshot(*snapshot),
            )
        )
        self._reports.began(created, "creation")
        return self.view(created)

    def views(self) -> list[NamespaceView]:
        """Returns all namespaces, the default namespace first."""
        snapshots = Counter(one.definition.namespace for one in self._registry.snapshots.values())
        return [self._view(name, snapshots[name]) for name in self._registry.live]

    def view(self, name: str) -> NamespaceView:
        """Returns one namespace."""
        return self._view(name, len(self._lifecycle.snapshots(name)))

    def _view(self, name: str, snapshot_count: int) -> NamespaceView:
        namespace = self._registry.live.get(name)
        if namespace is None:
            raise NamespaceNotFound(name)
        definition = self._registry.definitions.get(name)
        rule = None if definition is None else definition.authorization_rules[0]
        return NamespaceView(
            name,
            None if rule is None else rule.name,
            None if rule is None else rule.primary_key,
            0 if definition is None else definition.created_time_ms,
            definition is not None and definition.is_ephemeral,
            len(namespace.entities()),
            message_count(namespace),
            snapshot_count,
        )

    async def delete(self, name: str) -> None:
        """Deletes a namespace."""
        await self._finish(self._delete(name))

    async def _delete(self, name: str) -> None:
        await self._reports.deleting(name)
        await self._lifecycle.delete(name)
        self._reports.deleted(name)
        self._deleted(name)

    def snapshots(self, namespace: str) -> list[SnapshotView]:
        """Returns the snapshots of a namespace."""
        return [_view(one) for one in self._lifecycle.snapshots(namespace)]

    def snapshot(self, namespace: str, name: str) -> SnapshotView:
        """Returns one snapshot."""
        return _view(self._lifecycle.snapshot(namespace, name))

    async def take_snapshot(
        self, namespace: str, name: str, *, is_ephemeral: bool, replace: bool
    ) -> SnapshotView:
        """Takes a snapshot."""
        taken = await self._finish(
            self._lifecycle.take_snapshot(
                namespace, name, is_ephemeral=is_ephemeral, replace=replace
            )
        )
        return _view(taken)

    async def restore_snapshot(self, namespace: str, name: str) -> SnapshotView:
        """Restores a snapshot."""
        restored = await self._finish(self._lifecycle.restore_snapshot(namespace, name))
        self._reports.began(namespace, "restore")
        return _view(restored)

    async def delete_snapshot(self, namespace: str, name: str) -> None:
        """Deletes a snapshot."""
        await self._finish(self._lifecycle.delete_snapshot(namespace, name))

    def clock(self, namespace: str) -> ClockState:
        """Returns the clock of a namespace."""
        now_ms, ahead_ms, is_frozen = self._lifecycle.clock_of(namespace)
        return ClockState(now_ms, is_frozen, ahead_ms)

    def advance_clock(self, namespace: str, amount_ms: int) -> ClockState:
        """Moves the clock of one namespace ahead."""
        self._lifecycle.advance_clock(namespace, amount_ms)
        return self.clock(namespace)

    def freeze_clock(self, namespace: str) -> ClockState:
        """Stops the clock of one namespace."""
        self._lifecycle.freeze_clock(namespace)
        return self.clock(namespace)

    def resume_clock(self, namespace: str) -> ClockState:
        """Lets the clock of one namespace run again."""
        self._lifecycle.resume_clock(namespace)
        return self.clock(namespace)


def _view(snapshot: TakenSnapshot) -> SnapshotView:
    definition = snapshot.definition
    return SnapshotView(
        definition.name,
        definition.taken_time_ms,
        definition.clock_ahead_ms,
        definition.is_ephemeral,
        len(snapshot.content.entities()),
        snapshot.message_count,
        snapshot.size_bytes,
    )
