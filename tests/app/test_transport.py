"""The socket side of a connection: when it looks again at what the client may do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from broker.app.transport import AmqpTransport

if TYPE_CHECKING:
    from broker.app.transport import Doorkeeper, Wire
    from protocol.amqp.connection import Connection


class Watched:
    """Stands in for server, wire and connection: notes when it is told to look."""

    def __init__(self) -> None:
        self.checks: asyncio.Queue[float] = asyncio.Queue()
        self.opened = True

    def check_permits(self) -> None:
        self.checks.put_nowait(asyncio.get_running_loop().time())

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


def transport(watched: Watched) -> AmqpTransport:
    made = AmqpTransport(
        cast("Doorkeeper", watched), lambda _transport, _peer: cast("Connection", watched), 60.0
    )
    made.begin(cast("Wire", watched), "client")
    return made


async def test_it_looks_when_the_time_has_come():
    """Once, and after the last wish."""
    watched = Watched()
    one = transport(watched)
    began_s = asyncio.get_running_loop().time()
    one.wake_in(60_000)
    one.wake_in(20)
    looked_s = await asyncio.wait_for(watched.checks.get(), 5)
    assert 0.015 <= looked_s - began_s < 5
    assert watched.checks.empty()
    one.connection_lost(None)


async def test_what_is_due_already_is_looked_at_on_the_next_occasion():
    """The clock may have been moved past it."""
    watched = Watched()
    one = transport(watched)
    one.wake_in(-1000)
    await asyncio.wait_for(watched.checks.get(), 5)
    one.connection_lost(None)


async def test_a_lost_connection_is_not_looked_at():
    """Its timers are gone with it."""
    one = transport(Watched())
    one.wake_in(60_000)
    timer = one._permit_timer
    one.connection_lost(None)
    assert timer is not None
    assert timer.cancelled()
