"""A process that uses a store, for tests of what other processes see and what a kill leaves.

Run as `python -m tests.storage.store_process hold|write PATH`. `hold` opens the file, says so and waits to
be ended. `write` commits batches without end, and names each on its standard output once durable.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from broker.core.contract.records import MessagesDeleted, MessagesStored, MessagesUpdated
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


def main(role: str, path: str) -> None:
    store = SqliteStore(Path(path))
    store.open()
    if role == "hold":
        print("held", flush=True)
        sys.stdin.read()
    else:
        write(store)


if __name__ == "__main__":
    main(*sys.argv[1:])
