"""What a report tells about a namespace besides counts: messages that matched no subscription, and what Azure would
have refused although the relaxed limits allow it.

Bounded: entities beyond `OBSERVED_MAX` are not observed, and of each only the first message ids are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.core.contract.errors import UndecodableMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.message import Message, MessageReader
    from config.model.limits import Limits

OBSERVED_MAX = 1_000
MESSAGE_IDS_MAX = 5


@dataclass(slots=True)
class Observation:
    """Messages or requests of one entity."""

    count: int = 0
    largest: int = 0
    """The largest amount, where an amount exceeded a limit."""
    limit: int = 0
    message_ids: list[str | None] = field(default_factory=list)
    """Of the first messages."""


class Observations:
    """What was observed in one namespace since it began, or since `clear`."""

    __slots__ = ("_reader", "azure", "over_quota", "unmatched")

    def __init__(self, azure: Limits, reader: MessageReader) -> None:
        self.azure = azure
        """The limits that Azure has. The relaxed limits if they are not to be compared."""
        self._reader = reader
        self.unmatched: dict[str, Observation] = {}
        """By the path of the topic."""
        self.over_quota: dict[tuple[str, str], Observation] = {}
        """By the name of the limit and the path of the entity."""

    def clear(self) -> None:
        """Forgets everything."""
        self.unmatched = {}
        self.over_quota = {}

    def note_unmatched(self, path: str, messages: Iterable[Message], count: int) -> None:
        """Messages were sent to a topic without a matching subscription. These are the first ones."""
        observed = self.unmatched.get(path)
        if observed is None:
            if len(self.unmatched) >= OBSERVED_MAX:
                return
            observed = self.unmatched[path] = Observation()
        observed.count += count
        self._note_ids(observed, messages)

    def note_over_quota(
        self,
        quota: str,
        path: str,
        amount: int,
        messages: Iterable[Message] = (),
        count: int = 1,
        limit: int | None = None,
    ) -> None:
        """More was used than Azure allows. `quota` is the name of a limit. `limit` is its value, if the entity has
        one of its own."""
        observed = self.over_quota.get((quota, path))
        if observed is None:
            if len(self.over_quota) >= OBSERVED_MAX:
                return
            most = getattr(self.azure, quota) if limit is None else limit
            observed = self.over_quota[quota, path] = Observation(limit=most)
        observed.count += count
        observed.largest = max(observed.largest, amount)
        self._note_ids(observed, messages)

    def _note_ids(self, observed: Observation, messages: Iterable[Message]) -> None:
        ids = observed.message_ids
        if len(ids) >= MESSAGE_IDS_MAX:
            return
        for message in messages:
            if len(ids) >= MESSAGE_IDS_MAX:
                return
            try:
                ids.append(self._reader.message_id(message.body or b""))
            except UndecodableMessage:
                ids.append(None)
