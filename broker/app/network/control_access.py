"""Gives the control API of `protocol/http/control` access to the broker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from broker import __version__
from broker.app.network.client_views import connection_view, holder_of
from broker.app.network.clock_control import ClockControl
from broker.app.network.namespace_operations import NamespaceOperations
from broker.app.runtime.change_waits import ChangeWaits
from broker.app.runtime.namespace_lifecycle import NamespaceLifecycle
from protocol.http.control_services import ControlServices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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
) -> ControlServices:
    """Returns what the control API needs."""
    lifecycle = NamespaceLifecycle(core, clock, settings.limits, clients, os.urandom)
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
        declared=lambda namespace: core.registry.declared(namespace, topology.namespaces),
        clock=ClockControl(clock, clock_moved),
        namespace_control=NamespaceOperations(
            lifecycle, core, reports, deleted=clients.forget_namespace
        ),
        faults=clients.faults,
        history=core.histories,
        limits=settings.limits,
        sources=sources,
        version=__version__,
    )
