"""Checks of a broker after all clients have disconnected."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from tests.model.invariants import check_invariants
from tests.model.namespace_state import NamespaceState, namespace_state
from tests.simulation.findings import NOTHING_LEFT, Finding, failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.simulated_broker import SimulatedBroker
    from tests.support.fake_store import FakeStore


def differences(broker: SimulatedBroker, store: FakeStore, now_ms: int) -> Iterator[Finding]:
    """Everything that is left of clients, and everything that memory and store disagree about."""
    for namespace in broker.namespaces.values():
        try:
            check_invariants(namespace)
        except AssertionError:
            yield failure(NOTHING_LEFT, "a state that contradicts itself", traceback.format_exc())
    for text in _differences(broker, store, now_ms):
        yield Finding(NOTHING_LEFT, text)


def _differences(broker: SimulatedBroker, store: FakeStore, now_ms: int) -> Iterator[str]:
    if broker.clients.connection_count:
        yield f"{broker.clients.connection_count} connections are still known"
    if broker.core.is_writing:
        yield "the committer still has something to do"
    restored = broker.core._restored_namespaces(keeps_ephemeral=True).namespaces
    for name, namespace in broker.namespaces.items():
        links = namespace._links
        for kind, peers in (("senders", links._senders), ("receivers", links._receivers)):
            if peers:
                yield f"{len(peers)} {kind} are still known in {name}"
        if namespace._transactions._open:
            yield f"{len(namespace._transactions._open)} transactions are still open in {name}"
        work_in_one_run, again = (
            namespace_state(namespace, now_ms),
            namespace_state(restored[name], now_ms),
        )
        yield from _different(_comparable(work_in_one_run), _comparable(again))
        missing = set(work_in_one_run.payload_references) - set(store._payloads)
        if missing:
            yield f"the bodies of {len(missing)} messages are not stored"
        extra = set(store._payloads) - set(work_in_one_run.payload_references)
        if extra:
            yield f"{len(extra)} bodies are stored that nothing refers to"


def _comparable(whole: NamespaceState) -> NamespaceState:
    """Without the counters: numbers that were set aside for nothing may come again."""
    return whole._replace(
        entities={
            path: entity._replace(
                queues=[queue._replace(last_sequence_number=0) for queue in entity.queues]
            )
            for path, entity in whole.entities.items()
        }
    )


def _different(work_in_one_run: NamespaceState, again: NamespaceState) -> Iterator[str]:
    for path in {**work_in_one_run.entities, **again.entities}:
        one, other = work_in_one_run.entities.get(path), again.entities.get(path)
        if one is None or other is None:
            yield f"{path} is {'only' if other is None else 'not'} in memory"
            continue
        for name, before, after in zip(one._fields, one, other, strict=True):
            if before != after:
                yield f"{name} of {path}: {before} in memory and {after} after a restart"
    if work_in_one_run.payload_references != again.payload_references:
        yield "bodies have other references after a restart"
