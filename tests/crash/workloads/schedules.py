"""Messages for later, to a queue and to a topic: by request, several at once, or by annotation.

Most are due within seconds, so that kills fall between scheduling and the time; some only in an
hour, to be cancelled or seen waiting at the end.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from protocol.codec import Array, ArrayCode, Long
from tests.crash.client_workload import ClientWorkload, Pace
from tests.crash.clients.messages import encode_message
from tests.crash.ledgers.report import Report
from tests.crash.ledgers.schedules import ScheduleLedger
from tests.crash.workload import LOCK

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.ledgers.messages import Ledger, Link, MessageKey
    from tests.crash.workload import Surroundings
    from tests.support.proton.links import Sender
    from tests.support.proton.nodes import Management

PLACES = {
    "crash-schedule": "crash-schedule",
    "crash-schedule-topic": "crash-schedule-topic/Subscriptions/one",
}
"""Where messages are sent to, and where they arrive."""
SOON_MS = (100, 3_000)
FAR_MS = 3_600_000
FAR_SHARE = 0.2
ANNOTATED_SHARE = 0.3
CANCELLED_SHARE = 0.3
MAX_TOGETHER = 4
RATE_PER_S = 25
WORKERS = 3
MAX_PEEKED = 100_000
OK = 200


class Schedules(ClientWorkload):
    name = "messages for later, to a queue and to a topic"
    queues: ClassVar[Mapping[str, Any]] = {"crash-schedule": LOCK}
    topics: ClassVar[Mapping[str, Any]] = {"crash-schedule-topic": {"subscriptions": {"one": LOCK}}}

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._books = {target: ScheduleLedger() for target in PLACES}
        self._next_index = dict.fromkeys(PLACES, 0)
        self._latest_due_ms = 0
        self._now_ms = surroundings.now_ms

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return self._books.values()

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        for target, place in PLACES.items():
            yield self._schedule(target)
            yield self.consume(place, self._books[target], partial(self._came, target))

    async def _schedule(self, target: str) -> None:
        client = self.connect(f"{target} scheduler")
        sender = await client.sender(target)
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                management = await client.management(target)
                group.create_task(self._schedule_some(target, sender, management))

    async def _schedule_some(self, target: str, sender: Sender, management: Management) -> None:
        book = self._books[target]
        pace = Pace(RATE_PER_S / WORKERS)
        while not self.stopping:
            await pace.turn()
            due_ms = self._now_ms() + self.chance.randrange(*SOON_MS)
            self._latest_due_ms = max(self._latest_due_ms, due_ms)
            if self.chance.random() < FAR_SHARE:
                due_ms = self._now_ms() + FAR_MS
            if self.chance.random() < ANNOTATED_SHARE:
                await self._send_annotated(book, target, sender, due_ms)
                continue
            keys = self._new_keys(target, due_ms, self.chance.randrange(1, MAX_TOGETHER + 1))
            numbers = await self._request(book, management, keys, due_ms)
            if numbers and len(keys) == 1 and self.chance.random() < CANCELLED_SHARE:
                await self._cancel(book, management, keys[0], numbers[0])

    def _new_keys(self, target: str, due_ms: int, count: int) -> list[MessageKey]:
        first = self._next_index[target]
        self._next_index[target] += count
        keys = [(target, index) for index in range(first, first + count)]
        for key in keys:
            self._books[target].due(key, due_ms)
        return keys

    async def _send_annotated(
        self, book: ScheduleLedger, target: str, sender: Sender, due_ms: int
    ) -> None:
        [key] = self._new_keys(target, due_ms, 1)
        book.sending(key)
        outcome = await sender.send(encode_message(key, due_ms=due_ms))
        (book.accepted if outcome.is_accepted else book.refused)(key)

    @staticmethod
    async def _request(
        book: ScheduleLedger, management: Management, keys: list[MessageKey], due_ms: int
    ) -> list[int]:
        book.sending_together(keys)
        messages = [{"message": encode_message(key, due_ms=due_ms)} for key in keys]
        status, answer = await management.request("schedule-message", {"messages": messages})
        if status != OK:
            book.refused_together(keys)
            return []
        book.accepted_together(keys)
        return [int(number) for number in answer["sequence-numbers"].items]

    async def _cancel(
        self, book: ScheduleLedger, management: Management, key: MessageKey, number: int
    ) -> None:
        book.cancelling(key, self.broker_run)
        body = {"sequence-numbers": Array(ArrayCode.LONG, [Long(number)])}
        status, _ = await management.request("cancel-scheduled-message", body)
        if status == OK:
            book.cancelled(key)
        else:
            book.not_cancelled(key, self._now_ms())

    def _came(
        self, target: str, key: MessageKey, sequence_number: int, link: Link, _message: bytes
    ) -> bool:
        return self._books[target].came(key, sequence_number, link, self._now_ms())

    async def conclude(self) -> Report:
        await asyncio.sleep(max(self._latest_due_ms - self._now_ms(), 0) / 1000)
        report = Report({})
        for target, place in PLACES.items():
            book = self._books[target]
            await self.drain(place, book, partial(self._came, target))
            for key in await self.peek(self.connect("peek"), target, MAX_PEEKED):
                book.waits(key)
            report = report.plus(book.audit())
        return report
