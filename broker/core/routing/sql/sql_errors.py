"""Errors of the SQL of rules, in parsing and in evaluation.

A text that cannot be parsed is refused when the rule is created. A filter or action can also fail
on one message: then the message goes to the subscription's dead-letter queue.
"""

from __future__ import annotations

from broker.core.contract.errors import ArgumentError


class SqlSyntaxError(ArgumentError):
    """The text cannot be parsed: the position, what was found, and what was expected."""

    def __init__(self, text: str, position: int, found: str, expected: str) -> None:
        self.position = position
        """Offset in characters, from 0."""
        self.line = text.count("\n", 0, position) + 1
        self.column = position - text.rfind("\n", 0, position)
        self.found = found
        self.expected = expected
        super().__init__(
            f"The SQL expression is not valid at line {self.line}, column {self.column}: "
            f"found {found}, expected {expected}."
        )


class FilterError(Exception):
    """A filter or action cannot be evaluated on this message."""

    reason = "FilterException"
    """The `DeadLetterReason`. The text of the error is the description."""
