"""A workload of coroutines: clients that wait for their answers, over several runs of the broker.

Manages connections, reconnecting, receiving and emptying. The workloads decide what is sent and
settled. Operations that wait when the broker ends fail at once, and their result is not known to
the ledger.
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from protocol.codec import Int, Long
from tests.crash.clients.messages import decode_message, delivery_count
from tests.crash.ledgers.messages import Ledger, Link, MessageKey
from tests.crash.ledgers.report import Book, Report
from tests.crash.workload import NO_RUN, Surroundings, Workload
from tests.support.proton.answers import Outcome, Refused, Unanswered
from tests.support.proton.client import ProtonClient
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator
    from typing import Any

    from tests.support.proton.answers import Arrival

RETRY_INTERVAL_S = 0.05
WAIT_S = 0.2
"""How often somebody who waits for a message looks whether it is time to stop."""
QUIET_S = 2.5
"""A place that delivers nothing for so long is empty."""
WINDOW = 30
"""Sends that wait for their outcome."""
CREDIT = 100
HOLD_SHARE = 0.1
MAX_HELD = 20
"""Messages kept back, to be completed later and out of turn."""
STRAYS_SHOWN = 20
BUSY = "com.microsoft:server-busy"
"""Whoever is told so tries again later, as with a full disk."""
FORCED = "amqp:connection:forced"
"""So a broker closes that stops, or starts again after a failed commit."""

Note = Callable[[MessageKey, int, Link, bytes], bool]
"""Hears of a message that was received: which, its number, over which link, and all of it. It says
whether the ledger has an account of it."""


class Outgoing(NamedTuple):
    """A message to send, and the function that gets its outcome."""

    message: bytes
    then: Callable[[Outcome], None]


class Unkept(Book):
    """What clients expect of every broker that is up."""

    kinds = ("unanswered", "link refused", "closed with an error")


class Pace:
    """Keeps a loop to a rate; what was missed while the broker was away is not made up for."""

    def __init__(self, per_s: float) -> None:
        self._interval_s = 1 / per_s
        self._next_s = asyncio.get_running_loop().time()

    async def turn(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s, now_s - 10 * self._interval_s) + self._interval_s
        await asyncio.sleep(self._next_s - now_s)


class ClientWorkload(Workload):
    """Subclasses say which coroutines make up a run, and how everything is emptied at the end."""

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.chance = random.Random(surroundings.seed)
        self.broker_run = NO_RUN
        self._clients: list[ProtonClient] = []
        self._received_from: list[Ledger] = []
        """The ledger of each receiver whose connection ends with this run."""
        self._links = 0
        self._unkept = Unkept()

    @abstractmethod
    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Returns the coroutines of one run. Each ends soon after `stopping`."""

    @abstractmethod
    async def conclude(self) -> Report:
        """Empties all places and checks the ledgers, when the broker is not killed any more."""

    @property
    def ledgers(self) -> Iterable[Ledger]:
        """Those that must know of a connection that was lost without a kill."""
        return ()

    def run_over(self) -> None:
        """All connections are gone; nothing has been asked in the next run yet."""

    # ---- runs of the broker --------------------------------------------------------------------

    def work(self) -> None:
        asyncio.run(self._work_through_runs())

    def finish(self) -> Report:
        self.broker_run = self.surroundings.broker_run.value
        return asyncio.run(self.empty_and_audit())

    async def _work_through_runs(self) -> None:
        while (broker_run := self.surroundings.wait_for_run()) != NO_RUN:
            await self.work_in_one_run(broker_run)

    async def work_in_one_run(self, broker_run: int) -> None:
        """Work until the broker ends this run, a connection fails, or it is time to stop."""
        self.broker_run = broker_run
        try:
            async with asyncio.TaskGroup() as group:
                for task in self.tasks():
                    group.create_task(task)
        except* (PeerFailed, OSError) as failures:
            self.note_failure(broker_run, failures.exceptions[0], *self.ledgers)
            unexplained = failures.subgroup(_is_unexplained_close)
            if unexplained is not None:
                self._note_unkept(broker_run, "closed with an error", unexplained)
        except* Unanswered as failures:
            self._note_unkept(broker_run, "unanswered", failures)
        except* Refused as failures:
            refusals = failures.subgroup(_is_final)
            if refusals is not None:
                self._note_unkept(broker_run, "link refused", refusals)
        finally:
            self.hang_up()
            self.run_over()
        await asyncio.sleep(RETRY_INTERVAL_S)

    def _note_unkept(
        self, broker_run: int, kind: str, failures: BaseExceptionGroup[Exception]
    ) -> None:
        is_excused = kind != "unanswered" and self.surroundings.faulty.value
        if self.surroundings.is_still(broker_run) and not is_excused:
            for failure in _leaves(failures):
                self._unkept.violate(kind, str(failure))

    async def empty_and_audit(self) -> Report:
        """Returns the findings of `conclude`, and the requests without an answer before. The broker
        is not killed any more."""
        try:
            report = await self.conclude()
        finally:
            self.hang_up()
        return report.plus(Report({}, self._unkept.violations))

    @property
    def stopping(self) -> bool:
        return self.surroundings.stop.is_set()

    def connect(self, container_id: str) -> ProtonClient:
        """A new connection, which ends with this run."""
        surroundings = self.surroundings
        connected = surroundings.dial() if surroundings.dial is not None else None
        client = ProtonClient(surroundings.host, surroundings.amqp_port, container_id, connected)
        self._clients.append(client)
        return client

    def hang_up(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()
        for ledger in self._received_from:
            ledger.receiver_lost()
        self._received_from.clear()

    def new_link(self) -> Link:
        """What a ledger calls a receiver that is attached now."""
        self._links += 1
        return Link(self._links, self.broker_run)

    # ---- sending ------------------------------------------------------------------------------

    async def send_steadily(
        self, address: str, rate_per_s: float, next_message: Callable[[], Outgoing | None]
    ) -> None:
        """Sends the messages of `next_message`, several at a time, until it is time to stop; then
        waits for the outcomes. `next_message` returns None while receivers are too far behind."""
        sender = await self.connect(f"{address} sender").sender(address)
        pace = Pace(rate_per_s)
        awaited = 0

        def note(then: Callable[[Outcome], None], outcome: Outcome) -> None:
            nonlocal awaited
            awaited -= 1
            then(outcome)

        while not self.stopping or awaited:
            await pace.turn()
            sender.client.check()
            if self.stopping or awaited >= WINDOW or sender.credit <= 0:
                continue
            outgoing = next_message()
            if outgoing is not None:
                awaited += 1
                sender.put(outgoing.message, partial(note, outgoing.then))

    # ---- receiving ----------------------------------------------------------------------------

    async def consume(self, address: str, ledger: Ledger, note: Note | None = None) -> None:
        """Receives and completes, some messages late and out of order, until it is time to stop.
        `note` is called for each message instead of the ledger's `delivered`."""
        client = self.connect(f"{address} receiver")
        self._received_from.append(ledger)
        receiver = await client.receiver(address, CREDIT)
        link = self.new_link()
        held: list[tuple[Arrival, MessageKey]] = []
        while not self.stopping:
            arrival = await receiver.next(WAIT_S)
            if arrival is None:
                continue
            key = _noted(arrival, link, ledger, note)
            if key is None:
                continue
            ledger.counted(key, delivery_count(arrival.message))
            if self.chance.random() < HOLD_SHARE:
                held.append((arrival, key))
                if len(held) <= MAX_HELD:
                    continue
                arrival, key = held.pop(self.chance.randrange(len(held)))
            self.complete(client, arrival, key, link, ledger)

    async def drain(self, address: str, ledger: Ledger, note: Note | None = None) -> None:
        """Receive and complete until nothing comes any more, then see that nothing was put aside."""
        client = self.connect(f"{address} drain")
        receiver = await client.receiver(address, CREDIT)
        link = self.new_link()
        while (arrival := await receiver.next(QUIET_S)) is not None:
            key = _noted(arrival, link, ledger, note)
            if key is not None:
                self.complete(client, arrival, key, link, ledger)
        for key in await self.peek(client, f"{address}/$DeadLetterQueue", STRAYS_SHOWN):
            ledger.dead_lettered(key)

    @staticmethod
    def complete(
        client: ProtonClient, arrival: Arrival, key: MessageKey, link: Link, ledger: Ledger
    ) -> None:
        """Completes without waiting. The ledger gets the answer."""
        ledger.completing(key, link)
        client.settle(arrival.delivery, partial(_note_completion, ledger, key))

    @staticmethod
    async def peek(client: ProtonClient, address: str, count: int) -> list[MessageKey]:
        """Returns the messages of a place from the first one on, in any state, without receiving
        them."""
        management = await client.management(address)
        found: list[MessageKey] = []
        from_number = 0
        while len(found) < count:
            missing = count - len(found)
            body = {"from-sequence-number": Long(from_number), "message-count": Int(missing)}
            status, answer = await management.request("peek-message", body)
            if status != 200:
                break
            for entry in answer["messages"]:
                key, number = decode_message(entry["message"])
                found.append(key)
                from_number = number + 1
        return found


def _leaves(failures: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """Returns the exceptions inside nested exception groups."""
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _leaves(failure)
        else:
            yield failure


def _is_unexplained_close(failure: BaseException) -> bool:
    """Whether the broker closed a connection or session for a mistake that it sees in the client.
    Groups are asked about, too."""
    text = str(failure)
    closed = text.startswith(("connection closed", "session closed"))
    return isinstance(failure, PeerFailed) and closed and FORCED not in text


def _is_final(failure: BaseException) -> bool:
    """Returns whether a refusal is final: a busy broker accepts the same request later."""
    return isinstance(failure, Refused) and not str(failure).startswith(BUSY)


def _note_completion(ledger: Ledger, key: MessageKey, outcome: Outcome) -> None:
    (ledger.completed if outcome.is_accepted else ledger.completion_refused)(key)


def _noted(arrival: Arrival, link: Link, ledger: Ledger, note: Note | None) -> MessageKey | None:
    key, sequence_number = decode_message(arrival.message)
    if note is None:
        is_known = ledger.delivered(key, sequence_number, link)
    else:
        is_known = note(key, sequence_number, link, arrival.message)
    return key if is_known else None
