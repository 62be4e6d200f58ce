"""Writes in the background: of the kernel, or of the thread."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from mmap import PROT_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.native.compiled import SyncedWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_MS = 30_000
LOOKS = 100_000_000
"""Some seconds."""


class Written:
    """A writer, the descriptor that it makes readable, and a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done = os.eventfd(0, os.EFD_NONBLOCK)
        self.writer = SyncedWriter(self.done)
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT)

    def is_done(self, timeout_ms: int) -> bool:
        poll = select.poll()
        poll.register(self.done, select.POLLIN)
        return bool(poll.poll(timeout_ms))


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    written = Written(tmp_path / "file")
    yield written
    written.writer.close()
    os.close(written.file)
    os.close(written.done)


def test_bytes_are_written_at_their_position(written: Written):
    """One write after the other; each is announced once."""
    for number, data in enumerate((b"one", b"three", b"x" * 3_000_000)):
        written.writer.begin(written.file, data, 10 * number, False, False)
        assert written.is_done(TIMEOUT_MS)
        assert 0 == written.writer.end()
        assert not written.is_done(0)
    assert b"one" + bytes(7) + b"three" + bytes(5) == written.path.read_bytes()[:20]
    assert 3_000_020 == written.path.stat().st_size


def test_the_end_waits_for_the_write(written: Written):
    """For a store that is closed meanwhile, for instance."""
    for number in range(200):
        written.writer.begin(written.file, b"%08d" % number, 8 * number, False, False)
        assert 0 == written.writer.end()
    assert b"".join(b"%08d" % number for number in range(200)) == written.path.read_bytes()


def test_an_error_of_the_write_is_returned(written: Written):
    """The next write is tried as if nothing had happened."""
    reading = os.open(written.path, os.O_RDONLY)
    written.writer.begin(reading, b"data", 0, False, False)
    assert written.is_done(TIMEOUT_MS)
    assert errno.EBADF == written.writer.end()
    written.writer.begin(written.file, b"data", 0, False, False)
    assert 0 == written.writer.end()
    os.close(reading)


def test_a_file_that_cannot_be_written_and_synced_with_one_call_gets_two(written: Written):
    """A pipe has no positions, so that neither call can write it. A device takes the second call, and has no room."""
    full = os.open("/dev/full", os.O_WRONLY)
    reading, writing = os.pipe()
    for file, errors in ((full, {errno.ENOSPC}), (writing, {errno.ESPIPE})):
        written.writer.begin(file, b"data", 0, False, False)
        assert written.writer.end() in errors
    for file in (full, reading, writing):
        os.close(file)


PROGRAM = """
import os, sys
from storage.native.compiled import SyncedWriter
done = os.eventfd(0)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
writer = SyncedWriter(done)
writer.begin(file, b"data", 3, False, False)
sys.exit(writer.end())
"""


@pytest.mark.parametrize("refusing", ["pwritev2", "fdatasync"])
def test_both_calls_are_made_where_one_is_not_enough(written: Written, refusing: str):
    """On a system without the first call, the second syncs. Its error is the error of the write."""
    library = written.path.with_suffix(".so")
    source = "#include <errno.h>\n"
    for name in ("pwritev2", "pwritev64v2"):  # the same function
        source += f"long {name}() {{ errno = ENOSYS; return -1; }}\n"
    if refusing == "fdatasync":
        source += "int fdatasync(int file) { errno = EIO; return -1; }\n"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(written.path)],
        env=os.environ | {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}"},
        check=False,
    )
    assert (errno.EIO if refusing == "fdatasync" else 0) == done.returncode
    assert bytes(3) + b"data" == written.path.read_bytes()


def test_only_one_write_runs_at_a_time(written: Written):
    """The second would be lost."""
    written.writer.begin(written.file, b"first", 0, False, False)
    with pytest.raises(RuntimeError, match="has begun"):
        written.writer.begin(written.file, b"other", 0, False, False)
    assert 0 == written.writer.end()
    assert b"first" == written.path.read_bytes()


def test_a_write_that_has_not_begun_does_not_end(written: Written):
    """It would never return."""
    with pytest.raises(RuntimeError, match="no write has begun"):
        written.writer.end()


@pytest.mark.parametrize("begun", [False, True])
def test_a_closed_writer_has_written_what_had_begun(written: Written, *, begun: bool):
    """Closing waits for it, and takes no more."""
    if begun:
        written.writer.begin(written.file, b"data", 0, False, False)
    written.writer.close()
    written.writer.close()
    assert (b"data" if begun else b"") == written.path.read_bytes()
    with pytest.raises(RuntimeError, match="closed"):
        written.writer.begin(written.file, b"more", 0, False, False)
    with pytest.raises(RuntimeError, match="no write has begun"):
        written.writer.end()


def _threads() -> set[str]:
    return {path.name for path in Path("/proc/self/task").iterdir()}


def test_a_writer_that_is_dropped_ends_its_thread(written: Written):
    """Nobody has to remember to close it."""
    before = _threads()
    for _ in range(20):
        writer = SyncedWriter(written.done)
        writer.begin(written.file, b"data", 0, False, False)
        del writer
    assert before >= _threads()


def test_a_busy_interpreter_does_not_delay_a_write(written: Written):
    """The thread never needs the interpreter lock, which this loop does not give up: it makes no system call."""
    os.pwrite(written.file, bytes(4096), 0)
    interval_s = sys.getswitchinterval()
    with written.path.open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ) as mapped:
        sys.setswitchinterval(3600.0)
        try:
            written.writer.begin(written.file, b"data", 0, False, False)
            is_written = any(mapped[0] for _ in range(LOOKS))
        finally:
            sys.setswitchinterval(interval_s)
    assert is_written
    assert 0 == written.writer.end()


def test_arguments_are_checked(written: Written):
    """It takes bytes, and what has their form."""
    with pytest.raises(TypeError):
        written.writer.begin(written.file, "text", 0, False, False)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        SyncedWriter("done")  # type: ignore[arg-type]


def test_the_bytes_do_not_go_away_while_they_are_written(written: Written):
    """Whoever has them can neither free them nor make them longer."""
    data = bytearray(b"data")
    written.writer.begin(written.file, data, 0, False, False)
    with pytest.raises(BufferError):
        data.clear()
    written.writer.end()
    data.clear()
    assert b"data" == written.path.read_bytes()


# --- the kernel --------------------------------------------------------------------------------


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[Written]:
    """A file that bypasses the page cache."""
    written = Written(tmp_path / "direct")
    os.close(written.file)
    written.file = os.open(written.path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    yield written
    written.writer.close()
    os.close(written.file)
    os.close(written.done)


def aligned(content: bytes) -> memoryview:
    """The content at an address that a direct write needs."""
    memory = mmap(-1, len(content))
    memory[:] = content
    return memoryview(memory)


@pytest.mark.parametrize("caller_waits", [False, True])
def test_what_bypasses_the_page_cache_is_written(direct: Written, *, caller_waits: bool):
    """By the kernel if the caller waits: then no thread is started, and nothing is announced. By the thread otherwise."""
    before = _threads()
    contents = [bytes([number]) * 4096 * number for number in range(1, 20)]
    os.pwrite(direct.file, aligned(bytes(sum(map(len, contents)))), 0)
    position = 0
    for content in contents:
        direct.writer.begin(direct.file, aligned(content), position, True, caller_waits)
        if not caller_waits:
            assert direct.is_done(TIMEOUT_MS)
        assert 0 == direct.writer.end()
        assert not direct.is_done(0)
        position += len(content)
    assert b"".join(contents) == direct.path.read_bytes()
    assert (True, caller_waits) == (direct.writer.uses_kernel, before == _threads())


def test_an_error_of_the_kernel_is_returned(direct: Written):
    """Here it refuses the file at once, and the thread finds the same error. The kernel is asked again for the next."""
    reading = os.open(direct.path, os.O_RDONLY | os.O_DIRECT)
    direct.writer.begin(reading, aligned(bytes(4096)), 0, True, True)
    assert errno.EBADF == direct.writer.end()
    assert direct.writer.uses_kernel
    direct.writer.begin(direct.file, aligned(b"x" * 4096), 0, True, True)
    assert 0 == direct.writer.end()
    assert b"x" * 4096 == direct.path.read_bytes()
    os.close(reading)


def test_a_closed_writer_has_written_what_the_kernel_had_begun(direct: Written):
    """Closing waits for it, and syncs it."""
    direct.writer.begin(direct.file, aligned(b"x" * 4096), 0, True, True)
    direct.writer.close()
    assert b"x" * 4096 == direct.path.read_bytes()
    with pytest.raises(RuntimeError, match="closed"):
        direct.writer.begin(direct.file, aligned(b"y" * 4096), 0, True, True)


KERNEL_PROGRAM = """
import os, sys
from mmap import mmap
from storage.native.compiled import SyncedWriter
done = os.eventfd(0, os.EFD_NONBLOCK)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
writer = SyncedWriter(done)
memory = mmap(-1, 4096)
error = 0
for number in range(8):
    memory[:4] = b"%04d" % number
    writer.begin(file, memory, 4096 * number, True, True)
    error = writer.end() or error
print(writer.uses_kernel, error)
"""
FAULTY_KERNELS = {
    "missing": ("errno = ENOSYS; return -1;", "return 0;", (False, 0)),
    "forbidden": ("errno = EPERM; return -1;", "return 0;", (False, 0)),
    "busy": ("errno = EAGAIN; return -1;", "return 0;", (True, 0)),
    "short": ("return 1;", "events->res = 2048; return 1;", (True, 0)),
    "unsupported": ("return 1;", "events->res = -EINVAL; return 1;", (True, 0)),
    "interrupted": ("return 1;", "events->res = -EINTR; return 1;", (True, 0)),
    "failing": ("return 1;", "events->res = -EIO; return 1;", (True, errno.EIO)),
}
"""What io_submit and io_getevents do; whether the kernel is asked again, and the error of a write."""
FAULTY_SOURCE = """
#include <errno.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <sys/syscall.h>
static long submit(void) { %(submit)s }
static long getevents(struct io_event *events) { %(getevents)s }
long syscall(long number, ...) {
    va_list rest;
    va_start(rest, number);
    for (int place = 0; place < 3; place++) va_arg(rest, long);
    if (number == SYS_io_submit) return submit();
    return number == SYS_io_getevents ? getevents(va_arg(rest, struct io_event *)) : 0;
}
"""


@pytest.mark.parametrize("fault", FAULTY_KERNELS)
def test_what_the_kernel_does_not_write_is_written_otherwise(tmp_path: Path, fault: str):
    """A kernel that never will is not asked again. Only an error of the disk is an error."""
    submit, getevents, expected = FAULTY_KERNELS[fault]
    library, path = tmp_path / "kernel.so", tmp_path / "file"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    source = FAULTY_SOURCE % {"submit": submit, "getevents": getevents}
    subprocess.run(command, input=source, text=True, check=True)
    done = subprocess.run(
        [sys.executable, "-c", KERNEL_PROGRAM, str(path)],
        env=os.environ | {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    uses_kernel, error = expected
    assert f"{uses_kernel} {error}\n" == done.stdout
    if not error:
        written = path.read_bytes()
        assert [b"%04d" % number for number in range(8)] == [
            written[at : at + 4] for at in range(0, len(written), 4096)
        ]
