"""Deferral: messages set aside and fetched by number, in the same run of the broker or a later one.

What is fetched is completed by its lock token or, in the other receive mode, by the fetch itself.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from protocol.codec import Array, ArrayCode, Long, UInt
from tests.crash.client_workload import WAIT_S, ClientWorkload, Outgoing
from tests.crash.clients.messages import decode_message, encode_message
from tests.crash.ledgers.deferrals import DeferralLedger
from tests.crash.workload import LOCK
from tests.support.proton.answers import MODIFIED

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.ledgers.messages import Ledger, Link, MessageKey
    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings
    from tests.support.proton.answers import Arrival, Outcome
    from tests.support.proton.client import ProtonClient
    from tests.support.proton.nodes import Management

QUEUE = "crash-deferral"
RATE_PER_S = 60
MAX_BACKLOG = 500
DEFERRED_SHARE = 0.6
DELETED_SHARE = 0.3
"""Of the fetches, those in receive-and-delete."""
ABANDONED_SHARE = 0.2
KEPT = 100
"""So many stay set aside, to be there after the next kill."""
CREDIT = 20
PAUSE_S = 0.02
OK, NOT_FOUND = 200, 404
RECEIVE_AND_DELETE, PEEK_LOCK = UInt(0), UInt(1)


class Deferrals(ClientWorkload):
    name = "messages deferred and fetched by number"
    queues: ClassVar[Mapping[str, Any]] = {QUEUE: LOCK}

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._book = DeferralLedger()
        self._next_index = 0

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return (self._book,)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.send_steadily(QUEUE, RATE_PER_S, self._next_message)
        yield self._settle_doubt_and_work()

    async def _settle_doubt_and_work(self) -> None:
        management = await self.connect("fetcher").management(QUEUE)
        # First what an earlier run left in doubt: a receiver could settle it behind our back.
        for key in self._book.set_aside_in_doubt:
            token = await self._fetch(management, key)
            if token is not None:
                await self._abandon(management, token)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive())
            group.create_task(self._fetch_some(management))

    def _next_message(self) -> Outgoing | None:
        if self._book.backlog > MAX_BACKLOG:
            return None
        key = ("deferral", self._next_index)
        self._next_index += 1
        self._book.sending(key)
        return Outgoing(encode_message(key), partial(self._sent, key))

    def _sent(self, key: MessageKey, outcome: Outcome) -> None:
        (self._book.accepted if outcome.is_accepted else self._book.refused)(key)

    # ---- setting aside ------------------------------------------------------------------------

    async def _receive(self) -> None:
        client = self.connect("receiver")
        receiver = await client.receiver(QUEUE, CREDIT)
        link = self.new_link()
        while not self.stopping:
            arrival = await receiver.next(WAIT_S)
            if arrival is not None:
                self._settle(client, arrival, link, DEFERRED_SHARE)

    def _settle(
        self, client: ProtonClient, arrival: Arrival, link: Link, deferred_share: float
    ) -> None:
        key, sequence_number = decode_message(arrival.message)
        if not self._book.delivered(key, sequence_number, link):
            return
        if self.chance.random() < deferred_share:
            self._book.deferring(key)
            client.settle(arrival.delivery, partial(self._deferred, key), outcome=MODIFIED)
        else:
            self.complete(client, arrival, key, link, self._book)

    def _deferred(self, key: MessageKey, outcome: Outcome) -> None:
        (self._book.deferral_refused if outcome.is_refused else self._book.deferred)(key)

    # ---- fetching -----------------------------------------------------------------------------

    async def _fetch_some(self, management: Management) -> None:
        link = self.new_link()
        while not self.stopping:
            await asyncio.sleep(PAUSE_S)
            set_aside = self._book.set_aside
            if len(set_aside) <= KEPT:
                continue
            key = self.chance.choice(set_aside)
            if self.chance.random() < DELETED_SHARE:
                await self._fetch_for_good(management, key, link)
            elif (token := await self._fetch(management, key)) is not None:
                keeps = self.chance.random() < ABANDONED_SHARE
                await (
                    self._abandon(management, token)
                    if keeps
                    else self._complete(management, key, token, link)
                )

    async def _fetch(self, management: Management, key: MessageKey) -> UUID | None:
        """Lock a message by its number; gives the lock token if it was there."""
        answer = await self._ask_for(management, key, PEEK_LOCK)
        if answer is None:
            self._book.not_found(key)
            return None
        self._book.fetched(key, *decode_message(answer["message"]))
        token = answer["lock-token"]
        assert isinstance(token, UUID)
        return token

    async def _fetch_for_good(self, management: Management, key: MessageKey, link: Link) -> None:
        self._book.completing(key, link)
        answer = await self._ask_for(management, key, RECEIVE_AND_DELETE)
        if answer is None:
            self._book.completion_refused(key)
            self._book.not_found(key)
            return
        self._book.fetched(key, *decode_message(answer["message"]))
        self._book.completed(key)

    async def _ask_for(
        self, management: Management, key: MessageKey, mode: UInt
    ) -> dict[str, Any] | None:
        numbers = Array(ArrayCode.LONG, [Long(self._book.number_of(key))])
        body = {"sequence-numbers": numbers, "receiver-settle-mode": mode}
        status, answer = await management.request("receive-by-sequence-number", body)
        assert status in {OK, NOT_FOUND}, answer
        found: dict[str, Any] | None = answer["messages"][0] if status == OK else None
        return found

    async def _complete(
        self, management: Management, key: MessageKey, token: UUID, link: Link
    ) -> None:
        self._book.completing(key, link)
        status = await self._dispose(management, token, "completed")
        (self._book.completed if status == OK else self._book.completion_refused)(key)

    async def _abandon(self, management: Management, token: UUID) -> None:
        await self._dispose(management, token, "abandoned")

    @staticmethod
    async def _dispose(management: Management, token: UUID, disposition: str) -> int:
        tokens = Array(ArrayCode.UUID, [token])
        body = {"lock-tokens": tokens, "disposition-status": disposition}
        status, _ = await management.request("update-disposition", body)
        return status

    async def conclude(self) -> Report:
        management = await self.connect("fetcher").management(QUEUE)
        for key in self._book.set_aside_in_doubt:
            token = await self._fetch(management, key)
            if token is not None:
                await self._abandon(management, token)
        await self.drain(QUEUE, self._book)
        link = self.new_link()
        for key in self._book.set_aside:
            token = await self._fetch(management, key)
            if token is not None:
                await self._complete(management, key, token, link)
        for key in await self.peek(self.connect("peek"), QUEUE, KEPT):
            self._book.violate("left over", f"{key}")
        return self._book.audit()
