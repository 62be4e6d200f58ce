"""A process that uses a store, for tests of what other processes see and what a kill leaves.

Run as `python -m tests.storage.store_process ROLE PATH`. `hold` opens the file, says so and waits to be ended.
`write` commits batches without end, and names each on its standard output once durable; `rewrite` does the same, and
writes old blocks again with nearly every commit. `migrate` stops in the middle of a migration, says so and waits to be
ended.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from broker.core.contract.records import MessagesDeleted, MessagesStored, MessagesUpdated
from storage.blocks import compaction
from storage.sqlite.migrations import BlockOfMessages
from storage.sqlite.store import SqliteStore
from tests.storage.sample_records import payload, row

BATCH_MESSAGES = 40
KEPT_BATCHES = 25


def batch_of(number: int) -> range:
    """The ids of the messages of a batch."""
    return range(number * BATCH_MESSAGES, (number + 1) * BATCH_MESSAGES)


def write(store: SqliteStore) -> None:
    """Batch after batch: each adds messages, touches those before it and drops old ones."""
    first = (store.load().highest_message_id + BATCH_MESSAGES) // BATCH_MESSAGES
    for number in count(first):
        added, touched, dropped = (
            batch_of(number),
            batch_of(number - 1),
            batch_of(number - KEPT_BATCHES),
        )
        store.commit(
            [
                MessagesStored(
                    [row(message_id) for message_id in added],
                    [payload(message_id, b"%d" % message_id * 200) for message_id in added],
                ),
                MessagesUpdated(
                    [row(message_id, delivery_count=1) for message_id in touched if number > first]
                ),
                MessagesDeleted(dropped, dropped),
            ]
        )
        print(number, flush=True)


def stop_migration() -> None:
    """Waits when the third block is written."""
    finalize = BlockOfMessages.finalize
    finished = count(1)

    def finalize_or_wait(block: BlockOfMessages) -> bytes:
        if next(finished) == 3:
            print("half", flush=True)
            sys.stdin.read()
        return finalize(block)

    setattr(BlockOfMessages, "finalize", finalize_or_wait)  # noqa: B010 -- the type of a method differs


def main(role: str, path: str) -> None:
    if role == "migrate":
        stop_migration()
    elif role == "rewrite":
        compaction.SMALL_BLOCKS_MAX = 3
        compaction.DEAD_MAX_BYTES = 10_000
    store = SqliteStore(Path(path))
    store.open()
    if role == "hold":
        print("held", flush=True)
        sys.stdin.read()
    else:
        write(store)


if __name__ == "__main__":
    main(*sys.argv[1:])
