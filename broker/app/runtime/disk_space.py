"""Tells the namespaces how much the store can take, and refuses all sends while it has no room for messages.

Clients may retry them, and can still receive and complete messages, which frees space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from broker.core.contract.errors import ServerBusy
from broker.core.contract.storage_room import StorageRoom
from config.model.storage_urls import mask_password

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract.errors import BrokerError
    from broker.core.contract.turn import Turn
    from broker.core.namespace import Namespace
    from storage.contract import Store

log = structlog.get_logger("peeklock.core")

FULL_DISK_FIX = "Receive messages, or free space on it; sends are refused until then."


class DiskSpace:
    """Whether the store has room, as the namespaces know it."""

    def __init__(self, store: Store, url: str, namespaces: Mapping[str, Namespace]) -> None:
        self._store = store
        self._url = mask_password(url)
        self._namespaces = namespaces
        self._has_room = True
        self.room = StorageRoom()
        """What the namespaces may accept while sends are not refused."""
        self.sends_refused: BrokerError | None = None
        """The error for sends while there is no room."""

    def begin_again(self) -> bool:
        """Checks the room for new namespaces, which refuse no sends yet. Returns True if there is room again."""
        self._has_room = True
        self.sends_refused = None
        self.room.forget_unstored()
        return self.check()

    def stored(self, turn: Turn) -> None:
        """A turn is stored. Says what room is left now."""
        self.room.stored(turn)
        self.room.set_measured(*self._store.room)

    def check(self) -> bool:
        """Refuses or accepts sends if the room has changed. Returns True if there is room again."""
        has_room = self._store.has_room
        self.room.set_measured(*self._store.room)
        if has_room == self._has_room:
            return False
        self._has_room = has_room
        self.sends_refused = None
        if has_room:
            log.info("storage.has_room", storage=self._url)
        else:
            log.error("storage.full", storage=self._url, fix=FULL_DISK_FIX)
            self.sends_refused = ServerBusy(f"The broker's disk is full. {FULL_DISK_FIX}")
        for namespace in self._namespaces.values():
            namespace.refuse_sends(self.sends_refused)
        return has_room
