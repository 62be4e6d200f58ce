"""Compiles LIKE patterns to functions over text.

`%` matches any characters, `_` matches one character. A pattern must match the whole text, and case
counts. Each piece between two `%` is matched at the leftmost place, which is always correct. So
matching takes at most text length times pattern length, also for hostile patterns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.core.routing.sql.sql_errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Callable

_ANY_RUN = "%"
_ANY_ONE = "_"


DYNAMIC_PATTERN_MAX_CHARACTERS = 1_024
"""The longest pattern that a message may bring. The text of a filter has the same limit in Azure."""
DYNAMIC_STEPS_MAX = 4 * 1024 * 1024
"""The largest product of the lengths of such a pattern and its text, some ten milliseconds of work. One sender
chooses both."""


def is_like(text: str, pattern: str, escape: str | None) -> bool:
    """Returns whether a text matches a pattern that is not known before the message. Raises `FilterError` if that
    takes too long."""
    if len(pattern) > DYNAMIC_PATTERN_MAX_CHARACTERS:
        raise FilterError(
            f"The pattern of a LIKE is longer than {DYNAMIC_PATTERN_MAX_CHARACTERS} characters."
        )
    if len(pattern) * len(text) > DYNAMIC_STEPS_MAX:
        raise FilterError("The text of a LIKE is too long for a pattern of this length.")
    return like(pattern, escape)(text)


def like(pattern: str, escape: str | None = None) -> Callable[[str], bool]:
    """Returns the function for a pattern."""
    pieces = _pieces(pattern, escape)
    literals = ["".join(piece) for piece in pieces if None not in piece]  # type: ignore[arg-type]
    if len(literals) == len(pieces):
        match literals:
            case [whole]:
                return whole.__eq__
            case [start, ""]:
                return lambda text: text.startswith(start)
            case ["", end]:
                return lambda text: text.endswith(end)
            case ["", part, ""]:
                return lambda text: part in text
    return _piecewise(pieces)


def _pieces(pattern: str, escape: str | None) -> list[list[str | None]]:
    """Returns the pieces between the `%`, as lists of characters. None is `_`."""
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            # An escape character at the end matches itself.
            pieces[-1].append(next(characters, character))
        elif character == _ANY_RUN:
            pieces.append([])
        else:
            pieces[-1].append(None if character == _ANY_ONE else character)
    return pieces


def _piecewise(pieces: list[list[str | None]]) -> Callable[[str], bool]:
    first, *rest = (
        re.compile("".join("." if one is None else re.escape(one) for one in piece), re.DOTALL)
        for piece in pieces
    )
    if not rest:
        return lambda text: first.fullmatch(text) is not None
    *middle, last = rest
    last_length = len(pieces[-1])

    def matches(text: str) -> bool:
        found = first.match(text)
        for expression in middle:
            if found is None:
                return False
            found = expression.search(text, found.end())
        if found is None:
            return False
        last_start = len(text) - last_length
        return found.end() <= last_start and last.match(text, last_start) is not None

    return matches
