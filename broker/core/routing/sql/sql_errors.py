"""How the SQL of rules fails: when it is read, and when it is evaluated.

A text that cannot be read is refused where the rule is made. A text that reads well may still fail
on one message: that is no refusal, the message goes to the subscription's dead-letter queue.
"""

from __future__ import annotations

from broker.core.contract.errors import ArgumentError


class SqlSyntaxError(ArgumentError):
    """The text is not in the language: where, what was found, what was expected."""

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
    """A filter or action that cannot be evaluated on this message."""

    reason = "FilterException"
    """The `DeadLetterReason` that goes with it; its text is the description."""
