"""What stock clients once sent to a broker, connection by connection: the ground that mutations grow on.

Owns the files in `recordings/`: for each client one file of streams, each with its length before it.
`record.py` writes them.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).with_name("recordings")
SUFFIX = ".streams"
LARGEST_STREAM_BYTES = 12_000
STREAMS_OF_A_CLIENT = 14

_LENGTH = struct.Struct(">I")
_WORD = re.compile(rb"[A-Za-z$:./-]{5,60}")


def load() -> dict[str, list[bytes]]:
    """The streams of every client, by its name."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob(f"*{SUFFIX}"))}


def save(client: str, streams: Iterable[bytes]) -> Path:
    """Replace what is known of one client."""
    path = FOLDER / f"{client}{SUFFIX}"
    path.write_bytes(b"".join(_LENGTH.pack(len(stream)) + stream for stream in streams))
    return path


def chosen(streams: Iterable[bytes]) -> list[bytes]:
    """A few streams that say the most different things: each adds words that those before lack."""
    left = {stream for stream in streams if 0 < len(stream) <= LARGEST_STREAM_BYTES}
    words = {stream: set(_WORD.findall(stream)) for stream in left}
    known: set[bytes] = set()
    found: list[bytes] = []
    while left and len(found) < STREAMS_OF_A_CLIENT:
        best = max(sorted(left), key=lambda stream: len(words[stream] - known))
        if not words[best] - known:
            break
        found.append(best)
        known |= words[best]
        left.discard(best)
    return found


def _read(path: Path) -> list[bytes]:
    data = path.read_bytes()
    streams = []
    position = 0
    while position < len(data):
        (size,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        streams.append(data[position : position + size])
        position += size
    return streams
