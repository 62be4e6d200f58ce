"""Compiles the text of a SQL filter for tests, as `routing.compiled_rule` does for rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.routing.sql.compiler import compile_condition
from broker.core.routing.sql.grammar import parse_filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract.message import PropertyValue
    from broker.core.routing.sql.compiler import Condition

TEXT_MAX_CHARACTERS = 1024


def compile_filter(
    text: str,
    parameters: Mapping[str, PropertyValue] = {},
    *,
    max_characters: int = TEXT_MAX_CHARACTERS,
) -> Condition:
    """Returns a condition that is True, False, or None for unknown. Only True selects a message."""
    return compile_condition(parse_filter(text, parameters, max_characters))
