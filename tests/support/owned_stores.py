"""Opens a store and takes its ownership, as a broker that starts does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.contract import as_shared

if TYPE_CHECKING:
    from storage.contract import Store


def open_as_owner(store: Store) -> None:
    """Opens a store that no process owns."""
    store.open()
    shared = as_shared(store)
    assert shared is None or shared.try_acquire()
