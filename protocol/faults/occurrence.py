"""On which of the operations that fit it a rule acts. Pure: the same rule and sequence give the same answers."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol


class Occurrence(Protocol):
    """Decides for one operation after the other."""

    def is_due(self, number: int) -> bool:
        """Whether the rule acts on the operation with this number. The first has number 1. Called once for each, in
        order."""


@dataclass(frozen=True, slots=True)
class Always:
    """Every operation."""

    def is_due(self, number: int) -> bool:
        """Always."""
        del number
        return True


@dataclass(frozen=True, slots=True)
class Nth:
    """One operation."""

    nth: int

    def is_due(self, number: int) -> bool:
        """Whether it is this one."""
        return number == self.nth


@dataclass(frozen=True, slots=True)
class Every:
    """Every nth operation."""

    every: int

    def is_due(self, number: int) -> bool:
        """Whether the number is a multiple."""
        return number % self.every == 0


@dataclass(frozen=True, slots=True)
class First:
    """The first operations."""

    first: int

    def is_due(self, number: int) -> bool:
        """Whether it is one of them."""
        return number <= self.first


class Probability:
    """Each operation with the same probability, by random numbers from a seed."""

    __slots__ = ("_random", "probability", "seed")

    def __init__(self, probability: float, seed: int) -> None:
        self.probability = probability
        self.seed = seed
        self._random = Random(seed)  # noqa: S311 -- to be repeated, not to be secret

    def is_due(self, number: int) -> bool:
        """Draws the next number."""
        del number
        return self._random.random() < self.probability
