"""A summary of the message in a transfer: its properties, and the size and the beginning of its body.

The message may be cut, because it continues in other frames or because only its beginning was kept.
"""

from __future__ import annotations

import re
from typing import Any

from broker.core.contract.errors import UndecodableMessage
from protocol.amqp.wire_view.described_fields import SECTIONS
from protocol.amqp.wire_view.readable_values import (
    named_fields,
    readable,
    readable_map,
    readable_text,
)
from protocol.amqp.wire_view.secrets import BLANK, blanked_token
from protocol.codec import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    SEQUENCE,
    VALUE,
    code_of,
    decode,
    sections_of,
)

PREVIEW_MAX_BYTES = 200
BATCH_SHOWN_MAX = 10
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAPS = {
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "message_annotations",
    APPLICATION_PROPERTIES: "application_properties",
    FOOTER: "footer",
}
_BODIES = {DATA: "data", SEQUENCE: "sequence", VALUE: "value"}


def summarize(payload: bytes, *, is_cut: bool, is_batch: bool) -> dict[str, Any]:
    """Returns a message. `is_cut`: its end is missing."""
    sections: list[tuple[int, int, int]] = []
    error = None
    try:
        sections.extend(sections_of(payload))
    except (UndecodableMessage, IndexError) as found:
        error = str(found)
        end = sections[-1][2] if sections else 0
        if is_cut:
            sections += _cut_section(payload, end)
            error = None
    summary = _batch(payload, sections) if is_batch else _message(payload, sections)
    if is_cut:
        summary["is_cut"] = True
    if error is not None:
        summary["malformed"] = error
    return summary


def _message(data: bytes, sections: list[tuple[int, int, int]]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    bodies = []
    operation = None
    for code, start, end in sections:
        if code in _BODIES:
            bodies.append((code, start, end))
            continue
        try:
            value, _ = decode(data, start)
        except UndecodableMessage as error:
            summary["malformed"] = str(error)
            continue
        if code in SECTIONS and isinstance(value, list):
            section = SECTIONS[code]
            summary[section.name] = named_fields(section.fields, value)
        elif code in _MAPS and isinstance(value, dict):
            summary[_MAPS[code]] = readable_map(value)
            if code == APPLICATION_PROPERTIES:
                operation = value.get("operation")
    if bodies:
        summary["body"] = _body(data, bodies, is_token=operation == "put-token")
    return summary


def _body(data: bytes, sections: list[tuple[int, int, int]], *, is_token: bool) -> dict[str, Any]:
    code, start, end = sections[0]
    body: dict[str, Any] = {
        "type": _BODIES[code],
        "bytes": sum(end - start for _, start, end in sections),
    }
    if len(sections) > 1:
        body["sections"] = len(sections)
    if code == DATA:
        content = _content(data, start, end)
        body["bytes"] = sum(len(_content(data, one[1], one[2])) for one in sections)
        body["preview"] = BLANK if is_token else _preview(content)
        return body
    try:
        value, _ = decode(data[:end], start)
    except UndecodableMessage:
        return body  # it is cut
    body["preview"] = blanked_token(value) if is_token else readable(value)
    return body


def _content(data: bytes, start: int, end: int) -> bytes:
    """Returns the content of a data section, of which the end may be missing."""
    size_bytes = {0xA0: 1, 0xB0: 4}.get(data[start] if start < len(data) else 0)
    return b"" if size_bytes is None else data[start + 1 + size_bytes : end]


def _preview(content: bytes) -> str | None:
    """Returns the beginning of a body that is text. None: it is binary, or empty."""
    # Secrets are blanked before the text is cut, so that no part of one is left.
    beginning = content[: 20 * PREVIEW_MAX_BYTES]
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        if error.end < len(beginning) or error.start < len(beginning) - 3:
            return None
        text = beginning[: error.start].decode()  # a character is cut
    if not text or _CONTROL_CHARACTER.search(text):
        return None
    shown = readable_text(text)
    return shown if len(shown) <= PREVIEW_MAX_BYTES else shown[:PREVIEW_MAX_BYTES] + "…"


def _batch(data: bytes, sections: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Returns the first messages of a batch, each of which is a data section."""
    messages = [_content(data, start, end) for code, start, end in sections if code == DATA]
    return {
        "batch_messages": len(messages),
        "batch": [
            summarize(one, is_cut=False, is_batch=False) for one in messages[:BATCH_SHOWN_MAX]
        ],
    }


def _cut_section(data: bytes, position: int) -> list[tuple[int, int, int]]:
    """Returns the section that begins at a position, if its code can be read."""
    try:
        if data[position]:
            return []
        descriptor, start = decode(data, position + 1)
    except (UndecodableMessage, IndexError):
        return []
    code = code_of(descriptor)
    return [(code, start, len(data))] if code in _BODIES else []
