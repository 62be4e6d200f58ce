"""Attach frames: reads the client's, and fills in the broker's.

Does not decide whether a link is granted. The answer has the client's addresses unchanged, because SDKs compare
them.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cproton_ffi import lib

from broker.core.contract.errors import UndecodableMessage
from protocol.amqp.engine.outcomes import data_bytes, set_data, text
from protocol.codec import Array, Described, decode, encode_map_entries, encode_symbol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


Value = TypeVar("Value")

_KEPT_VALUES = 256
_KEPT_MAX_BYTES = 512
"""How many values of attaches are kept decoded, and how long they may be."""


class FilterValue(NamedTuple):
    """A filter. The descriptor is None if the client did not describe the value."""

    descriptor: int | str | None
    value: object


class Attach(NamedTuple):
    """The fields of a client's attach."""

    name: str
    is_receiver: bool
    """True if the client sends on the link and the broker receives."""
    source_address: str | None
    target_address: str | None
    target_is_coordinator: bool = False
    dynamic: bool = False
    """The client asks for a dynamic node."""
    snd_settle_mode: int = 2
    """0 unsettled, 1 settled, 2 mixed."""
    rcv_settle_mode: int = 0
    """0 first, 1 second."""
    filter: Mapping[str, FilterValue] = MappingProxyType({})
    properties: Mapping[str, object] = MappingProxyType({})
    copies: bool = False
    """Distribution mode `copy`: the client browses messages, which stay in the queue."""
    outcomes: frozenset[str] = frozenset()
    """The outcomes that the source of the link supports. Empty if the client does not say."""

    @property
    def node_address(self) -> str | None:
        """The address of the broker's node: the target of a sender, the source of a receiver."""
        return self.target_address if self.is_receiver else self.source_address


def read_attach(link: Any) -> Attach:
    """Returns the attach of a link that the client has just attached."""
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
        filter=_filters(data_bytes(lib.pn_terminus_filter(source))),
        properties=_properties(data_bytes(lib.pn_link_remote_properties(link))),
        copies=not is_receiver and _wants_copies(source),
        outcomes=_symbols(data_bytes(lib.pn_terminus_outcomes(source))),
    )


def _wants_copies(source: Any) -> bool:
    """Whether the distribution mode is `copy`. JMS clients also set it for durable subscriptions, which must
    consume their messages."""
    mode = lib.pn_terminus_get_distribution_mode(source)
    durable = lib.pn_terminus_get_durability(source) != lib.PN_NONDURABLE
    return bool(mode == lib.PN_DIST_MODE_COPY) and not durable


def decoded_map(data: Any) -> dict[str, object]:
    """Returns a map of the client by the text of its keys. Empty if it is absent or not a map."""
    return _map(data_bytes(data))


def _map(encoded: bytes) -> dict[str, object]:
    if not encoded:
        return {}
    try:
        value = decode(encoded)[0]
    except UndecodableMessage:
        return {}
    if not isinstance(value, dict):
        return {}
    return {str(key): item for key, item in value.items()}


def _kept(read: Callable[[bytes], Value]) -> Callable[[bytes], Value]:
    """Returns a function that reads the same value only once: most clients attach all their links with the same
    filters and properties. Nobody may change what it returns."""
    read_once = lru_cache(_KEPT_VALUES)(read)

    def read_again(encoded: bytes) -> Value:
        return read_once(encoded) if len(encoded) <= _KEPT_MAX_BYTES else read(encoded)

    return read_again


@_kept
def _properties(encoded: bytes) -> Mapping[str, object]:
    return _map(encoded)


@_kept
def _filters(encoded: bytes) -> Mapping[str, FilterValue]:
    filters: dict[str, FilterValue] = {}
    for name, value in _map(encoded).items():
        if isinstance(value, Described):
            descriptor = value.descriptor
            known = descriptor if isinstance(descriptor, int | str) else str(descriptor)
            filters[name] = FilterValue(known, value.value)
        else:
            filters[name] = FilterValue(None, value)
    return filters


@_kept
def _symbols(encoded: bytes) -> frozenset[str]:
    """Returns the symbols of a field that is one symbol or an array of them."""
    try:
        value = decode(encoded)[0] if encoded else None
    except UndecodableMessage:
        return frozenset()
    items = value.items if isinstance(value, Array) else [value]
    return frozenset(item for item in items if isinstance(item, str))


def write_attach(
    link: Any,
    *,
    may_be_second: bool,
    max_message_size_bytes: int,
    properties: Mapping[str, bytes] | None,
    filter_map: bytes | None,
    dynamic_address: str | None,
) -> None:
    """Fills in the attach of a link that is granted."""
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


def write_refusal(link: Any) -> None:
    """Fills in the attach of a link that is refused. Source and target are null, so that SDKs wait for the error
    in the detach that follows. For go-amqp both must be null."""
    _answer_settle_modes(link, may_be_second=True)
    for terminus in (lib.pn_link_source(link), lib.pn_link_target(link)):
        lib.pn_terminus_set_type(terminus, lib.PN_UNSPECIFIED)


def _echo_termini(link: Any) -> None:
    source, target = lib.pn_link_source(link), lib.pn_link_target(link)
    lib.pn_terminus_copy(source, lib.pn_link_remote_source(link))
    lib.pn_terminus_copy(target, lib.pn_link_remote_target(link))
    # A client that left out its own terminus gets an empty one: only a refusal has a null terminus.
    for terminus, kind in ((source, lib.PN_SOURCE), (target, lib.PN_TARGET)):
        if lib.pn_terminus_get_type(terminus) == lib.PN_UNSPECIFIED:
            lib.pn_terminus_set_type(terminus, kind)


def _answer_settle_modes(link: Any, *, may_be_second: bool) -> None:
    """Answers with the client's modes, but with `first` to a sender that cannot have mode `second`."""
    lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
    mode = lib.pn_link_remote_rcv_settle_mode(link)
    lib.pn_link_set_rcv_settle_mode(link, mode if may_be_second else lib.PN_RCV_FIRST)
