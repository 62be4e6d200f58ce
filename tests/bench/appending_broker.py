"""A broker in memory that appends 1 KiB to a file for each commit, and syncs it: the least that a durable broker does.

Through an SDK, an append takes longer than in a series of appends, because disk and processors pause between two
commits. So the commits of a store are compared with the appends of this broker, under the same load.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from broker.__main__ import main
from storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.records import Record

VARIABLE = "BENCH_APPENDED_FILE"
BLOCK = bytes(1024)


def append_each_commit(path: str) -> None:
    """From now on, a commit to a store in memory is followed by an append."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    commit = MemoryStore.commit

    def commit_and_append(store: MemoryStore, records: Sequence[Record]) -> None:
        commit(store, records)
        if os.write(descriptor, BLOCK) < len(BLOCK):
            raise OSError(f"{path}: the disk is full")
        os.fdatasync(descriptor)

    MemoryStore.commit = commit_and_append  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    append_each_commit(os.environ[VARIABLE])
    sys.exit(main())
