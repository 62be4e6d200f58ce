"""A queue that detects duplicates: what is in doubt is sent again, as clients do, and stored once.

Now and then something already accepted is sent again too. Everything stays within the window.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.client_workload import ClientWorkload, Outgoing
from tests.crash.clients.messages import encode_message
from tests.crash.ledgers.duplicates import DuplicateLedger
from tests.crash.workload import LOCK

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.ledgers.messages import Ledger, MessageKey
    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings
    from tests.support.proton.answers import Outcome

QUEUE = "crash-duplicates"
RATE_PER_S = 150
AGAIN_SHARE = 0.1
REMEMBERED = 2_000
MAX_BACKLOG = 1_000


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
        self._book = DuplicateLedger()
        self._next_index = 0
        self._awaited: dict[MessageKey, None] = {}
        self._unanswered: deque[MessageKey] = deque()
        self._accepted: deque[MessageKey] = deque(maxlen=REMEMBERED)

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return (self._book,)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        # First what the last run left unanswered, in order: only then is order a promise.
        self._unanswered = deque(self._awaited)
        yield self.send_steadily(QUEUE, RATE_PER_S, self._next_message)
        yield self.consume(QUEUE, self._book)

    def _next_message(self) -> Outgoing | None:
        if self._unanswered:
            key = self._unanswered.popleft()
        elif self._book.backlog > MAX_BACKLOG:
            return None
        elif self._accepted and self.chance.random() < AGAIN_SHARE:
            key = self.chance.choice(self._accepted)
        else:
            key = ("once", self._next_index)
            self._next_index += 1
        self._book.sending(key)
        self._awaited[key] = None
        return Outgoing(encode_message(key), partial(self._note, key))

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
