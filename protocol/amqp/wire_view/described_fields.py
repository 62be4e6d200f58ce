"""The described types that frames contain: their names and the names of their fields, in one table.

The names are those of AMQP 1.0 with underscores.
"""

from __future__ import annotations

from typing import NamedTuple


class DescribedFields(NamedTuple):
    """The name of a described type, and its fields in their order."""

    name: str
    fields: tuple[str, ...]


def _fields(name: str, fields: str = "") -> DescribedFields:
    return DescribedFields(name, tuple(fields.split()))


PERFORMATIVES = {
    # AMQP 1.0, section 2.7
    0x10: _fields(
        "open",
        "container_id hostname max_frame_size channel_max idle_time_out outgoing_locales incoming_locales "
        "offered_capabilities desired_capabilities properties",
    ),
    0x11: _fields(
        "begin",
        "remote_channel next_outgoing_id incoming_window outgoing_window handle_max offered_capabilities "
        "desired_capabilities properties",
    ),
    0x12: _fields(
        "attach",
        "name handle role snd_settle_mode rcv_settle_mode source target unsettled incomplete_unsettled "
        "initial_delivery_count max_message_size offered_capabilities desired_capabilities properties",
    ),
    0x13: _fields(
        "flow",
        "next_incoming_id incoming_window next_outgoing_id outgoing_window handle delivery_count link_credit "
        "available drain echo properties",
    ),
    0x14: _fields(
        "transfer",
        "handle delivery_id delivery_tag message_format settled more rcv_settle_mode state resume aborted batchable",
    ),
    0x15: _fields("disposition", "role first last settled state batchable"),
    0x16: _fields("detach", "handle closed error"),
    0x17: _fields("end", "error"),
    0x18: _fields("close", "error"),
}
SASL_FRAMES = {
    # AMQP 1.0, section 5.3.3
    0x40: _fields("sasl_mechanisms", "mechanisms"),
    0x41: _fields("sasl_init", "mechanism initial_response hostname"),
    0x42: _fields("sasl_challenge", "challenge"),
    0x43: _fields("sasl_response", "response"),
    0x44: _fields("sasl_outcome", "code additional_data"),
}
COMPOSITES = {
    0x1D: _fields("error", "condition description info"),
    # AMQP 1.0, section 3.4: delivery states
    0x23: _fields("received", "section_number section_offset"),
    0x24: _fields("accepted"),
    0x25: _fields("rejected", "error"),
    0x26: _fields("released"),
    0x27: _fields("modified", "delivery_failed undeliverable_here message_annotations"),
    # Sections 3.5 and 4.5: sources, targets, transactions
    0x28: _fields(
        "source",
        "address durable expiry_policy timeout dynamic dynamic_node_properties distribution_mode filter "
        "default_outcome outcomes capabilities",
    ),
    0x29: _fields(
        "target",
        "address durable expiry_policy timeout dynamic dynamic_node_properties capabilities",
    ),
    0x30: _fields("coordinator", "capabilities"),
    0x31: _fields("declare", "global_id"),
    0x32: _fields("discharge", "txn_id fail"),
    0x33: _fields("declared", "txn_id"),
    0x34: _fields("transactional_state", "txn_id outcome"),
}
SECTIONS = {
    # Section 3.2: the sections of a message that are lists
    0x70: _fields("header", "durable priority ttl first_acquirer delivery_count"),
    0x73: _fields(
        "properties",
        "message_id user_id to subject reply_to correlation_id content_type content_encoding absolute_expiry_time "
        "creation_time group_id group_sequence reply_to_group_id",
    ),
}
SYMBOLS = {
    f"amqp:{one.name.replace('_', '-')}:list": code
    for table in (PERFORMATIVES, SASL_FRAMES, COMPOSITES)
    for code, one in table.items()
}
"""Descriptors may also be symbols."""

ROLES = {False: "sender", True: "receiver"}
SETTLE_MODES = {
    "snd_settle_mode": ("unsettled", "settled", "mixed"),
    "rcv_settle_mode": ("first", "second"),
}
SASL_CODES = ("ok", "auth", "sys", "sys_perm", "sys_temp")


def named_code(code: object) -> int | None:
    """Returns the number of a descriptor, or None if it is neither a number nor a known symbol."""
    if isinstance(code, str):
        return SYMBOLS.get(code)
    return int(code) if isinstance(code, int) else None
