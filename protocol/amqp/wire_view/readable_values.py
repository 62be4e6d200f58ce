"""Decoded AMQP values as JSON can express them, short and without secrets.

Long texts, lists and maps are cut. Binary is shown as text if it is printable, as hexadecimal digits if it is short,
and otherwise as its size.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from protocol.amqp.wire_view.described_fields import COMPOSITES, named_code
from protocol.amqp.wire_view.secrets import BLANK, is_secret_name, without_secrets
from protocol.codec import Array, Described, plain

TEXT_MAX_CHARACTERS = 300
BINARY_MAX_BYTES = 32
ITEMS_MAX = 50
DEPTH_MAX = 8


def readable(value: object, depth: int = 0) -> Any:
    """Returns a value for people."""
    if depth > DEPTH_MAX:
        return "…"
    match value:
        case Described(descriptor, content):
            return _described(descriptor, content, depth)
        case Array(_, items, _):
            return _items(items, depth)
        case list():
            return _items(value, depth)
        case dict():
            return readable_map(value, depth)
    simple = plain(value)
    match simple:
        case None | bool() | int():
            return simple
        case float():
            return simple if simple - simple == 0 else str(simple)  # JSON has no infinity
        case str():
            return readable_text(simple)
        case bytes():
            return readable_binary(simple)
        case datetime():
            return simple.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return simple.total_seconds()
        case _:
            return readable_text(str(simple))


def readable_map(values: dict[Any, Any], depth: int = 0) -> dict[str, Any]:
    """Returns a map for people. The value of a name such as `password` is blanked."""
    shown: dict[str, Any] = {}
    for key, value in values.items():
        if len(shown) == ITEMS_MAX:
            shown["…"] = f"{len(values) - ITEMS_MAX} more"
            break
        name = str(readable(key, depth + 1))
        is_secret = isinstance(value, str | bytes) and is_secret_name(name)
        shown[name] = BLANK if is_secret else readable(value, depth + 1)
    return shown


def readable_text(text: str) -> str:
    """Returns a text without secrets, cut if it is long."""
    shown = without_secrets(text)
    if len(shown) > TEXT_MAX_CHARACTERS:
        shown = shown[:TEXT_MAX_CHARACTERS] + "…"
    return shown.encode(errors="replace").decode()  # a lone surrogate cannot be written


def readable_binary(value: bytes) -> str:
    """Returns binary as text, as hexadecimal digits, or as its size."""
    if value and value.isascii():
        text = value.decode()
        if text.isprintable():
            return readable_text(text)
    return f"0x{value.hex()}" if len(value) <= BINARY_MAX_BYTES else f"({len(value)} bytes)"


def named_fields(names: tuple[str, ...], values: list[Any], depth: int = 0) -> dict[str, Any]:
    """Returns the fields of a list that are not null, by name."""
    extra = tuple(f"field_{position}" for position in range(len(names), len(values)))
    return {
        name: readable(value, depth + 1)
        for name, value in zip((*names, *extra)[: ITEMS_MAX + len(names)], values, strict=False)
        if value is not None
    }


def _items(items: list[Any], depth: int) -> list[Any]:
    shown = [readable(one, depth + 1) for one in items[:ITEMS_MAX]]
    if len(items) > ITEMS_MAX:
        shown.append(f"… {len(items) - ITEMS_MAX} more")
    return shown


def _described(descriptor: object, content: object, depth: int) -> Any:
    composite = COMPOSITES.get(named_code(descriptor) or 0)
    if composite is not None and isinstance(content, list):
        return {"type": composite.name, **named_fields(composite.fields, content, depth)}
    return {"descriptor": readable(descriptor, depth + 1), "value": readable(content, depth + 1)}
