"""Samples of the overview that all who look share."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from broker.core.contract.control_operations import EntityActivity, ListPaths, QueueCounts
from protocol.http.control.overview_sampling import PART_ENTITIES, Overview

PATHS = [f"q{number:03}" for number in range(PART_ENTITIES + 1)]


class Namespace:
    """Answers for a namespace of many queues. The first one changes."""

    def __init__(self) -> None:
        self.dead_letters = 0
        self.is_slow = False
        self.now_s = 0.0
        self.asked = asyncio.Event()
        clients = SimpleNamespace(connections=0, errors=[])
        services = SimpleNamespace(
            sources=SimpleNamespace(stopwatch_s=lambda: self.now_s, real_ms=lambda: 0),
            client_errors=lambda _: clients,
            namespace_control=SimpleNamespace(clock=lambda _: SimpleNamespace(now_ms=1)),
        )
        self.call: Any = SimpleNamespace(ask=self._ask, namespace="n", services=services)

    async def _ask(self, operation: Any) -> list[Any]:
        if isinstance(operation, ListPaths):
            return PATHS
        if self.is_slow and operation.paths[0] != PATHS[0]:
            self.asked.set()
            await asyncio.Event().wait()
        return [self._activity(path) for path in operation.paths]

    def _activity(self, path: str) -> EntityActivity:
        values: dict[str, Any] = dict.fromkeys(EntityActivity._fields, 0)
        values |= {"path": path, "kind": "queue", "main": QueueCounts(0, 0, 0, 0)}
        if path == PATHS[0]:
            values["dead_letters"] = self.dead_letters
        return EntityActivity(**values)


async def test_a_viewer_who_leaves_during_a_sample_takes_no_changes_from_the_others():
    namespace, overview = Namespace(), Overview()
    await overview.refresh(namespace.call)
    known = overview.number
    namespace.dead_letters, namespace.is_slow, namespace.now_s = 2, True, 10.0
    leaving = asyncio.get_running_loop().create_task(overview.refresh(namespace.call))
    await namespace.asked.wait()
    leaving.cancel()
    await asyncio.wait({leaving})
    namespace.is_slow = False
    await overview.refresh(namespace.call)
    samples = overview.changes_since(known)
    assert samples is not None
    assert [[PATHS[0]]] == [list(one.changed) for one in samples]
    assert [2] == [one["count"] for one in overview.alerts]
