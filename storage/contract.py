"""What every store promises.

Methods block: the server calls those of a `blocking` store from threads of its own, at most one
`commit` at a time, `read_payloads` beside it. One contract suite runs over every store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.core.contract.records import (
        EntityStored,
        MessageRow,
        Record,
        RuleRow,
        SentRow,
        SessionStateSet,
    )


class StorageError(Exception):
    """The store cannot do what it was asked: the sentence names the cause and the fix."""


class StorageFull(StorageError):
    """No room for this batch; nothing of it was written. Room may return: retry or refuse."""


class StoreUnusable(StorageError):
    """The store cannot be opened: held by another process, corrupt, newer, or not permitted."""


@dataclass(slots=True)
class Snapshot:
    """What a restarted broker begins with. Bodies stay in the store."""

    entities: Sequence[EntityStored] = ()
    rules: Sequence[RuleRow] = ()
    sequence_numbers: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Highest number ever stored, by (entity id, sub-queue), even if its message is gone."""
    highest_message_id: int = 0
    """Of all ids a message or a payload still has: a new message takes a higher one."""
    messages: Iterable[MessageRow] = ()
    """In any order; read once, before the next commit."""
    messages_as_sent: Iterable[SentRow] = ()
    """The others, if the store tells them apart: they take less time to read."""
    session_states: Sequence[SessionStateSet] = ()
    message_ids: Iterable[tuple[int, str, int]] = ()
    """Duplicate detection: (entity id, message id, until ms); read once, before the next commit."""


class Store(Protocol):
    """Remembers records. See the module docstring for who calls what from where."""

    blocking: bool
    """False: every method returns at once and may be called on the event loop."""
    keeps_payloads_in_memory: bool
    """True: paging bodies out of the broker would free nothing."""

    @property
    def has_room(self) -> bool:
        """False when so little is left that new messages should be refused, so that those there
        are can still be completed. Cheap, and may be asked at any time."""

    def open(self) -> None:
        """Make it usable, creating or migrating what is there. Raises `StoreUnusable`."""

    def load(self) -> Snapshot:
        """All that was committed."""

    def commit(self, records: Sequence[Record]) -> None:
        """Write all of it, durably, or none of it. Raises `StorageFull` or `StorageError`.

        Records take effect in their order. After `StorageFull` the store is as it was and usable.
        """

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """(body, annotations) of those that exist."""

    def close(self) -> None:
        """Give up the store; what was committed stays."""
