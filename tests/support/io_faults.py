"""File calls of a broker process that fail on demand: `io_faults.c`, compiled and controlled.

`with IoFaults(folder) as faults:` gives the environment to start the process with; `faults.strike`
then makes the calls of a kind fail, once or for good, for files in that folder.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import tempfile
from enum import IntFlag
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

SOURCE = Path(__file__).with_name("io_faults.c")
FOR_GOOD = -1
SHORT_WRITE = 0
"""Instead of an error number: half of the bytes are written, and the call returns how many."""
HOLD = -1
"""Instead of an error number: the calls wait until `IoFaults.stop`, and then succeed."""

_CONTROL = struct.Struct("=iiiii12x")


class Calls(IntFlag):
    """Kinds of calls that can fail, with the same values as in `io_faults.c`."""

    WRITE = 1
    SYNC = 2
    TRUNCATE = 4
    STAT = 8
    STATVFS = 16
    READ = 64
    EXTEND = 128
    """Writes behind the end of a file, which need room on the disk."""


class IoFaults:
    """Faults for the files below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = tempfile.TemporaryDirectory(prefix="peeklock-faults-")
        own = Path(self._own.name)
        self._control_path = own / "control"
        self._library = own / "io_faults.so"
        self._memory: mmap.mmap | None = None

    def __enter__(self) -> Self:
        compiler = os.environ.get("CC", "gcc")
        build = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(build, check=True)
        self._control_path.write_bytes(bytes(_CONTROL.size))
        # The process may run as another user.
        self._control_path.parent.chmod(0o755)
        self._control_path.chmod(0o666)
        with self._control_path.open("r+b") as control:
            self._memory = mmap.mmap(control.fileno(), _CONTROL.size)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._memory is not None:
            self._memory.close()
        self._own.cleanup()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which the process must be started."""
        return {
            "LD_PRELOAD": str(self._library),
            "IO_FAULTS_CONTROL": str(self._control_path),
            "IO_FAULTS_PREFIX": str(self._folder),
        }

    def strike(self, calls: Calls, error: int, *, skip: int = 0, times: int = FOR_GOOD) -> None:
        """Lets `skip` calls pass, then makes `times` calls fail with this error number."""
        assert self._memory is not None
        # The kinds of calls are written last: they are what arms it.
        self._memory[:] = _CONTROL.pack(0, error, skip, times, 0)
        self._memory[0:4] = struct.pack("=i", calls)

    def stop(self) -> None:
        """Makes all calls succeed again."""
        assert self._memory is not None
        self._memory[0:4] = bytes(4)

    @property
    def hits(self) -> int:
        """How many calls have failed since the last `strike`."""
        assert self._memory is not None
        return int(_CONTROL.unpack(self._memory[:])[4])
