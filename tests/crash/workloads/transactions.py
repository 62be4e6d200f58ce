"""Transactions: take a message, send one to each of two queues, commit; or roll back.

Several run side by side on each connection. Some wait for each answer, others put everything on the
wire at once, so that kills meet every stage.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.client_workload import WAIT_S, ClientWorkload, Outgoing
from tests.crash.clients.messages import decode_message, encode_message
from tests.crash.ledgers.transactions import TransactionLedger
from tests.crash.workload import LOCK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from tests.crash.ledgers.messages import Ledger, Link, MessageKey
    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings
    from tests.support.proton.answers import Arrival, Outcome
    from tests.support.proton.client import ProtonClient
    from tests.support.proton.links import Receiver, Sender
    from tests.support.proton.nodes import Coordinator

INPUTS = "crash-transaction-in"
OUTPUTS = ("crash-transaction-a", "crash-transaction-b")
CONNECTIONS = 2
TRANSACTIONS_PER_CONNECTION = 8
ROLLBACK_SHARE = 0.2
PIPELINED_SHARE = 0.5
SILENT_SHARE = 0.3
"""Of the settlements, those that want no answer of their own."""
RATE_PER_S = 120
MAX_BACKLOG = 300


class Transactions(ClientWorkload):
    name = "transactions over three queues"
    queues: ClassVar[Mapping[str, Any]] = {
        **dict.fromkeys((INPUTS, *OUTPUTS), LOCK),
    }

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._book = TransactionLedger(OUTPUTS)
        self._next_index = 0

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return (self._book.inputs, *self._book.outputs.values())

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.send_steadily(INPUTS, RATE_PER_S, self._next_input)
        for number in range(CONNECTIONS):
            yield self._transact(number)
        for name, ledger in self._book.outputs.items():
            yield self.consume(name, ledger)

    def _next_input(self) -> Outgoing | None:
        if self._book.inputs.backlog > MAX_BACKLOG:
            return None
        key = ("input", self._next_index)
        self._next_index += 1
        self._book.inputs.sending(key)
        return Outgoing(encode_message(key), partial(self._fed, key))

    def _fed(self, key: MessageKey, outcome: Outcome) -> None:
        (self._book.inputs.accepted if outcome.is_accepted else self._book.inputs.refused)(key)

    async def _transact(self, number: int) -> None:
        client = self.connect(f"worker-{number}")
        coordinator = await client.coordinator()
        # The first entity of a session with a coordinator is the one that is received from.
        receiver = await client.receiver(INPUTS, TRANSACTIONS_PER_CONNECTION)
        senders = [await client.sender(name) for name in OUTPUTS]
        worker = Worker(self, client, coordinator, senders, receiver, self.new_link())
        async with asyncio.TaskGroup() as group:
            for _ in range(TRANSACTIONS_PER_CONNECTION):
                group.create_task(worker.work(self._book))

    async def conclude(self) -> Report:
        await self.drain(INPUTS, self._book.inputs, self._input_delivered)
        await asyncio.gather(
            *(self.drain(name, ledger) for name, ledger in self._book.outputs.items())
        )
        return self._book.audit()

    def _input_delivered(
        self, key: MessageKey, sequence_number: int, link: Link, _message: bytes
    ) -> bool:
        return self._book.input_delivered(key, sequence_number, link)


class Worker:
    """One connection with all that a transaction takes."""

    def __init__(
        self,
        workload: Transactions,
        client: ProtonClient,
        coordinator: Coordinator,
        senders: list[Sender],
        receiver: Receiver,
        link: Link,
    ) -> None:
        self._workload = workload
        self._chance = workload.chance
        self._client = client
        self._coordinator = coordinator
        self._senders = senders
        self._receiver = receiver
        self._link = link

    async def work(self, book: TransactionLedger) -> None:
        """One transaction after the other."""
        while not self._workload.stopping:
            arrival = await self._receiver.next(WAIT_S)
            if arrival is not None:
                source, sequence_number = decode_message(arrival.message)
                if book.input_delivered(source, sequence_number, self._link):
                    await self._transact(book, source, arrival)

    async def _transact(
        self, book: TransactionLedger, source: MessageKey, arrival: Arrival
    ) -> None:
        key = book.beginning(source)
        transaction_id = await self._coordinator.declare()
        steps: list[Callable[[], Awaitable[object]]] = [
            partial(sender.send, encode_message(key), transaction_id) for sender in self._senders
        ]
        if self._chance.random() < SILENT_SHARE:
            self._client.settle_silently(arrival.delivery, transaction_id)
        else:
            steps.append(partial(self._receiver.complete, arrival, transaction_id))
        self._chance.shuffle(steps)
        rolls_back = self._chance.random() < ROLLBACK_SHARE
        steps.append(partial(self._discharge, book, key, transaction_id, rolls_back))
        # A send that had to wait for credit would come after the discharge.
        can_be_pipelined = all(sender.credit > len(self._senders) for sender in self._senders)
        if can_be_pipelined and self._chance.random() < PIPELINED_SHARE:
            await asyncio.gather(*(step() for step in steps))
        else:
            for step in steps:
                await step()

    async def _discharge(
        self, book: TransactionLedger, key: MessageKey, transaction_id: bytes, rolls_back: bool
    ) -> None:
        if rolls_back:
            book.rolling_back(key)
            await self._coordinator.discharge(transaction_id, fail=True)
            book.rolled_back(key)
            return
        book.committing(key, self._link)
        outcome = await self._coordinator.discharge(transaction_id, fail=False)
        (book.committed if outcome.is_accepted else book.commit_refused)(key)
