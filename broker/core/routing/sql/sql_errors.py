"""Errors of the SQL of rules, in parsing and in evaluation.

A text that cannot be parsed is refused when the rule is created. A filter or action can also fail
on one message: then the message goes to the subscription's dead-letter queue.
"""

from __future__ import annotations

from broker.core.contract.errors import ArgumentError

DESCRIPTION_MAX_CHARACTERS = 1_024
"""The rest of the text of a `FilterError` is cut off."""


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

    def __init__(self, text: str) -> None:
        # The text is stored, and may quote a property: of any length, or of characters that UTF-8 does not have.
        stored = text[:DESCRIPTION_MAX_CHARACTERS].encode(errors="replace").decode()
        super().__init__(stored)


EVALUATION_ERRORS = (FilterError, ArithmeticError, TypeError, ValueError)
"""What a rule can raise because of the values of one message. None of them may end a turn: the values come from a
client. Others come from a defect of the broker, and do."""


def as_filter_error(error: Exception) -> FilterError:
    """Returns the error of a rule for one of `EVALUATION_ERRORS`. If no operator has foreseen it, its description
    names the original error."""
    if isinstance(error, FilterError):
        return error
    found = FilterError(f"The rule cannot be evaluated: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
