"""The Proton objects of one connection: how they are created and freed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from cproton_ffi import lib

from protocol.amqp.engine.proton_log import redirect_proton_log

FEW_OBJECTS = 100
"""A connection with no more links and deliveries is freed at once: that takes less than a third of a millisecond. A thread
would need the interpreter lock for each, and beside a busy event loop, many ended connections would wait for it."""
_freeing = ThreadPoolExecutor(1, "proton-free")
"""Proton takes seconds to free a connection with twenty thousand links or unsettled deliveries. Nothing else uses
these objects any more, and Python code runs while C code does."""


_UNLIMITED = 0xFFFFFFFF


class Proton(NamedTuple):
    """The Proton objects that make up a connection."""

    transport: Any
    connection: Any
    collector: Any

    @property
    def frame_max_bytes(self) -> int:
        """The largest frame that the client accepts. Unlimited before its open."""
        return int(lib.pn_transport_get_remote_max_frame(self.transport)) or _UNLIMITED


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


def free_proton(proton: Proton, object_count: int) -> None:
    """Frees a connection with so many links and deliveries, in another thread if there are many. The caller must not use
    its objects any more."""
    lib.pn_transport_close_tail(proton.transport)
    lib.pn_transport_close_head(proton.transport)
    lib.pn_collector_release(proton.collector)  # it drops its events, and takes no more
    if object_count > FEW_OBJECTS:
        _freeing.submit(_free, *proton)
    else:
        _free(*proton)


def _free(transport: Any, connection: Any, collector: Any) -> None:
    lib.pn_transport_unbind(transport)
    lib.pn_connection_release(connection)
    lib.pn_decref(transport)
    lib.pn_decref(connection)
    lib.pn_collector_free(collector)
