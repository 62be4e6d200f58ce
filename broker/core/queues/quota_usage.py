"""The size of an entity, against which its quota is checked."""

from __future__ import annotations


class QuotaUsage:
    """How many bytes an entity holds. A topic and its subscriptions share one."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count bytes that were stored, or removed if negative."""
        self.size_bytes += size_bytes
