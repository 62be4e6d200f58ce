"""A model of a disk that loses power: synced data stays, and any part of the other data may be there.

Replays recorded calls and keeps, for every file, what is durable and what is pending. An image is
what a power cut at this moment might leave: of each pending write any of its sectors, and of the
pending changes of names the first ones, because file systems keep these in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.power.recording import Kind

if TYPE_CHECKING:
    import random

    from tests.crash.power.recording import Call

SECTOR_BYTES = 512
PAGE_BYTES = 4096
INDEX_SUFFIX = "-shm"
"""The index of a write-ahead log is shared memory, rebuilt by whoever opens the database first."""
LARGE_HOLE_BYTES = 1 << 20


class Pending(NamedTuple):
    """A write, or with no data a new size."""

    at: int
    data: bytes | None


@dataclass(slots=True, eq=False)
class File:
    """What is on the disk for certain, and what came since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Pending] = field(default_factory=list)
    syncing: dict[int, int] = field(default_factory=dict)
    """Syncs that run, by their number: how much was pending when each began."""

    def sync_ended(self, number: int) -> None:
        count = self.syncing.pop(number, 0)
        for change in self.pending[:count]:
            apply(self.durable, change)
        del self.pending[:count]
        self.syncing = {other: max(0, had - count) for other, had in self.syncing.items()}

    def current(self) -> bytearray:
        content = bytearray(self.durable)
        for change in self.pending:
            apply(content, change)
        return content


def apply(content: bytearray, change: Pending) -> None:
    if change.data is None:
        if change.at < len(content):
            del content[change.at :]
        else:
            content.extend(bytes(change.at - len(content)))
        return
    if change.at > len(content):
        content.extend(bytes(change.at - len(content)))
    content[change.at : change.at + len(change.data)] = change.data


class Tear(Enum):
    """How much of what is pending in a file a cut leaves."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    FIRST = "the first so many changes, and a part of the next"
    SOME = "any of the changes"
    SECTORS = "any of the sectors"
    MOST = "all but a few sectors"
    LAST = "only the last changes"


class Disk:
    """One folder of files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_inode: dict[int, File] = {}
        self._names: dict[str, File] = {}
        self._durable_names: dict[str, File] = {}
        self._pending_names: list[tuple[str, File | None]] = []
        self._folder_syncing: dict[int, int] = {}

    # ---- replaying ----------------------------------------------------------------------------

    def do(self, call: Call) -> None:
        """Replay one call."""
        file = self._by_inode.get(call.inode)
        match call.kind:
            case Kind.WRITE if file is not None:
                file.pending.append(Pending(call.offset, call.data))
            case Kind.TRUNCATE if file is not None:
                file.pending.append(Pending(call.offset, None))
            case Kind.SYNC_BEGIN if file is not None:
                file.syncing[call.offset] = len(file.pending)
            case Kind.SYNC_END if file is not None:
                file.sync_ended(call.offset)
            case Kind.SYNC_BEGIN:
                self._folder_syncing[call.offset] = len(self._pending_names)
            case Kind.SYNC_END:
                self._folder_synced(call.offset)
            case Kind.CREATE:
                self._by_inode[call.inode] = created = File()
                self._rename(_name(call.data), created)
            case Kind.UNLINK:
                self._rename(_name(call.data), None)
            case Kind.RENAME:
                old, _, new = call.data.partition(b"\0")
                moved = self._names[_name(old)]
                self._rename(_name(new), moved)
                self._rename(_name(old), None)
            case Kind.KILLED:
                self._take_over(Path(call.data.decode()))

    def _rename(self, name: str, file: File | None) -> None:
        self._pending_names.append((name, file))
        _set(self._names, name, file)

    def _folder_synced(self, number: int) -> None:
        count = self._folder_syncing.pop(number, 0)
        for name, file in self._pending_names[:count]:
            _set(self._durable_names, name, file)
        del self._pending_names[:count]
        self._folder_syncing = {
            other: max(0, had - count) for other, had in self._folder_syncing.items()
        }

    def _take_over(self, copy: Path) -> None:
        """What the files really hold after a kill: a call may have happened without its record."""
        for name, file in self._names.items():
            if name.endswith(INDEX_SUFFIX) or not (copy / name).exists():
                continue
            known, real = file.current(), (copy / name).read_bytes()
            if len(known) != len(real):
                file.pending.append(Pending(len(real), None))
            for at in range(0, len(real), PAGE_BYTES):
                page = real[at : at + PAGE_BYTES]
                if known[at : at + PAGE_BYTES] != page:
                    file.pending.append(Pending(at, page))

    @property
    def pending_bytes(self) -> int:
        """What a cut now may tear."""
        return sum(
            len(change.data or b"") for file in self._names.values() for change in file.pending
        )

    # ---- images -------------------------------------------------------------------------------

    def leave(self, image: Path, chance: random.Random) -> str:
        """Write what a cut at this moment might leave into an empty folder; how it was torn."""
        names = dict(self._durable_names)
        count = chance.randint(0, len(self._pending_names))
        for name, file in self._pending_names[:count]:
            _set(names, name, file)
        said = [f"{count} of {len(self._pending_names)} names"]
        for name, file in sorted(names.items()):
            if name.endswith(INDEX_SUFFIX):
                if chance.random() < 0.5:
                    (image / name).write_bytes(chance.randbytes(32_768))
                continue
            tear = chance.choice(list(Tear)) if file.pending else Tear.EVERYTHING
            _write(image / name, torn(file, tear, chance))
            if file.pending:
                said.append(f"{name}: {tear.value} of {len(file.pending)}")
        return "; ".join(said)


def torn(file: File, tear: Tear, chance: random.Random) -> bytearray:
    """The content of a file after a cut."""
    content = bytearray(file.durable)
    pending = file.pending
    some = chance.random()
    first = chance.randint(0, len(pending))
    for number, change in enumerate(pending):
        match tear:
            case Tear.NOTHING:
                share = 0.0
            case Tear.EVERYTHING:
                share = 1.0
            case Tear.FIRST:
                share = 1.0 if number < first else 0.5 if number == first else 0.0
            case Tear.SOME:
                share = float(chance.random() < some)
            case Tear.SECTORS:
                share = some
            case Tear.MOST:
                share = 0.97
            case Tear.LAST:
                share = float(number >= first)
        _apply_in_part(content, change, share, chance)
    return content


def _apply_in_part(
    content: bytearray, change: Pending, share: float, chance: random.Random
) -> None:
    if share == 0.0:
        return
    if share == 1.0:
        apply(content, change)
    elif change.data is None:
        if chance.random() < share:
            apply(content, change)
    else:
        for begin, end in sectors(change.at, len(change.data)):
            if chance.random() < share:
                apply(content, Pending(begin, change.data[begin - change.at : end - change.at]))


def sectors(at: int, size: int) -> list[tuple[int, int]]:
    """The parts of a write that lie in one sector each, as (begin, end) in the file."""
    ends = [*range((at // SECTOR_BYTES + 1) * SECTOR_BYTES, at + size, SECTOR_BYTES), at + size]
    return list(zip([at, *ends[:-1]], ends, strict=True))


def _write(path: Path, content: bytearray) -> None:
    with path.open("wb") as file:
        if len(content) > LARGE_HOLE_BYTES and not any(content):
            file.truncate(len(content))  # the disk reserve takes up no room in an image
        else:
            file.write(content)


def _name(path: bytes) -> str:
    return Path(path.decode()).name


def _set(names: dict[str, File], name: str, file: File | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file
