"""The Proton objects of one connection: how they are created and freed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from cproton_ffi import lib

from protocol.amqp.engine.proton_log import redirect_proton_log

_freeing = ThreadPoolExecutor(1, "proton-free")
"""Proton takes seconds to free a connection with twenty thousand links or unsettled deliveries. Nothing else uses
these objects any more, and Python code runs while C code does."""


class Proton(NamedTuple):
    """The Proton objects that make up a connection."""

    transport: Any
    connection: Any
    collector: Any


def create_proton(
    *, container_id: str, max_frame_size_bytes: int, channel_max: int, idle_timeout_ms: int
) -> Proton:
    """Creates the server side of a connection."""
    transport = lib.pn_transport()
    redirect_proton_log(transport)
    lib.pn_transport_set_server(transport)
    lib.pn_transport_set_max_frame(transport, max_frame_size_bytes)
    lib.pn_transport_set_channel_max(transport, channel_max)
    # Proton announces half of the idle timeout that it enforces.
    lib.pn_transport_set_idle_timeout(transport, 2 * idle_timeout_ms)
    connection = lib.pn_connection()
    lib.pn_connection_set_container(connection, container_id.encode())
    collector = lib.pn_collector()
    lib.pn_connection_collect(connection, collector)
    lib.pn_transport_bind(transport, connection)
    return Proton(transport, connection, collector)


def free_proton(proton: Proton) -> None:
    """Frees a connection in another thread. The caller must not use its objects any more."""
    _freeing.submit(_free, proton)


def _free(proton: Proton) -> None:
    transport, connection, collector = proton
    lib.pn_transport_close_tail(transport)
    lib.pn_transport_close_head(transport)
    while lib.pn_collector_pop(collector):
        pass
    lib.pn_transport_unbind(transport)
    lib.pn_collector_release(collector)
    lib.pn_connection_release(connection)
    lib.pn_decref(transport)
    lib.pn_decref(connection)
    lib.pn_collector_free(collector)
