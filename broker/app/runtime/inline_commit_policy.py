"""Decides whether the event loop commits a batch itself, or leaves it to the background or the commit thread.

Changing threads costs more than a small commit on a quick disk: two wake-ups, and every step of the commit waits
for the interpreter lock. If nothing else is to be done, everybody would wait for that commit anyway. So the event
loop commits small batches inline as long as such commits are quick. A commit that takes long must not stop
the event loop, so slow disks and large batches are left to the other ways (`batch_commit.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.records import (
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    SessionStateSet,
)
from broker.core.contract.sent_rows import payload_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.records import Record
    from broker.core.contract.turn import Turn

SMALL_WEIGHT = 64
"""A larger batch takes long enough for the event loop to do useful work meanwhile."""
SMALL_BYTES = 64 * 1024
"""The limit of the bodies in a small batch."""
QUICK_S = 0.002
"""Above this average nothing is committed inline: then changing threads costs little in comparison."""
NEWEST_SHARE = 1 / 16
"""The share of the last commit in the average. Four commits of ten milliseconds are enough to commit inline no longer."""
COUNTED_MAX_S = 8 * QUICK_S
"""A commit counts as no longer than this: a process that waits for the processor does not have a slow disk."""
STALL_S = 0.05
"""A single inline commit that takes so long is enough to commit inline no longer."""
SLOW_FACTOR = 20
"""After slow inline commits nothing is committed inline for so many times the duration of the last one. Hence stalls do not
stop the event loop for more than a twentieth of the time, however seldom or often the disk stalls."""
NOT_INLINE_MAX_S = 60.0
"""The longest time before inline commits are tried again."""

SMALL_KINDS: frozenset[type[Record]] = frozenset(
    {MessagesStored, MessagesUpdated, MessagesDeleted, MessageIdsSeen, SessionStateSet}
)
"""Records whose weight and bytes tell how long they take. The others change an unknown number of rows."""


class InlineCommitPolicy:
    """Measures commits, and decides by them."""

    def __init__(self, stopwatch_s: Callable[[], float]) -> None:
        self._stopwatch_s = stopwatch_s
        self._average_s = 0.0
        """The moving average of small commits. Those beside the event loop count as well: they show without any harm whether
        the disk has become quick."""
        self._not_inline_until_s = 0.0

    def allows(self, turn: Turn) -> bool:
        """Returns whether the event loop should commit this batch itself."""
        return (
            self._average_s <= QUICK_S
            and is_small(turn)
            and self._stopwatch_s() >= self._not_inline_until_s
        )

    def note(self, seconds: float, *, inline: bool) -> None:
        """Records how long the commit of a small batch took."""
        self._average_s += (min(seconds, COUNTED_MAX_S) - self._average_s) * NEWEST_SHARE
        if inline and (self._average_s > QUICK_S or seconds >= STALL_S):
            delay_s = min(seconds * SLOW_FACTOR, NOT_INLINE_MAX_S)
            self._not_inline_until_s = self._stopwatch_s() + delay_s


def is_small(turn: Turn) -> bool:
    """Returns whether the commit of a batch takes no longer than that of a single message on most disks."""
    if turn.weight > SMALL_WEIGHT:
        return False
    size_bytes = 0
    for record in turn.records:
        if type(record) not in SMALL_KINDS:
            return False
        size_bytes += _size_bytes(record)
    return size_bytes <= SMALL_BYTES


def _size_bytes(record: Record) -> int:
    """Returns the bytes of bodies, annotations, changes and session states in a record."""
    if isinstance(record, MessagesStored):
        return payload_bytes(record.payloads)
    if isinstance(record, MessagesUpdated):
        return sum([len(row.changes) for row in record.rows if row.changes])
    if isinstance(record, SessionStateSet):
        return len(record.state or b"")
    return 0
