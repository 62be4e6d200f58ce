"""The SQL of subscription rules: filters that select messages, actions that change the copies.

    text ─lexer→ tokens ─grammar→ tree ─compiler→ function over a `PropertySource`

A text is read when its rule is made, and refused there with the place of the mistake; from then on
only functions run. The parser is written by hand rather than generated: the language is small, the
errors say what was expected in words, and a parser generator is a long import for a short text.
Even so parser and compiler are imported when the first text is compiled: most brokers have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.routing.sql.message_properties import (
    EditableProperties,
    MessageProperties,
    PropertySource,
)
from broker.core.routing.sql.sql_errors import FilterError, SqlSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.core.contract.message import PropertyValue

__all__ = [
    "EditableProperties",
    "FilterError",
    "MessageProperties",
    "PropertySource",
    "SqlSyntaxError",
    "compile_action",
]

TEXT_MAX_CHARACTERS = 1024
STATEMENTS_MAX = 32


def compile_action(
    text: str,
    parameters: Mapping[str, PropertyValue] = {},
    *,
    max_characters: int = TEXT_MAX_CHARACTERS,
    max_statements: int = STATEMENTS_MAX,
) -> Callable[[EditableProperties], None]:
    """Returns a function that changes properties. After an error the changed properties must not be
    used."""
    from broker.core.routing.sql.compiler import compile_statements
    from broker.core.routing.sql.grammar import parse_action

    return compile_statements(parse_action(text, parameters, max_characters, max_statements))
