"""A queue that detects duplicates: what is in doubt is sent again, as clients do, and stored once.

Now and then something already accepted is sent again too. Everything stays within the window.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.client_workload import ClientWorkload, Pace
from tests.crash.clients.messages import encode_message
from tests.crash.ledgers.duplicates import DuplicateLedger
from tests.crash.workload import LOCK

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.clients.answers import Outcome
    from tests.crash.clients.links import Sender
    from tests.crash.ledgers.messages import Ledger, MessageKey
    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings

QUEUE = "crash-duplicates"
RATE_PER_S = 150
WINDOW = 40
AGAIN_SHARE = 0.1
REMEMBERED = 2_000
MAX_BACKLOG = 1_000
PAUSE_S = 0.02


class Duplicates(ClientWorkload):
    name = "a queue that detects duplicates"
    queues: ClassVar[Mapping[str, Any]] = {
        QUEUE: {
            **LOCK,
            "requires_duplicate_detection": True,
            "duplicate_detection_history_time_window": "PT1H",
        }
    }

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._book = DuplicateLedger(single_receiver=True)
        self._next_index = 0
        self._awaited: dict[MessageKey, None] = {}
        self._accepted: deque[MessageKey] = deque(maxlen=REMEMBERED)

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return (self._book,)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._send()
        yield self.consume(QUEUE, self._book)

    async def _send(self) -> None:
        sender = await self.connect("sender").sender(QUEUE)
        # First what the last life left unanswered, in order: only then is order a promise.
        for key in list(self._awaited):
            await self._put(sender, key)
        pace = Pace(RATE_PER_S)
        while not self.stopping:
            await pace.turn()
            sender.client.check()
            if len(self._awaited) >= WINDOW or self._book.backlog > MAX_BACKLOG:
                await asyncio.sleep(PAUSE_S)
            elif self._accepted and self.chance.random() < AGAIN_SHARE:
                await self._put(sender, self.chance.choice(self._accepted))
            else:
                self._next_index += 1
                await self._put(sender, ("once", self._next_index))
        while self._awaited:
            sender.client.check()
            await asyncio.sleep(PAUSE_S)

    async def _put(self, sender: Sender, key: MessageKey) -> None:
        await sender.wait_for_credit()
        self._book.sending(key)
        self._awaited[key] = None
        sender.put(encode_message(key), partial(self._note, key))

    def _note(self, key: MessageKey, outcome: Outcome) -> None:
        self._awaited.pop(key, None)
        if outcome.is_accepted:
            self._book.accepted(key)
            self._accepted.append(key)
        else:
            self._book.refused(key)

    async def conclude(self) -> Report:
        await self.drain(QUEUE, self._book)
        return self._book.audit()
