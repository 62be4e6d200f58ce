"""The interface of stores.

Methods block: the server calls those of a `blocking` store in threads, at most one `commit` at a time, and
`read_payloads` and `maintain` beside it. A small commit may be called on the event loop, so `commit` has to leave to
`maintain` what can wait. The same tests run for every store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.core.contract.records import (
        EntityStored,
        MessageRow,
        NamespaceStored,
        Record,
        RuleRow,
        SessionStateSet,
    )
    from broker.core.messages.packed_rows import PackedRows


class StorageError(Exception):
    """An operation of the store failed. The text names the cause and the fix."""


class StorageFull(StorageError):
    """The disk is full, and nothing of the batch was written. It may be written later."""


class StoreUnusable(StorageError):
    """The store cannot be opened: another process has it, it is corrupt or newer, or access is denied."""


@dataclass(slots=True)
class Snapshot:
    """The content of a store, without bodies, for a broker that starts."""

    namespaces: Sequence[NamespaceStored] = ()
    entities: Sequence[EntityStored] = ()
    rules: Sequence[RuleRow] = ()
    sequence_numbers: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The highest sequence number ever stored, by entity id and sub-queue, even if its message is deleted."""
    highest_message_id: int = 0
    """The highest id of a stored message or payload. New messages get higher ones."""
    messages: Iterable[MessageRow] = ()
    """In any order. Must be read once, before the next commit."""
    packed_messages: Iterable[tuple[PackedRows, int]] = ()
    """More messages, with bits for the rows that are not stored any more. Must be read once, before the next commit."""
    session_states: Sequence[SessionStateSet] = ()
    message_ids: Iterable[tuple[int, str, int]] = ()
    """Duplicate detection: entity id, message id, and until when. Must be read once, before the next commit."""


class Store(Protocol):
    """A store of records. The docstring of the module says which threads call it."""

    blocking: bool
    """If False, every method returns at once and may be called on the event loop."""
    keeps_payloads_in_memory: bool
    """If True, removing bodies from the broker's memory frees nothing."""

    @property
    def has_room(self) -> bool:
        """Whether new messages may be stored. False if the remaining space is needed for completing the stored
        messages. Cheap; may be called at any time."""

    def open(self) -> None:
        """Opens the store, and creates or migrates it if needed. Raises `StoreUnusable`."""

    def load(self) -> Snapshot:
        """Returns everything that was committed."""

    def commit(self, records: Sequence[Record]) -> None:
        """Writes all records durably, or none. Raises `StorageFull` or `StorageError`.

        Records take effect in their order. After `StorageFull` the store is as it was and usable.
        """

    @property
    def maintenance_is_due(self) -> bool:
        """Whether `maintain` should be called soon. Cheap; asked after each commit."""

    def maintain(self) -> None:
        """Does work of the store that no client waits for. Called in a thread of its own, beside commits and
        reads."""

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """Returns body and annotations of the payloads that exist, by id."""

    def close(self) -> None:
        """Closes the store. What was committed stays."""
