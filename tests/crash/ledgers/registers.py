"""A value that is set again and again, one change at a time: the state of a session, a definition.

While a change has no answer, both values are possible. The next read decides which one it is.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


class Register(Generic[Value]):
    """What a value may be now."""

    __slots__ = ("_asked", "_possible")

    def __init__(self, value: Value) -> None:
        self._possible = [value]
        self._asked: Value | None = None

    @property
    def is_certain(self) -> bool:
        return len(self._possible) == 1

    @property
    def possible(self) -> list[Value]:
        """The last confirmed value first."""
        return list(self._possible)

    @property
    def value(self) -> Value:
        """The value, when it is certain."""
        assert self.is_certain, f"it may be any of {self._possible}"
        return self._possible[0]

    def setting(self, value: Value) -> None:
        """The change is about to be put on the wire."""
        self._asked = value
        self._possible.append(value)

    def confirmed(self) -> None:
        """The change that was asked for last has been made."""
        self._possible = self._possible[-1:]

    def refused(self) -> None:
        """The change that was asked for last has not been made."""
        self._possible.pop()

    def observed(self, value: Value) -> bool:
        """A client has read the value. Returns False if the value is impossible."""
        is_possible = value in self._possible
        self._possible = [value]
        return is_possible
