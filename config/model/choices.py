"""Values that are one of a few names."""

from __future__ import annotations

from enum import Enum
from typing import Self


class Choice(Enum):
    """An enumeration whose names are recognised in any case."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return next((one for one in cls if str(one.value).lower() == str(value).lower()), None)
