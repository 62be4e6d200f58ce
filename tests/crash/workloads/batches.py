"""Batches to a queue and to a topic: each is stored whole, in every place, or not at all.

Several are on their way at any moment, some larger than a frame, so that a kill also meets one that
has arrived only in part.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.client_workload import ClientWorkload, Pace
from tests.crash.clients.batch_sender import BatchSender
from tests.crash.clients.messages import encode_message
from tests.crash.ledgers.groups import GroupLedger
from tests.crash.ledgers.report import Report
from tests.crash.workload import LOCK

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence

    from tests.crash.ledgers.messages import Ledger, MessageKey
    from tests.crash.workload import Surroundings

PLACES = {
    "crash-batches": ("crash-batches",),
    "crash-batch-topic": (
        "crash-batch-topic/Subscriptions/one",
        "crash-batch-topic/Subscriptions/two",
    ),
}
"""Where batches are sent to, and where they arrive."""
SIZES = (1, 2, 3, 6, 25)
LARGE_SHARE = 0.05
LARGE_MESSAGE_BYTES = 12_000
RATE_PER_S = 30
WINDOW = 6
MAX_BACKLOG = 2_000
PAUSE_S = 0.02


class Batches(ClientWorkload):
    name = "batches to a queue and to a topic with two subscriptions"
    queues: ClassVar[Mapping[str, Any]] = {"crash-batches": LOCK}
    topics: ClassVar[Mapping[str, Any]] = {
        "crash-batch-topic": {"subscriptions": {"one": LOCK, "two": LOCK}}
    }

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._books = {place: GroupLedger() for places in PLACES.values() for place in places}
        self._next_index = dict.fromkeys(PLACES, 0)
        self._senders: list[BatchSender] = []

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return self._books.values()

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        for target, places in PLACES.items():
            yield self._send(target, [self._books[place] for place in places])
        for place, ledger in self._books.items():
            yield self.consume(place, ledger)

    def run_over(self) -> None:
        for sender in self._senders:
            sender.close()
        self._senders.clear()

    async def _send(self, target: str, books: Sequence[GroupLedger]) -> None:
        surroundings = self.surroundings
        sender = await BatchSender.open(surroundings.host, surroundings.amqp_port, target)
        self._senders.append(sender)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(sender.serve())
            await self._put(sender, target, books)
            serving.cancel()

    async def _put(self, sender: BatchSender, target: str, books: Sequence[GroupLedger]) -> None:
        pace = Pace(RATE_PER_S)
        while not self.stopping:
            await pace.turn()
            if sender.waiting >= WINDOW or max(book.backlog for book in books) > MAX_BACKLOG:
                await asyncio.sleep(PAUSE_S)
                continue
            keys, messages = self._batch(target)
            for book in books:
                book.sending_together(keys)
            await sender.put(messages, partial(_note, books, keys))
        await sender.wait_for_outcomes()

    def _batch(self, target: str) -> tuple[list[MessageKey], list[bytes]]:
        chance = self.chance
        first = self._next_index[target]
        self._next_index[target] = end = first + chance.choice(SIZES)
        keys = [(target, index) for index in range(first, end)]
        size_bytes = LARGE_MESSAGE_BYTES if chance.random() < LARGE_SHARE else 0
        return keys, [encode_message(key, size_bytes=size_bytes) for key in keys]

    async def conclude(self) -> Report:
        report = Report({})
        await asyncio.gather(*(self.drain(place, book) for place, book in self._books.items()))
        for book in self._books.values():
            report = report.plus(book.audit())
        return report


def _note(books: Sequence[GroupLedger], keys: Sequence[MessageKey], is_accepted: bool) -> None:
    for book in books:
        (book.accepted_together if is_accepted else book.refused_together)(keys)
