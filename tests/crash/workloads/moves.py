"""Messages that move by themselves: forwarded into a topic, dead-lettered there, forwarded again.

Every move must be whole: forwarding leaves nothing behind and makes each copy once, and a dead
letter is in the subscription or where dead letters go, never in both.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.client_workload import STRAYS_SHOWN, WAIT_S, ClientWorkload, Outgoing
from tests.crash.clients.messages import decode_message, encode_message
from tests.crash.ledgers.copies import FanOutLedger
from tests.crash.ledgers.moves import MoveLedger
from tests.crash.workload import LOCK
from tests.support.proton.answers import REJECTED

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.ledgers.messages import Ledger, Link, MessageKey
    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings
    from tests.support.proton.answers import Arrival, Outcome
    from tests.support.proton.client import ProtonClient

ENTRANCE, FORK, DEAD_END = "crash-move-entrance", "crash-move-fork", "crash-move-dead-end"
WORKED, PASSED = "worked", "passed"
"""Subscriptions: one has dead letters, one has none."""
RATE_PER_S = 80
MAX_BACKLOG = 500
DEAD_SHARE = 0.5
CREDIT = 50


def address(subscription: str) -> str:
    return f"{FORK}/Subscriptions/{subscription}"


class Moves(ClientWorkload):
    name = "messages forwarded, dead-lettered and forwarded again"
    queues: ClassVar[Mapping[str, Any]] = {
        ENTRANCE: {**LOCK, "forward_to": FORK},
        DEAD_END: LOCK,
    }
    topics: ClassVar[Mapping[str, Any]] = {
        FORK: {
            "subscriptions": {
                WORKED: {**LOCK, "forward_dead_lettered_messages_to": DEAD_END},
                PASSED: LOCK,
            }
        }
    }

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._copies = FanOutLedger((WORKED, PASSED))
        self._moves = MoveLedger(self._copies.on[WORKED])
        self._next_index = 0

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return (*self._copies.on.values(), self._moves.there)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.send_steadily(ENTRANCE, RATE_PER_S, self._next_message)
        yield self._work()
        yield self.consume(address(PASSED), self._copies.on[PASSED], self._came_to_passed)
        yield self.consume(DEAD_END, self._moves.there, self._came_to_dead_end)

    def _next_message(self) -> Outgoing | None:
        if self._copies.backlog > MAX_BACKLOG:
            return None
        key = ("moved", self._next_index)
        self._next_index += 1
        self._copies.sending(key, (WORKED, PASSED))
        return Outgoing(encode_message(key), partial(self._sent, key))

    def _sent(self, key: MessageKey, outcome: Outcome) -> None:
        (self._copies.accepted if outcome.is_accepted else self._copies.refused)(key)

    async def _work(self) -> None:
        client = self.connect("worker")
        receiver = await client.receiver(address(WORKED), CREDIT)
        link = self.new_link()
        while not self.stopping:
            arrival = await receiver.next(WAIT_S)
            if arrival is None:
                continue
            key, sequence_number = decode_message(arrival.message)
            if not self._came_to_worked(key, sequence_number, link, arrival.message):
                continue
            if self.chance.random() < DEAD_SHARE:
                self._dead_letter(client, arrival, key, link)
            else:
                self.complete(client, arrival, key, link, self._moves.here)

    def _dead_letter(
        self, client: ProtonClient, arrival: Arrival, key: MessageKey, link: Link
    ) -> None:
        self._moves.moving(key, link)
        client.settle(arrival.delivery, partial(self._dead_lettered, key), outcome=REJECTED)

    def _dead_lettered(self, key: MessageKey, outcome: Outcome) -> None:
        if outcome.is_refused:
            self._moves.here.completion_refused(key)
        else:
            self._moves.moved(key)

    # ---- where messages come ------------------------------------------------------------------

    def _came_to_worked(self, key: MessageKey, number: int, link: Link, _message: bytes) -> bool:
        self._moves.came_here(key)
        return self._copies.delivered(WORKED, key, number, link)

    def _came_to_passed(self, key: MessageKey, number: int, link: Link, _message: bytes) -> bool:
        return self._copies.delivered(PASSED, key, number, link)

    def _came_to_dead_end(self, key: MessageKey, number: int, link: Link, _message: bytes) -> bool:
        return self._moves.came_there(key, number, link)

    async def conclude(self) -> Report:
        await self.drain(address(WORKED), self._moves.here, self._came_to_worked)
        await self.drain(address(PASSED), self._copies.on[PASSED], self._came_to_passed)
        await self.drain(DEAD_END, self._moves.there, self._came_to_dead_end)
        for key in await self.peek(self.connect("peek"), ENTRANCE, STRAYS_SHOWN):
            self._moves.violate("left behind", f"{key}")
        return self._moves.audit().plus(self._copies.audit())
