"""Attaching links: what a client asked for, and the reply in Proton's terms.

Owns reading a remote attach and filling in the local one; not whether a link is granted.
The reply echoes the client's addresses unchanged, since SDKs compare them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cproton_ffi import lib

from broker.core.contract.errors import UndecodableMessage
from protocol.amqp.engine.outcomes import data_bytes, set_condition, set_data, text
from protocol.codec import Array, Described, decode, encode_map_entries, encode_symbol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.amqp.engine.outcomes import WireError


class FilterValue(NamedTuple):
    """A filter, with its descriptor where the client described it."""

    descriptor: int | str | None
    value: object


@dataclass(frozen=True, slots=True)
class Attach:
    """What a client asks for when it attaches a link."""

    name: str
    is_receiver: bool
    """True where we receive and the client sends."""
    source_address: str | None
    target_address: str | None
    target_is_coordinator: bool = False
    dynamic: bool = False
    """The client wants a node made for it at the end it does not own."""
    snd_settle_mode: int = 2
    """0 unsettled, 1 settled, 2 mixed."""
    rcv_settle_mode: int = 0
    """0 first, 1 second."""
    filter: dict[str, FilterValue] = field(default_factory=dict)
    properties: dict[str, object] = field(default_factory=dict)
    copies: bool = False
    """The client wants to look at messages and leave them where they are."""
    outcomes: frozenset[str] = frozenset()
    """What the source of the link understands; empty where it does not say."""


def read_attach(link: Any) -> Attach:
    """The remote side of a link that has just been attached."""
    is_receiver = bool(lib.pn_link_is_receiver(link))
    source = lib.pn_link_remote_source(link)
    target = lib.pn_link_remote_target(link)
    return Attach(
        name=text(lib.pn_link_name(link)) or "",
        is_receiver=is_receiver,
        source_address=text(lib.pn_terminus_get_address(source)),
        target_address=text(lib.pn_terminus_get_address(target)),
        target_is_coordinator=lib.pn_terminus_get_type(target) == lib.PN_COORDINATOR,
        dynamic=bool(lib.pn_terminus_is_dynamic(target if is_receiver else source)),
        snd_settle_mode=lib.pn_link_remote_snd_settle_mode(link),
        rcv_settle_mode=lib.pn_link_remote_rcv_settle_mode(link),
        filter=_filters(decoded_map(lib.pn_terminus_filter(source))),
        properties=decoded_map(lib.pn_link_remote_properties(link)),
        copies=not is_receiver and _wants_copies(source),
        outcomes=_symbols(lib.pn_terminus_outcomes(source)),
    )


def _symbols(data: Any) -> frozenset[str]:
    """One symbol or an array of them."""
    encoded = data_bytes(data)
    try:
        value = decode(encoded)[0] if encoded else None
    except UndecodableMessage:
        return frozenset()
    items = value.items if isinstance(value, Array) else [value]
    return frozenset(item for item in items if isinstance(item, str))


def _wants_copies(source: Any) -> bool:
    """JMS says so of durable subscriptions too, which are to have their messages all the same."""
    mode = lib.pn_terminus_get_distribution_mode(source)
    durable = lib.pn_terminus_get_durability(source) != lib.PN_NONDURABLE
    return bool(mode == lib.PN_DIST_MODE_COPY) and not durable


def decoded_map(data: Any) -> dict[str, object]:
    """A map of the peer's by the text of its keys; empty where it is absent or no map."""
    encoded = data_bytes(data)
    if not encoded:
        return {}
    try:
        value = decode(encoded)[0]
    except UndecodableMessage:
        return {}
    if not isinstance(value, dict):
        return {}
    return {str(key): item for key, item in value.items()}


def _filters(entries: dict[str, object]) -> dict[str, FilterValue]:
    filters: dict[str, FilterValue] = {}
    for name, value in entries.items():
        if isinstance(value, Described):
            descriptor = value.descriptor
            known = descriptor if isinstance(descriptor, int | str) else str(descriptor)
            filters[name] = FilterValue(known, value.value)
        else:
            filters[name] = FilterValue(None, value)
    return filters


def write_attach(
    link: Any,
    *,
    may_be_second: bool,
    max_message_size_bytes: int,
    properties: Mapping[str, bytes] | None,
    filter_map: bytes | None,
    dynamic_address: str | None,
) -> None:
    """Fill in the local side of a link that is granted."""
    _echo_termini(link)
    _answer_settle_modes(link, may_be_second=may_be_second)
    source = lib.pn_link_source(link)
    set_data(lib.pn_terminus_filter(source), filter_map or b"")
    if dynamic_address is not None:
        own = lib.pn_link_target(link) if lib.pn_link_is_receiver(link) else source
        lib.pn_terminus_set_address(own, dynamic_address.encode())
    lib.pn_link_set_max_message_size(link, max_message_size_bytes)
    if properties:
        set_data(lib.pn_link_properties(link), encode_map_entries(properties, encode_symbol))


def write_refusal(link: Any, error: WireError | None) -> None:
    """Fill in the local side of a link that is refused: both ends are null, which tells SDKs to
    wait for the error in the detach that follows. One null end is not enough for go-amqp."""
    _answer_settle_modes(link, may_be_second=True)
    for terminus in (lib.pn_link_source(link), lib.pn_link_target(link)):
        lib.pn_terminus_set_type(terminus, lib.PN_UNSPECIFIED)
    if error is not None:
        set_condition(lib.pn_link_condition(link), error)


def _echo_termini(link: Any) -> None:
    source, target = lib.pn_link_source(link), lib.pn_link_target(link)
    lib.pn_terminus_copy(source, lib.pn_link_remote_source(link))
    lib.pn_terminus_copy(target, lib.pn_link_remote_target(link))
    # A client that left out the end it owns gets an empty one: only a refusal has a null end.
    for terminus, kind in ((source, lib.PN_SOURCE), (target, lib.PN_TARGET)):
        if lib.pn_terminus_get_type(terminus) == lib.PN_UNSPECIFIED:
            lib.pn_terminus_set_type(terminus, kind)


def _answer_settle_modes(link: Any, *, may_be_second: bool) -> None:
    """The client's own, but for senders that cannot have mode `second`: they are told `first`."""
    lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
    mode = lib.pn_link_remote_rcv_settle_mode(link)
    lib.pn_link_set_rcv_settle_mode(link, mode if may_be_second else lib.PN_RCV_FIRST)
