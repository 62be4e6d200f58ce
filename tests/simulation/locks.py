"""Competing receivers with short locks: complete, abandon, hold too long, renew, dead-letter.

A lock is held by one link at a time, from when it was given until it is settled, runs out, or its
connection ends. What is completed in time never comes again; what is not comes again, and counts.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from uuid import UUID

from cproton_ffi import ffi, lib

from protocol.codec import Array, ArrayCode
from tests.crash.client_workload import QUIET_S, WAIT_S, ClientWorkload, Outgoing
from tests.crash.clients.messages import decode_message, encode_message
from tests.crash.ledgers.messages import Completion, Ledger, Link, MessageKey, Order
from tests.support.message_sections import sections_of
from tests.support.proton.answers import REJECTED

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings
    from tests.support.proton.answers import Arrival, Outcome
    from tests.support.proton.client import ProtonClient
    from tests.support.proton.nodes import Management

QUEUE = "simulated-locks"
DEAD_LETTERS = f"{QUEUE}/$DeadLetterQueue"
LOCK_MS = 5_000
MAX_DELIVERY_COUNT = 6
RATE_PER_S = 60
MAX_BACKLOG = 100
RECEIVERS = 3
CREDIT = 8
RELEASED = 0x26
OK = 200
NOTICED_WITHIN_MS = 100
"""A client hears of the end of its connection at most so long after the broker."""
HEADER, ANNOTATIONS = 0x70, 0x72


class Hold(NamedTuple):
    """Who has a message, and until when."""

    link: int
    until_ms: int


class LockLedger(Ledger):
    """Messages of one queue, and the locks on them."""

    kinds = ("locked twice", *Ledger.kinds)

    def __init__(self) -> None:
        super().__init__(Order.NONE)
        self._suspicions: list[tuple[int, str]] = []
        """Locks given twice, unless the first holder is about to hear that its connection broke."""
        self._holds: dict[MessageKey, Hold] = {}
        self._delivery_counts: dict[MessageKey, int] = {}

    def locked(
        self, key: MessageKey, link: Link, until_ms: int, delivery_count: int, now_ms: int
    ) -> None:
        """A link was given a message under a lock that ends then."""
        given_ms = until_ms - LOCK_MS
        before = self._holds.get(key)
        if before is not None and given_ms < before.until_ms:
            text = f"{key} was given to link {link.number} at {given_ms}, held by {before}"
            self._suspicions.append((now_ms, text))
        self._holds[key] = Hold(link.number, until_ms)
        least = self._delivery_counts.get(key, 0)
        if not least <= delivery_count < MAX_DELIVERY_COUNT:
            self.violate("delivery count", f"{key} has {delivery_count} after {least}")
        self._delivery_counts[key] = delivery_count

    def renewed(self, key: MessageKey, link: Link, until_ms: int) -> None:
        hold = self._holds.get(key)
        if hold is not None and hold.link == link.number:
            self._holds[key] = Hold(link.number, until_ms)

    def releasing(self, key: MessageKey) -> None:
        """A settlement is about to be put on the wire: others may have the message next."""
        self._holds.pop(key, None)

    def all_dropped(self, now_ms: int) -> None:
        """The connections are gone, and the locks with them. The broker may have noticed it first,
        and have given the messages to others before their holders heard of it."""
        for at_ms, text in self._suspicions:
            if at_ms < now_ms - NOTICED_WITHIN_MS:
                self.violate("locked twice", text)
        self._suspicions.clear()
        self._holds.clear()

    def died(self, key: MessageKey, link: Link) -> None:
        """It was found in the dead-letter queue, and completed there."""
        if self.completion_of(key) is Completion.CONFIRMED:
            self.violate("back", f"{key} is a dead letter after its completion was confirmed")
        self.completing(key, link)
        self.completed(key)


class Locks(ClientWorkload):
    name = "competing receivers with short locks"
    queues: ClassVar[Mapping[str, Any]] = {
        QUEUE: {"lock_duration": "PT5S", "max_delivery_count": MAX_DELIVERY_COUNT}
    }

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._book = LockLedger()
        self._next_index = 0

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.send_steadily(QUEUE, RATE_PER_S, self._next_message)
        for number in range(RECEIVERS):
            yield self._receive(number)

    def run_over(self) -> None:
        self._book.all_dropped(self.surroundings.now_ms())

    def _next_message(self) -> Outgoing | None:
        if self._book.backlog > MAX_BACKLOG:
            return None
        key = ("locks", self._next_index)
        self._next_index += 1
        self._book.sending(key)
        return Outgoing(encode_message(key), partial(self._sent, key))

    def _sent(self, key: MessageKey, outcome: Outcome) -> None:
        (self._book.accepted if outcome.is_accepted else self._book.refused)(key)

    # ---- receiving ------------------------------------------------------------------------------

    async def _receive(self, number: int) -> None:
        client = self.connect(f"receiver-{number}")
        receiver = await client.receiver(QUEUE, CREDIT)
        management = await client.management(QUEUE)
        link = self.new_link()
        async with asyncio.TaskGroup() as group:
            while not self.stopping:
                arrival = await receiver.next(WAIT_S)
                if arrival is not None and (key := self._noted(arrival, link)) is not None:
                    group.create_task(self._work(client, management, arrival, key, link))

    def _noted(self, arrival: Arrival, link: Link) -> MessageKey | None:
        key, sequence_number = decode_message(arrival.message)
        if not self._book.delivered(key, sequence_number, link):
            return None
        sections = sections_of(arrival.message)
        until_ms = int(sections[ANNOTATIONS]["x-opt-locked-until"])
        count, now_ms = int(sections[HEADER][4] or 0), self.surroundings.now_ms()
        self._book.locked(key, link, until_ms, count, now_ms)
        return key

    async def _work(
        self,
        client: ProtonClient,
        management: Management,
        arrival: Arrival,
        key: MessageKey,
        link: Link,
    ) -> None:
        """Some settle at once, some late, some too late, some never."""
        choice = self.chance.randrange(20)
        if choice < 6:
            await asyncio.sleep(self.chance.uniform(0, 2 * LOCK_MS / 1000))
        elif choice < 9:
            await asyncio.sleep(self.chance.uniform(0, LOCK_MS / 1000))
            await self._renew(management, arrival, key, link)
            await asyncio.sleep(self.chance.uniform(0, LOCK_MS / 1000))
        elif choice == 9:
            return
        if choice < 14:
            self._book.completing(key, link)
            self._settle(client, arrival, key)
        elif choice < 18:
            self._settle(client, arrival, key, RELEASED)
        else:
            self._settle(client, arrival, key, REJECTED)

    async def _renew(
        self, management: Management, arrival: Arrival, key: MessageKey, link: Link
    ) -> None:
        tag = lib.pn_delivery_tag(arrival.delivery)
        token = UUID(bytes_le=bytes(ffi.buffer(tag.start, tag.size)))
        body = {"lock-tokens": Array(ArrayCode.UUID, [token])}
        status, answer = await management.request("renew-lock", body)
        if status == OK:
            self._book.renewed(key, link, int(answer["expirations"].items[0]))

    def _settle(
        self, client: ProtonClient, arrival: Arrival, key: MessageKey, outcome: int | None = None
    ) -> None:
        self._book.releasing(key)
        if outcome is None:
            client.settle(arrival.delivery, partial(self._completed, key))
        else:
            client.settle(arrival.delivery, lambda _: None, outcome=outcome)

    def _completed(self, key: MessageKey, outcome: Outcome) -> None:
        (self._book.completed if outcome.is_accepted else self._book.completion_refused)(key)

    # ---- the end ----------------------------------------------------------------------------------

    async def conclude(self) -> Report:
        await asyncio.sleep(2 * LOCK_MS / 1000)
        client = self.connect("drain")
        receiver = await client.receiver(QUEUE, CREDIT)
        link = self.new_link()
        while (arrival := await receiver.next(QUIET_S)) is not None:
            if (key := self._noted(arrival, link)) is not None:
                self._book.completing(key, link)
                self._settle(client, arrival, key)
        receiver = await client.receiver(DEAD_LETTERS, CREDIT)
        while (arrival := await receiver.next(QUIET_S)) is not None:
            self._book.died(decode_message(arrival.message)[0], link)
            client.settle(arrival.delivery, lambda _: None)
        await asyncio.sleep(QUIET_S)
        self.run_over()
        return self._book.audit()
