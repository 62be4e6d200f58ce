"""Knows what is not durable yet, and finds effects that do not depend on it.

A delivery under a lock writes nothing. If its messages are durable, and have not changed since then, no failed commit
can make it wrong. So it need not wait for the commit of its turn, nor for those of earlier turns. Otherwise a receiver
with new credit would wait for the commits of other clients.
"""

from __future__ import annotations

from collections import Counter, deque
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from broker.core.contract.effects import (
    CreditNeeded,
    Deliver,
    Drained,
    PayloadsNeeded,
    SendAccepted,
    SendRefused,
    Settled,
    SettleRefused,
)
from broker.core.contract.records import MessagesStored, MessagesUpdated
from broker.core.contract.sent_rows import SentRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from broker.core.contract.effects import Effect, Peer
    from broker.core.contract.records import Record
    from broker.core.contract.turn import Turn

Key = TypeVar("Key")

_ID = attrgetter("id")
_NO_ID = 1 << 63
"""Higher than every id."""

INDEPENDENT = frozenset({Deliver, Drained, CreditNeeded, PayloadsNeeded})
"""Effects that may leave before the commit, if their messages are durable."""
ANSWERS = frozenset({Settled, SettleRefused, SendAccepted, SendRefused})
"""Answers to transfers and dispositions. A delivery on the same link may overtake them: AMQP gives them no order."""


class _Uncommitted(NamedTuple):
    """What a turn has written or said that is not durable."""

    first_new_id: int
    """The lowest id of a new message; `_NO_ID` if there is none. Bodies have ids of the same series."""
    changed_ids: Sequence[int]
    peers: Sequence[Peer]
    """Each has an effect that no later delivery to it may overtake."""


class UncommittedTurns:
    """The turns that are not durable yet, in order."""

    def __init__(self) -> None:
        self._turns: deque[_Uncommitted] = deque()
        self._lowest_new_ids: deque[int] = deque()
        """The first is the lowest of all new ids, the next one the lowest of those in later turns, and so on."""
        self._changed: Counter[int] = Counter()
        """In how many of the turns a message has changed, by its id."""
        self._peers: Counter[Peer] = Counter()
        """For how many effects a later delivery to the peer has to wait."""

    def add(self, turn: Turn) -> None:
        """A turn waits for its commit."""
        first_new_id, changed_ids = _written(turn.records)
        peers = [
            effect.to
            for effect in turn.effects
            if type(effect) not in ANSWERS and not isinstance(effect, PayloadsNeeded)
        ]
        self._turns.append(_Uncommitted(first_new_id, changed_ids, peers))
        while self._lowest_new_ids and self._lowest_new_ids[-1] > first_new_id:
            self._lowest_new_ids.pop()
        self._lowest_new_ids.append(first_new_id)
        self._changed.update(changed_ids)
        self._peers.update(peers)

    def remove(self, count: int) -> None:
        """The first turns are durable."""
        for _ in range(count):
            turn = self._turns.popleft()
            if turn.first_new_id == self._lowest_new_ids[0]:
                self._lowest_new_ids.popleft()
            _decrease(self._changed, turn.changed_ids)
            _decrease(self._peers, turn.peers)

    def clear(self) -> None:
        """A commit has failed, and nothing waits any more."""
        self._turns.clear()
        self._lowest_new_ids.clear()
        self._changed.clear()
        self._peers.clear()

    def take_independent(self, turn: Turn) -> list[Effect]:
        """Removes the effects from a turn that may leave before it is committed, and returns them. The turn follows
        those that were added."""
        first_new_id, changed_ids = _written(turn.records)
        if self._lowest_new_ids:
            first_new_id = min(first_new_id, self._lowest_new_ids[0])
        changed = (
            (self._changed.keys(), set(changed_ids)) if changed_ids else (self._changed.keys(),)
        )
        taken: list[Effect] = []
        left: list[Effect] = []
        waiting: set[Peer] = set()
        for effect in turn.effects:
            if isinstance(effect, PayloadsNeeded):
                is_free = max(effect.payload_ids, default=0) < first_new_id
            else:
                peer = effect.to
                is_free = (
                    type(effect) in INDEPENDENT
                    and peer not in waiting
                    and peer not in self._peers
                    and (type(effect) is not Deliver or _is_durable(effect, first_new_id, changed))
                )
                if not is_free and type(effect) not in ANSWERS:
                    waiting.add(peer)
            (taken if is_free else left).append(effect)
        if taken:
            turn.effects = left
        return taken


def _is_durable(effect: Deliver, first_new_id: int, changed: Iterable[AbstractSet[int]]) -> bool:
    """Returns whether all messages of a delivery are durable as they are delivered."""
    messages = effect.messages
    # A delivery without locks deletes its messages, and waits for that.
    if effect.tokens[0] is None or messages[-1].id >= first_new_id:
        return False
    ids = list(map(_ID, messages))
    return max(ids) < first_new_id and all(some.isdisjoint(ids) for some in changed if some)


def _written(records: Iterable[Record]) -> tuple[int, list[int]]:
    """Returns the lowest id of a new message or body, and the ids of changed messages."""
    first_new_id = _NO_ID
    changed_ids: list[int] = []
    for record in records:
        if type(record) is MessagesStored:
            rows = record.rows
            if type(rows) is SentRows:
                first_new_id = min(first_new_id, rows.first_id)
            else:
                new = (*rows, *record.payloads)
                first_new_id = min(first_new_id, *map(_ID, new), _NO_ID)
        elif type(record) is MessagesUpdated:
            changed_ids += map(_ID, record.rows)
    return first_new_id, changed_ids


def _decrease(counts: Counter[Key], keys: Iterable[Key]) -> None:
    for key in keys:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]
