"""How much more the store can take, as the core knows it.

The application sets it whenever the store has measured its space, and all namespaces of a store share it. The core
subtracts what it has accepted since then, so that messages which come together are counted together. A store that needs
its remaining space for completing messages is full: then every send is refused, however small it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import ServerBusy

if TYPE_CHECKING:
    from broker.core.contract.turn import Turn

SCARCE_BYTES = 1 << 30
"""While the store has more room than this, nothing is counted: clients cannot have more than this waiting for a commit,
because reading stops far below it."""
MESSAGE_BYTES = 512
"""What the store needs for a message besides its body: its row, and its id for duplicate detection, which is in a table
and in an index."""
COPY_BYTES = 32
"""What it needs for each copy on a subscription. Copies share the body."""

FULL_DISK_FIX = "Receive messages, or free space on it; sends are refused until then."


def needed_bytes(body_bytes: int, messages: int, copies: int) -> int:
    """Returns how much of the room messages need, with so many copies of all of them together."""
    return body_bytes + MESSAGE_BYTES * messages + COPY_BYTES * copies


class StorageRoom:
    """The room of one store."""

    __slots__ = ("_message_bytes", "_state_bytes", "_unstored_bytes", "is_scarce", "refusal")

    def __init__(self) -> None:
        self._message_bytes = self._state_bytes = SCARCE_BYTES
        self._unstored_bytes = 0
        self.is_scarce = False
        """Whether what is accepted has to be counted."""
        self.refusal: ServerBusy | None = None
        """The error for all sends while the store is full."""

    @property
    def is_full(self) -> bool:
        """Whether all sends are refused."""
        return self.refusal is not None

    def set_full(self, *, is_full: bool) -> None:
        """Refuses all sends, or accepts them again."""
        self.refusal = (
            ServerBusy(f"The broker's disk is full. {FULL_DISK_FIX}") if is_full else None
        )

    def set_measured(self, message_bytes: int, state_bytes: int) -> None:
        """The store can take so many bytes of messages, or of session states, with what is not stored yet."""
        self._message_bytes = message_bytes
        self._state_bytes = state_bytes
        self.is_scarce = message_bytes < SCARCE_BYTES

    def forget_unstored(self) -> None:
        """Nothing waits to be stored any more: the namespaces were restored from the store."""
        self._unstored_bytes = 0

    def has(self, size_bytes: int) -> bool:
        """Returns whether messages of this size can be stored."""
        return size_bytes <= self._message_bytes - self._unstored_bytes

    def check(self, size_bytes: int) -> None:
        """Raises `ServerBusy` if messages of this size cannot be stored."""
        if not self.has(size_bytes):
            raise self.error(size_bytes)

    def check_state(self, size_bytes: int) -> None:
        """Raises `ServerBusy` if a session state of this size cannot be stored."""
        if size_bytes > self._state_bytes - self._unstored_bytes:
            raise self.error(size_bytes)

    def error(self, size_bytes: int) -> ServerBusy:
        """Returns the error for something of this size."""
        left_bytes = max(0, self._message_bytes - self._unstored_bytes)
        return ServerBusy(
            f"The broker's disk has no room for {size_bytes} bytes: about {left_bytes} are left for messages. "
            "Receive messages, free space on it, or send less."
        )

    def take(self, size_bytes: int, turn: Turn) -> None:
        """Subtract what was accepted, until its turn is stored."""
        self._unstored_bytes += size_bytes
        turn.unstored_bytes += size_bytes

    def stored(self, turn: Turn) -> None:
        """A turn is stored. The next measurement of the store includes it."""
        self._unstored_bytes -= turn.unstored_bytes
