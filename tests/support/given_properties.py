"""A message reader for tests of rules. It returns the properties that the test chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.core.contract.message import Message


class GivenProperties:
    """Returns the same properties for every message, and records which kind was read."""

    def __init__(self, user: dict[str, Any] | None = None, **system: Any) -> None:
        self.user = user or {}
        self.system = system
        self.asked: list[str] = []

    def application_properties(self, message: Message) -> dict[str, Any]:
        self.asked.append("application")
        return self.user

    def system_properties(self, message: Message) -> dict[str, Any]:
        self.asked.append("system")
        return self.system
