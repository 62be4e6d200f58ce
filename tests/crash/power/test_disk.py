"""The model of a disk: synced data stays, other data may be torn, and nothing else appears."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.crash.power.disk import SECTOR_BYTES, Disk, File, Pending, Tear, sectors, torn
from tests.crash.power.recording import Call, Kind, Recording

if TYPE_CHECKING:
    from pathlib import Path

FILE, FOLDER = 7, 1
NAME = b"/store/a.db"


def call(kind: Kind, inode: int = FILE, offset: int = 0, data: bytes = b"") -> Call:
    return Call(kind, 0, inode, offset, data)


def synced(inode: int, number: int) -> list[Call]:
    return [call(Kind.SYNC_BEGIN, inode, number), call(Kind.SYNC_END, inode, number)]


def left_by(tmp_path: Path, calls: list[Call], seed: int = 0) -> dict[str, bytes]:
    disk = Disk(tmp_path)
    for one in calls:
        disk.do(one)
    (image := tmp_path / f"image-{seed}").mkdir()
    disk.leave(image, random.Random(seed))
    return {path.name: path.read_bytes() for path in image.iterdir()}


def test_what_was_synced_with_its_name_is_in_every_image(tmp_path: Path):
    """With any torn writes beside it."""
    calls = [
        call(Kind.CREATE, data=NAME),
        call(Kind.WRITE, data=b"safe"),
        *synced(FILE, 1),
        *synced(FOLDER, 2),
        call(Kind.WRITE, offset=4, data=b"not"),
    ]
    images = [left_by(tmp_path, calls, seed) for seed in range(30)]
    assert all(image["a.db"].startswith(b"safe") for image in images)
    assert {b"safe", b"safenot"} == {image["a.db"] for image in images}


def test_a_name_that_was_not_synced_may_be_missing(tmp_path: Path):
    """A file without its name cannot be found, however well it was written."""
    calls = [call(Kind.CREATE, data=NAME), call(Kind.WRITE, data=b"x"), *synced(FILE, 1)]
    images = [left_by(tmp_path, calls, seed) for seed in range(20)]
    assert {} in images
    assert {"a.db": b"x"} in images


def test_a_sync_keeps_only_what_came_before_it_began(tmp_path: Path):
    """What is written while it runs may be lost."""
    calls = [
        call(Kind.CREATE, data=NAME),
        *synced(FOLDER, 1),
        call(Kind.WRITE, data=b"1"),
        call(Kind.SYNC_BEGIN, offset=2),
        call(Kind.WRITE, offset=1, data=b"2"),
        call(Kind.SYNC_END, offset=2),
    ]
    contents = {left_by(tmp_path, calls, seed)["a.db"] for seed in range(30)}
    assert {b"1", b"12"} == contents


def test_what_a_killed_process_did_without_a_record_is_taken_over(tmp_path: Path):
    """As pending, because it was not synced."""
    (copy := tmp_path / "copy").mkdir()
    (copy / "a.db").write_bytes(b"ab")
    killed = call(Kind.KILLED, 0, data=str(copy).encode())
    calls = [call(Kind.CREATE, data=NAME), *synced(FOLDER, 1), call(Kind.WRITE, data=b"a"), killed]
    assert b"ab" in {left_by(tmp_path, calls, seed)["a.db"] for seed in range(30)}


def test_a_write_is_torn_at_sectors():
    """A sector is there or not, never a part of it."""
    size = 8 * SECTOR_BYTES
    file = File(bytearray(size), [Pending(0, b"\xff" * size)])
    chance = random.Random(1)
    for _ in range(50):
        content = torn(file, Tear.SECTORS, chance)
        for begin in range(0, size, SECTOR_BYTES):
            assert len(set(content[begin : begin + SECTOR_BYTES])) == 1


def test_the_parts_of_a_write_end_where_sectors_do():
    """Wherever the write begins."""
    assert [(500, 512), (512, 1024), (1024, 1030)] == sectors(500, 530)
    assert [(0, 512)] == sectors(0, 512)


def test_calls_are_recorded_in_their_order(tmp_path: Path):
    """By a real process, with what it wrote."""
    import os
    import subprocess
    import sys

    (folder := tmp_path / "store").mkdir()
    recording = Recording(folder, tmp_path)
    program = (
        "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.pwrite(fd, b'abc', 2);"
        "os.fsync(fd); os.ftruncate(fd, 3); os.unlink(sys.argv[1])"
    )
    environment = {**os.environ, **recording.environment}
    command = [sys.executable, "-c", program, str(folder / "a.db")]
    subprocess.run(command, env=environment, check=True)
    calls = list(recording.calls())
    assert [
        (Kind.CREATE, 0, str(folder / "a.db").encode()),
        (Kind.WRITE, 2, b"abc"),
        (Kind.SYNC_BEGIN, 1, b""),
        (Kind.SYNC_END, 1, b""),
        (Kind.TRUNCATE, 3, b""),
        (Kind.UNLINK, 0, str(folder / "a.db").encode()),
    ] == [(one.kind, one.offset, one.data) for one in calls]
