"""The cases of a run, by number: the same seed and number give the same bytes.

Owns the choice between the kinds of cases, and how each is put on the wire.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from tests.fuzz import recordings, requests
from tests.fuzz.mutations import mutate
from tests.fuzz.performatives import Author

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Case(NamedTuple):
    """One connection: its bytes, the pieces in which they are sent, and how it ends."""

    number: int
    kind: str
    pieces: Sequence[bytes]
    is_for_strict: bool
    listens_s: float
    resets: bool
    """The connection is torn down instead of closed."""


class Cases:
    """All cases of a seed."""

    def __init__(self, seed: int, streams: Mapping[str, Sequence[bytes]] | None = None) -> None:
        self._seed = seed
        by_client = recordings.load() if streams is None else streams
        self._streams = [
            (client, stream) for client, streams in by_client.items() for stream in streams
        ]
        self._others = [stream for _, stream in self._streams]

    def case(self, number: int) -> Case:
        chance = random.Random(f"{self._seed} {number}")
        kind, data = self._data(chance)
        return Case(
            number,
            kind,
            _pieces(data, chance),
            chance.random() < 0.3,
            chance.choice((0.0, 0.02, 0.1, 0.3)),
            chance.random() < 0.3,
        )

    def _data(self, chance: random.Random) -> tuple[str, bytes]:
        match chance.randrange(10):
            case 0 | 1 | 2 | 3:
                client, stream = chance.choice(self._streams)
                return f"recording of {client}", mutate(stream, self._others, chance)
            case 4 | 5:
                return "performatives", Author(chance).dialogue()
            case 6:
                data = Author(chance).dialogue()
                return "performatives, mutated", mutate(data, self._others, chance)
            case 7 | 8:
                return "http", requests.request(chance)
            case _:
                return "token", requests.put_token(chance)


def _pieces(data: bytes, chance: random.Random) -> list[bytes]:
    if chance.random() < 0.6:
        return [data]
    cuts = sorted(chance.choices(range(len(data) + 1), k=chance.randint(1, 8)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
