"""Two sources of random choices: a seeded generator for long runs, hypothesis for runs that can be
shrunk."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


class SeededChoices:
    """The same choices for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        """Both included."""
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self._random.randrange(len(options))]

    def rarely(self, one_in: int) -> bool:
        """True once in so many times."""
        return self._random.randrange(one_in) == 0


class HypothesisChoices:
    """Choices that hypothesis makes, and makes simpler when something fails."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, low: int, high: int) -> int:
        """Both included; it shrinks to the low one."""
        return self._data.draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        """One of them; it shrinks to the first."""
        return options[self._data.draw(st.integers(0, len(options) - 1))]

    def rarely(self, one_in: int) -> bool:
        """True once in so many times; it shrinks to never."""
        return self._data.draw(st.integers(0, one_in - 1)) == one_in - 1
