"""Counts the values in the body of a request before they are decoded."""

from __future__ import annotations

from broker.core.contract.errors import MessageSizeExceeded
from protocol.codec import count_values


def check_values(data: bytes, start: int, end: int, most: int) -> None:
    """Raises `MessageSizeExceeded` if there are more than `most` values from `start` to `end`, and may raise
    `UndecodableMessage` if they are malformed."""
    if end - start <= most:
        return  # a value has at least one byte
    if count_values(data, start, end, most) > most:
        raise MessageSizeExceeded(f"The body of this request has at most {most} values.")
