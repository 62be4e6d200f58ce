"""Gives Proton's functions to the compiled module.

The module calls them by address. They are in a shared library of the package `python-qpid-proton`, which the compiled
module cannot be linked against, because its place is known only where it is installed.
"""

from __future__ import annotations

from typing import Any

from cproton_ffi import ffi, lib

from protocol.native import compiled

_NAMES = (
    "pn_collector_peek",
    "pn_collector_pop",
    "pn_delivery",
    "pn_delivery_aborted",
    "pn_delivery_partial",
    "pn_delivery_pending",
    "pn_delivery_remote_state",
    "pn_delivery_settle",
    "pn_delivery_settled",
    "pn_delivery_update",
    "pn_event_link",
    "pn_event_type",
    "pn_link_advance",
    "pn_link_current",
    "pn_link_recv",
    "pn_link_send",
    "pn_transport_peek",
    "pn_transport_pending",
    "pn_transport_pop",
)


def address_of(pointer: Any) -> int:
    """Returns the address of a Proton object or function."""
    return int(ffi.cast("uintptr_t", pointer))


def addresses() -> dict[str, int]:
    """Returns the addresses of the functions that the compiled module calls."""
    return {name: address_of(ffi.addressof(lib, name)) for name in _NAMES}


compiled.set_proton(addresses())
