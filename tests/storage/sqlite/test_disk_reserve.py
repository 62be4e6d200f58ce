"""The file that reserves disk space: it counts only if it has the space."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from storage.sqlite.disk_reserve import RESERVE_SHARE, DiskReserve
from tests.support.small_disks import small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK_BYTES = 32 << 20
RESERVE_BYTES = DISK_BYTES // RESERVE_SHARE


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The path of the reserve on a small disk."""
    with small_disk(tmp_path, DISK_BYTES):
        yield tmp_path / "peeklock.db.reserve"


def leave_free(path: Path, size_bytes: int) -> None:
    """Another program fills the disk except for so many bytes."""
    with path.with_name("another program").open("wb") as file:
        file.write(bytes(free_bytes(path) - size_bytes))


def free_bytes(path: Path) -> int:
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize


def allocated_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def reserve(path: Path) -> DiskReserve:
    """As a start of the broker does."""
    reserve = DiskReserve(path)
    reserve.reserve()
    return reserve


def test_the_reserve_has_its_space_until_it_is_released(path):
    """A later start finds it, also on a full disk."""
    assert RESERVE_BYTES == reserve(path).held_bytes
    leave_free(path, 0)
    found = reserve(path)
    assert RESERVE_BYTES == found.held_bytes
    found.release()
    assert 0 == found.held_bytes
    assert RESERVE_BYTES == free_bytes(path)


def test_a_reserve_that_another_program_took_the_space_of_is_not_held(path, monkeypatch):
    """It took the space after it was measured. The next attempt finds no file that looks like a reserve."""
    allocate = os.posix_fallocate

    def allocate_too_late(file: int, start: int, size_bytes: int) -> None:
        monkeypatch.undo()
        leave_free(path, RESERVE_BYTES // 2)
        allocate(file, start, size_bytes)

    monkeypatch.setattr(os, "posix_fallocate", allocate_too_late)
    found = reserve(path)
    assert 0 == found.held_bytes
    assert not path.exists()
    assert found.measure_is_low()
    assert 0 == found.held_bytes
    path.with_name("another program").unlink()
    assert not found.measure_is_low()
    assert RESERVE_BYTES == found.held_bytes == allocated_bytes(path)


@pytest.mark.parametrize("allocated", [0, RESERVE_BYTES // 2])
def test_an_allocation_beyond_the_quota_leaves_no_file(path, monkeypatch, allocated):
    """Some file systems keep what they allocated before they failed."""
    allocate = os.posix_fallocate

    def refuse(file: int, start: int, size_bytes: int) -> None:
        if allocated:
            allocate(file, start, allocated)
        raise OSError(errno.EDQUOT, "quota exceeded")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    for _ in range(2):
        assert 0 == reserve(path).held_bytes
        assert not path.exists()


@pytest.mark.parametrize("length", [0, RESERVE_BYTES])
@pytest.mark.parametrize("allocated", [0, RESERVE_BYTES // 2])
def test_an_incomplete_file_is_completed(path, length, allocated):
    """A process was killed before it had allocated all of it, an older broker reserved less, or a copy has holes."""
    with path.open("wb") as file:
        file.truncate(length)
        if allocated:
            os.posix_fallocate(file.fileno(), 0, allocated)
    assert RESERVE_BYTES == reserve(path).held_bytes == allocated_bytes(path)


def test_an_incomplete_file_on_a_full_disk_is_not_held_and_its_space_is_released(path):
    """It stays until then, because another program would take its space."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES // 2)
    leave_free(path, 0)
    found = reserve(path)
    assert 0 == found.held_bytes
    assert found.measure_is_low()
    assert RESERVE_BYTES // 2 == allocated_bytes(path)
    found.release()
    assert RESERVE_BYTES // 2 == free_bytes(path)


def test_a_disk_that_compresses_zeros_accepts_messages(path, monkeypatch):
    """The file never seems to have its space there. It counts if the file system says that it is allocated, and if there is
    as much space as a new file needs."""

    def allocate(file: int, start: int, size_bytes: int) -> None:
        os.ftruncate(file, start + size_bytes)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    for _ in range(2):
        found = reserve(path)
        assert not found.measure_is_low()
        assert RESERVE_BYTES == found.held_bytes
        assert 0 == allocated_bytes(path)
    leave_free(path, RESERVE_BYTES)
    found = reserve(path)
    assert found.measure_is_low()
    assert 0 == found.held_bytes


def test_a_disk_that_cannot_allocate_gets_zeros(path, monkeypatch):
    """The C library musl leaves that to its callers."""

    def refuse(file: int, start: int, size_bytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert RESERVE_BYTES == reserve(path).held_bytes == allocated_bytes(path)
