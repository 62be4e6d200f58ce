"""The links of the client that waits for answers: sender and receiver.

Manages credit and the answers that are waited for on each link; the connection moves the bytes.
When a link ends, everything that waits on it gets the error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cproton_ffi import lib

from protocol.amqp.engine.outcomes import text
from tests.support.proton.answers import Arrival, Outcome, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.proton.client import ProtonClient

Answer = TypeVar("Answer")


class Link:
    """The common part of all links: attach and detach."""

    def __init__(self, client: ProtonClient, handle: Any) -> None:
        self.client = client
        self.handle = handle
        loop = asyncio.get_running_loop()
        self.attached: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when the broker has detached the link."""

    def on_event(self, kind: int) -> None:
        if kind == lib.PN_LINK_REMOTE_OPEN:
            # A refusal is an attach without an end, followed by a detach that says why.
            ends = lib.pn_link_remote_source(self.handle), lib.pn_link_remote_target(self.handle)
            if any(lib.pn_terminus_get_type(end) != lib.PN_UNSPECIFIED for end in ends):
                _resolve(self.attached, None)
        elif kind in (lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH):
            condition = lib.pn_link_remote_condition(self.handle)
            name = text(lib.pn_condition_get_name(condition))
            _resolve(self.ended, None)
            lib.pn_link_close(self.handle)
            if name is not None:
                description = text(lib.pn_condition_get_description(condition))
                self.fail(Refused(f"{name}: {description}"))

    def fail(self, failure: Exception) -> None:
        """Raises the error in everything that waits on this link."""
        if not self.attached.done():
            self.attached.set_exception(failure)

    async def detach(self) -> None:
        """Detach the link and wait for the answer."""
        lib.pn_link_close(self.handle)
        await self.client.answer(self.ended, "a detach")


class Sender(Link):
    """Sends while there is credit."""

    def __init__(self, client: ProtonClient, handle: Any) -> None:
        super().__init__(client, handle)
        self._wanting: deque[asyncio.Future[None]] = deque()

    def on_event(self, kind: int) -> None:
        super().on_event(kind)
        while kind == lib.PN_LINK_FLOW and self._wanting:
            _resolve(self._wanting.popleft(), None)

    def put(
        self,
        message: bytes,
        then: Callable[[Outcome], None],
        transaction_id: bytes | None = None,
    ) -> None:
        """Send without waiting for the outcome. There must be credit."""
        assert self.credit > 0
        self.client.put(self, message, then, transaction_id)

    async def send(self, message: bytes, transaction_id: bytes | None = None) -> Outcome:
        """Send and wait for the outcome."""
        await self.wait_for_credit()
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.put(message, partial(_resolve, outcome), transaction_id)
        return await self.client.answer(outcome, "a send")

    @property
    def credit(self) -> int:
        return int(lib.pn_link_credit(self.handle))

    async def wait_for_credit(self) -> None:
        while self.credit <= 0:
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wanting.append(granted)
            await self.client.answer(granted, "the wish for credit")


class Receiver(Link):
    """Receives in peek-lock mode and renews the credit."""

    def __init__(self, client: ProtonClient, handle: Any, credit: int) -> None:
        super().__init__(client, handle)
        self._credit = credit
        self._arrived: asyncio.Queue[Arrival | Exception] = asyncio.Queue()
        lib.pn_link_flow(handle, credit)

    def on_message(self, arrival: Arrival) -> None:
        self._arrived.put_nowait(arrival)

    def fail(self, failure: Exception) -> None:
        super().fail(failure)
        self._arrived.put_nowait(failure)

    async def next(self, wait_s: float) -> Arrival | None:
        """Returns the next message, or None if none arrives within this time. Raises if the link
        ends."""
        self._grant()
        if self._arrived.empty():
            try:
                async with asyncio.timeout(wait_s):
                    arrival = await self._arrived.get()
            except TimeoutError:
                return None
        else:
            arrival = self._arrived.get_nowait()
        if isinstance(arrival, Exception):
            raise arrival
        return arrival

    def _grant(self) -> None:
        missing = self._credit - lib.pn_link_credit(self.handle) - self._arrived.qsize()
        if missing * 2 > self._credit:
            lib.pn_link_flow(self.handle, missing)
            self.client.flush_soon()

    async def complete(self, arrival: Arrival, transaction_id: bytes) -> Outcome:
        """Complete a message under a transaction and wait for the broker's answer."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        then = partial(_resolve, outcome)
        self.client.settle(arrival.delivery, then, transaction_id=transaction_id)
        return await self.client.answer(outcome, "a settlement")


def _resolve(future: asyncio.Future[Answer], value: Answer) -> None:
    if not future.done():
        future.set_result(value)
