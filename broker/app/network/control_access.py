"""Gives the control API of `protocol/http/control` access to the broker."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from broker import __version__
from broker.app.network.client_views import client_errors, connection_view, holder_of
from broker.app.network.clock_control import ClockControl
from broker.app.network.namespace_operations import NamespaceOperations
from broker.app.runtime.change_waits import ChangeWaits
from broker.app.runtime.namespace_lifecycle import NamespaceLifecycle
from config.model.storage_urls import parse_storage_url
from config.settings.settings import Authorization
from protocol.http.control_services import ControlServices, Endpoints, StorageView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from broker.app.network.amqp_clients import AmqpClients
    from broker.app.observe.run_report import RunReports
    from broker.app.runtime.clock import Clock
    from broker.app.runtime.durable_core import DurableCore
    from broker.app.security.access import Access
    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from config.files.topology import Topology
    from config.settings.settings import Settings
    from protocol.sources import ProtocolSources


def control_services(
    settings: Settings,
    topology: Topology,
    clock: Clock,
    core: DurableCore,
    clients: AmqpClients,
    access: Access,
    sources: ProtocolSources,
    *,
    ask: Callable[[str, Callable[[Peer, object], Command]], Awaitable[object]],
    clock_moved: Callable[[], None],
    reports: RunReports,
    ports: Callable[[], Sequence[int]],
) -> ControlServices:
    """Returns what the control API needs."""
    own_hosts = ("localhost", settings.host.lower())
    lifecycle = NamespaceLifecycle(core, clock, settings.limits, clients, os.urandom, own_hosts)
    return ControlServices(
        ask=ask,
        namespaces=lambda: list(core.namespaces),
        authorize=access.authorize_control,
        authorize_broker=access.authorize_clock,
        read_payloads=core.read_payloads,
        wait_for_change=ChangeWaits(core.namespaces, core.turns).wait,
        holder_of=holder_of,
        connections=lambda namespace: [
            connection_view(one) for one in clients.connections() if one.namespace == namespace
        ],
        frames=clients.frame_views(),
        reports=reports,
        client_errors=lambda namespace: client_errors(
            one for one in clients.connections() if one.namespace == namespace
        ),
        endpoints=lambda: _endpoints(settings, ports()),
        is_known_host=functools.partial(is_known_host, settings),
        declared=lambda namespace: core.registry.declared(namespace, topology.namespaces),
        flush_storage=functools.partial(_flush_storage, settings, core),
        clock=ClockControl(clock, core.turns.run_waiting, clock_moved),
        namespace_control=NamespaceOperations(
            lifecycle, core, reports, deleted=clients.forget_namespace
        ),
        faults=clients.faults,
        history=core.histories,
        limits=settings.limits,
        sources=sources,
        version=__version__,
    )


def is_known_host(settings: Settings, host: str) -> bool:
    """Whether clients know this broker by a host name, which is in lower case."""
    names = {settings.host.lower(), *map(str.lower, (*settings.tls_names, *settings.http_names))}
    return host in names or "*" in names or f"*.{host.partition('.')[2]}" in names


async def _flush_storage(settings: Settings, core: DurableCore) -> StorageView:
    await core.finish_postponed()
    return storage_view(settings)


def storage_view(settings: Settings) -> StorageView:
    """Returns which store the broker has."""
    store = parse_storage_url(settings.storage)
    if not store.path:
        return StorageView(store.scheme, database_schema=store.schema or None)
    file = Path(store.path).absolute()
    try:
        found = file.stat()
    except OSError:  # it was deleted, and the next commit notices it
        return StorageView(store.scheme, str(file))
    return StorageView(store.scheme, str(file), f"{found.st_dev}:{found.st_ino}")


def _endpoints(settings: Settings, ports: Sequence[int]) -> Endpoints:
    return Endpoints(
        ports[0],
        ports[1],
        ports[2] if len(ports) > 2 else None,
        str(settings.tls_folder / "ca.pem") if settings.tls_certificate is None else None,
        settings.shared_access_key_name,
        settings.shared_access_key,
        settings.authorization is Authorization.STRICT,
    )
