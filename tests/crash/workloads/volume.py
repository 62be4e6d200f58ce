"""Volume: pipelined senders, and one receiver for every place of arrival.

Many sends wait for their outcome and completions come late, so that a kill always catches some of
each. One receiver sees every message of its place, which allows the strictest check of order.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.client_workload import ClientWorkload, Outgoing
from tests.crash.clients.messages import encode_message
from tests.crash.ledgers.messages import Ledger
from tests.crash.ledgers.report import Report
from tests.crash.workload import LOCK, Surroundings

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.ledgers.messages import MessageKey
    from tests.support.proton.answers import Outcome

SENDERS = ("volume-0", "volume-1")
MAX_BACKLOG = 3_000


class VolumeWorkload(ClientWorkload):
    """Sends to `target`; whatever is accepted must arrive at each of `sources`."""

    target: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    rate_per_s: ClassVar[int]
    """Over both senders: enough to load every commit, little enough to audit in memory."""

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._ledgers = {source: Ledger() for source in self.sources}
        self._next_index = dict.fromkeys(SENDERS, 0)

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return self._ledgers.values()

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        for name in SENDERS:
            next_message = partial(self._next_message, name)
            yield self.send_steadily(self.target, self.rate_per_s / len(SENDERS), next_message)
        for source, ledger in self._ledgers.items():
            yield self.consume(source, ledger)

    def _next_message(self, sender: str) -> Outgoing | None:
        if max(ledger.backlog for ledger in self.ledgers) > MAX_BACKLOG:
            return None
        key = (sender, self._next_index[sender])
        self._next_index[sender] += 1
        for ledger in self.ledgers:
            ledger.sending(key)
        return Outgoing(encode_message(key), partial(self._note, key))

    def _note(self, key: MessageKey, outcome: Outcome) -> None:
        for ledger in self.ledgers:
            (ledger.accepted if outcome.is_accepted else ledger.refused)(key)

    async def conclude(self) -> Report:
        await asyncio.gather(
            *(self.drain(source, ledger) for source, ledger in self._ledgers.items())
        )
        report = Report({})
        for ledger in self.ledgers:
            report = report.plus(ledger.audit())
        return report


class VolumeQueue(VolumeWorkload):
    """One queue."""

    name = "volume on a queue"
    queues: ClassVar[Mapping[str, Any]] = {"crash-volume": LOCK}
    target = "crash-volume"
    sources = ("crash-volume",)
    rate_per_s = 2_000


class VolumeTopic(VolumeWorkload):
    """One topic: accepted means stored for every subscription, not for some."""

    name = "volume on a topic with two subscriptions"
    topics: ClassVar[Mapping[str, Any]] = {
        "crash-topic": {"subscriptions": {"one": LOCK, "two": LOCK}}
    }
    target = "crash-topic"
    sources = ("crash-topic/Subscriptions/one", "crash-topic/Subscriptions/two")
    rate_per_s = 500
