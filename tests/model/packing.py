"""Packs waiting messages again after the model has read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.queues.block_packing import pack_block

if TYPE_CHECKING:
    from broker.core.namespace import Namespace


def pack_all(namespace: Namespace) -> int:
    """Packs every block that can be packed, as the broker does when there are very many messages.
    Returns how many were packed."""
    packed = 0
    for entity in namespace._directory:
        for queue in entity.queues:
            for key in list(queue.index.blocks):
                pack_block(queue, (key + 1) * queue.index.block_size - 1)
            packed += len(queue.index.packed)
    return packed
