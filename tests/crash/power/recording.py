"""Records the file calls of a broker: compiles `recorder.c`, and reads its records.

Defines the format of the records. `disk.py` simulates power cuts with them.
"""

from __future__ import annotations

import os
import struct
import subprocess
import time
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("recorder.c")
_HEAD = struct.Struct("=QQQQQ")


class Kind(IntEnum):
    """As in the source; the last is our own."""

    WRITE = 1
    TRUNCATE = 2
    SYNC_BEGIN = 3
    SYNC_END = 4
    CREATE = 5
    UNLINK = 6
    RENAME = 7
    KILLED = 8
    """The process was killed; the data is where its files were copied to right afterwards."""


class Call(NamedTuple):
    """One call that succeeded."""

    kind: Kind
    time_ns: int
    """By the monotonic clock, which clients read too."""
    inode: int
    offset: int
    data: bytes


class Recording:
    """Records every file call of processes that run with its environment, below one folder."""

    def __init__(self, folder: Path, own: Path) -> None:
        self._folder = folder
        self._path = own / "calls"
        self._library = own / "recorder.so"
        compiler = os.environ.get("CC", "gcc")
        flags = ["-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE)]
        subprocess.run([compiler, *flags, "-ldl", "-lpthread"], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """What the process has to be started with."""
        return {
            "LD_PRELOAD": str(self._library),
            "IO_RECORD": str(self._path),
            "IO_RECORD_PREFIX": str(self._folder),
        }

    def note_kill(self, copy: Path) -> None:
        """A killed process may have made one call that it could not record. Its files show that."""
        text = str(copy).encode()
        with self._path.open("ab") as records:
            head = _HEAD.pack(Kind.KILLED, time.monotonic_ns(), 0, 0, len(text))
            records.write(head + text)

    def calls(self) -> Iterator[Call]:
        """All of them in their order. A record that a kill cut short is left out."""
        with self._path.open("rb") as records:
            while len(head := records.read(_HEAD.size)) == _HEAD.size:
                kind, time_ns, inode, offset, size = _HEAD.unpack(head)
                yield Call(Kind(kind), time_ns, inode, offset, records.read(size))
