"""Request nodes: the transaction coordinator, and the `$management` node of an entity.

Builds requests and reads answers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cproton_ffi import lib

from protocol.amqp.engine.outcomes import text
from protocol.codec import Described, ULong
from tests.support.message_sections import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    VALUE,
    section,
    sections_of,
)
from tests.support.proton.answers import ANSWER_TIMEOUT_S, DECLARED, Outcome, Refused, Unanswered
from tests.support.proton.links import Receiver, Sender

if TYPE_CHECKING:
    from collections.abc import Mapping

DECLARE, DISCHARGE = 0x31, 0x32


class Coordinator(Sender):
    """Declares and discharges transactions."""

    async def declare(self) -> bytes:
        """Declare a transaction. Returns its id."""
        outcome = await self.send(section(VALUE, Described(ULong(DECLARE), [])))
        if outcome.state != DECLARED:
            raise Refused(f"a declare was answered with {outcome}")
        transaction_id = outcome.fields[0]
        assert isinstance(transaction_id, bytes)
        return transaction_id

    async def discharge(self, transaction_id: bytes, *, fail: bool) -> Outcome:
        """Commit or roll back a transaction."""
        request = Described(ULong(DISCHARGE), [transaction_id, fail])
        return await self.send(section(VALUE, request))


class Management:
    """Requests to an entity's `$management` node, one at a time."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender = sender
        self._receiver = receiver
        self._requests = 0
        self._turn = asyncio.Lock()

    async def request(
        self, operation: str, body: Mapping[str, object]
    ) -> tuple[int, dict[str, Any]]:
        """Send a request and wait. Returns the status and the body of the answer."""
        async with self._turn:
            self._requests += 1
            reply_to = text(lib.pn_link_name(self._receiver.handle))
            properties = [f"request-{self._requests}", None, None, None, reply_to]
            await self._sender.send(
                section(PROPERTIES, properties)
                + section(APPLICATION_PROPERTIES, {"operation": f"com.microsoft:{operation}"})
                + section(VALUE, dict(body))
            )
            arrival = await self._receiver.next(ANSWER_TIMEOUT_S)
            if arrival is None:
                raise Unanswered(f"no answer to {operation} for {ANSWER_TIMEOUT_S} s")
            found = sections_of(arrival.message)
            assert found[PROPERTIES][5] == properties[0]
            self._receiver.client.settle(arrival.delivery, lambda _: None)
            return int(found[APPLICATION_PROPERTIES]["statusCode"]), found[VALUE]
