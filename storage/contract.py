"""The interface of stores.

Methods block: the server calls those of a `blocking` store in threads, at most one `commit` at a time, and
`read_payloads`, `maintain` and `measure_room` beside it. A small commit may be called on the event loop, so `commit` has to leave to
`maintain` what can wait. `BackgroundCommits` are begun and ended on the event loop. A `SharedStore` has an owner as well,
and no `BackgroundCommits`. The same tests run for every store.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

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


class StoreUnavailable(StorageError):
    """The store cannot be reached, is read-only or did not answer in time. Nobody knows whether the batch was written
    until the store is loaded again. It may work later."""


class OwnershipLost(StorageError):
    """Another process owns the store, or none. Nothing of the batch was written."""


class Room(NamedTuple):
    """How much more a store can take."""

    message_bytes: int
    """So many bytes of new messages, in the next commits together."""
    state_bytes: int
    """Or so many bytes of session states. A receiver may need to set one before it can complete messages, so small ones
    may use the space that is kept for completing messages."""


UNLIMITED_ROOM = Room(sys.maxsize, sys.maxsize)
"""For stores that do not know it."""


class Lease(NamedTuple):
    """Who owns a store that several processes share."""

    epoch: int
    """Rises with each change of the owner."""
    heartbeat: int
    """Rises while the owner is alive. It never goes back, also not when the owner changes."""
    owner_text: str
    """The host and the process of the owner; empty if it has released the store."""


@dataclass(slots=True)
class StoreContent:
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
    def commits_inline(self) -> bool:
        """Whether the event loop itself may call `commit` for small batches while that is quick. Cheap; asked before
        each commit."""

    shares_ownership: bool
    """If True, the store is a `SharedStore`: several processes can open it, and one of them owns it. If False, who has
    opened it owns it."""

    postpones: bool
    """If True, commits postpone work, which a commit of no records finishes."""

    def measure_room(self) -> bool:
        """Measures `room`. Returns whether new messages may be stored: not if the remaining space is needed for
        completing the stored messages. A disk that does not answer may hold the call for ever."""

    @property
    def room(self) -> Room:
        """How much more can be stored, as last measured. Commits measure it as well, the more often the less it is. Needs
        no system call; may be called at any time."""

    def exists(self) -> bool:
        """Returns whether the store was created. To be called before `open`, which creates it."""

    def open(self) -> None:
        """Opens the store, and creates or migrates it if needed. Raises `StoreUnusable`."""

    def load(self) -> StoreContent:
        """Returns everything that was committed."""

    def commit(self, records: Sequence[Record]) -> None:
        """Writes all records durably, or none. Raises `StorageFull` or `StorageError`.

        Records take effect in their order. After `StorageFull` the store is as it was and usable.
        """

    @property
    def maintenance_is_due(self) -> bool:
        """Whether `maintain` should be called soon. Cheap; asked after each commit."""

    @property
    def background_commits(self) -> BackgroundCommits | None:
        """The commits that the store writes while the caller goes on; None if it cannot."""

    def maintain(self) -> None:
        """Does work of the store that no client waits for. Called in a thread of its own, beside commits and
        reads."""

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        """Returns body and annotations of the payloads that exist, by id."""

    def close(self) -> None:
        """Closes the store. What was committed stays."""


class BackgroundCommits(Protocol):
    """Commits that do not block who begins them. Who writes them needs no interpreter lock, so that a busy event loop does
    not delay them. Nothing else is committed from `begin` to `end`. Both are called on the event loop."""

    @property
    def needs_thread(self) -> bool:
        """Whether a thread writes also if the caller waits. To wake it costs more than a small commit."""

    @property
    def descriptor(self) -> int:
        """A file descriptor that is readable when `end` returns at once."""

    def begin(self, records: Sequence[Record], *, caller_waits: bool = False) -> bool:
        """Begins a commit. Returns False, and begins nothing, if `Store.commit` has to write it: then there is more to do
        before it is written. `caller_waits` says that `end` follows as soon as it can, whether the descriptor is readable
        or not."""

    def end(self) -> bool:
        """Ends a commit. Waits for it if needed. Returns True if it is durable, and False if nothing was written and
        `Store.commit` has to write it. Raises as `Store.commit` does."""

    @property
    def examination_is_due(self) -> bool:
        """Whether the files and the disk should be examined before the next answers leave. `Store.commit` does that
        itself."""

    def examine(self) -> None:
        """Examines the files and the disk, which may take as long as a commit. May be called between `begin` and `end`.
        Raises `StoreUnusable` if the files were deleted or replaced: then nothing that was written since is kept."""


class SharedStore(Store, Protocol):
    """A store that several processes can open at the same time. Only its owner loads and commits.

    `open` does not take the ownership. Each owner has an epoch, and every commit checks it within its transaction. So
    no clock decides who may commit. Methods are called in threads, and may be called beside `commit`. All raise
    `StoreUnavailable`.
    """

    def try_acquire(self) -> bool:
        """Takes the ownership if no process has it. Returns whether this store has it now."""

    def take_over(self, seen_heartbeat: int) -> bool:
        """Takes the ownership although another process has it, if the heartbeat is still `seen_heartbeat`.

        The caller has waited for the lease time since it saw this heartbeat. Returns whether this store is the owner.
        """

    def heartbeat(self) -> None:
        """Shows other processes that the owner is alive. Raises `OwnershipLost`."""

    def duplicate_session_socket(self) -> int | None:
        """Returns a file descriptor that is readable when the database has ended the session of the owner, or None if
        there is none, or none is free. The caller closes it. Called on the event loop, and not beside the other methods."""

    def read_lease(self) -> Lease:
        """Returns who owns the store. Needs no ownership."""

    def release(self) -> None:
        """Gives the ownership up, so that another process can acquire it at once. This process is no owner afterwards,
        also if it raises."""

    def interrupt(self) -> None:
        """The ownership has ended: whatever waits for the database fails soon with `StoreUnavailable`, until the
        ownership is released or acquired. Nobody may rely on the outcome of an interrupted commit. May be called on
        the event loop."""


def as_shared(store: Store) -> SharedStore | None:
    """Returns the store if several processes can share it."""
    return cast("SharedStore", store) if store.shares_ownership else None
