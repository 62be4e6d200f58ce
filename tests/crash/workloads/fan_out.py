"""A topic whose subscriptions choose by rule: each message is on all that want it, or on none.

One subscription takes everything, one chooses by correlation, one by SQL and changes what it takes,
and one is left alone most of the time: copies completed elsewhere must still be there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.client_workload import ClientWorkload, Outgoing
from tests.crash.clients.messages import encode_message
from tests.crash.ledgers.copies import FanOutLedger
from tests.crash.workload import LOCK

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.ledgers.messages import Ledger, Link, MessageKey
    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings
    from tests.support.proton.answers import Outcome

TOPIC = "crash-rules"
MARK = b"marked-by-rule"
"""A property only one rule's action sets."""
SUBSCRIPTIONS: Mapping[str, Mapping[str, Any]] = {
    "everything": LOCK,
    "correlated": {
        **LOCK,
        "rules": {
            "red": {"correlation_filter": {"label": "red", "properties": {"shape": "round"}}}
        },
    },
    "selected": {
        **LOCK,
        "rules": {
            "heavy": {"sql_filter": "weight % 3 = 0", "action": f"SET [{MARK.decode()}] = 1"}
        },
    },
    "left-alone": LOCK,
}
VISITED_EVERY = 8
"""In one run of so many somebody receives from the subscription that is left alone."""
RATE_PER_S = 150
MAX_BACKLOG = 6_000


def address(subscription: str) -> str:
    return f"{TOPIC}/Subscriptions/{subscription}"


class FanOut(ClientWorkload):
    name = "a topic with rules"
    topics: ClassVar[Mapping[str, Any]] = {TOPIC: {"subscriptions": SUBSCRIPTIONS}}

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._book = FanOutLedger(SUBSCRIPTIONS)
        self._next_index = 0

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return self._book.on.values()

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.send_steadily(TOPIC, RATE_PER_S, self._next_message)
        for name, ledger in self._book.on.items():
            if name != "left-alone" or self.broker_run % VISITED_EVERY == VISITED_EVERY - 1:
                yield self.consume(address(name), ledger, partial(self._delivered, name))

    def _next_message(self) -> Outgoing | None:
        if self._book.backlog > MAX_BACKLOG:
            return None
        key = ("rules", self._next_index)
        self._next_index += 1
        label, shape = self.chance.choice(("red", "blue")), self.chance.choice(("round", "flat"))
        weight = self.chance.randrange(100)
        wanted_by = ["everything", "left-alone"]
        if (label, shape) == ("red", "round"):
            wanted_by.append("correlated")
        if weight % 3 == 0:
            wanted_by.append("selected")
        self._book.sending(key, wanted_by)
        properties = {"shape": shape, "weight": weight}
        message = encode_message(key, subject=label, properties=properties)
        return Outgoing(message, partial(self._note, key))

    def _note(self, key: MessageKey, outcome: Outcome) -> None:
        (self._book.accepted if outcome.is_accepted else self._book.refused)(key)

    def _delivered(
        self, name: str, key: MessageKey, sequence_number: int, link: Link, message: bytes
    ) -> bool:
        if (MARK in message) != (name == "selected"):
            self._book.violate("action lost", f"{key} on {name}")
        return self._book.delivered(name, key, sequence_number, link)

    async def conclude(self) -> Report:
        await asyncio.gather(
            *(
                self.drain(address(name), ledger, partial(self._delivered, name))
                for name, ledger in self._book.on.items()
            )
        )
        return self._book.audit()
