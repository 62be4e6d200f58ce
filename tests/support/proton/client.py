"""A client that waits for answers: one connection on the Proton engine, under asyncio.

It has links, outcomes, requests and transactions. When the connection ends, everything that waits
fails, and the result of operations without an answer is not known.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from cproton_ffi import lib

from protocol.amqp.engine.outcomes import data_bytes, set_data, text
from protocol.codec import Described, Symbol, UInt, ULong, decode, encode
from tests.support.proton.answers import (
    ACCEPTED,
    ANSWER_TIMEOUT_S,
    MODIFIED,
    REJECTED,
    TRANSACTIONAL,
    Arrival,
    Outcome,
    Unanswered,
)
from tests.support.proton.connection import PeerFailed, ProtonConnection
from tests.support.proton.links import Link, Receiver, Sender
from tests.support.proton.nodes import Coordinator, Management

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.proton.connection import ByteSocket

SESSION_FILTER = Symbol("com.microsoft:session-filter")
DEAD_LETTER = b"com.microsoft:dead-letter"
TIMEOUT = Symbol("com.microsoft:timeout")
FAILURES = frozenset(
    (lib.PN_TRANSPORT_ERROR, lib.PN_SESSION_REMOTE_CLOSE, lib.PN_CONNECTION_REMOTE_CLOSE)
)

Answer = TypeVar("Answer")


class ProtonClient:
    """A connection. The caller must `close` it. Its links end with it."""

    def __init__(
        self, host: str, port: int, container_id: str, connected: ByteSocket | None = None
    ) -> None:
        self._engine = ProtonConnection(host, port, container_id, connected=connected)
        self._loop = asyncio.get_running_loop()
        self._links: dict[Any, Link] = {}
        self._awaited: dict[Any, Callable[[Outcome], None]] = {}
        self._futures: dict[asyncio.Future[Any], None] = {}
        self._failure: Exception | None = None
        self._is_flushing = False
        self._tags = 0
        self._loop.add_reader(self._engine, self._read)

    # ---- links --------------------------------------------------------------------------------

    async def sender(self, address: str) -> Sender:
        link = Sender(self, self._engine.attach_sender(address, name=self._name()))
        await self._attached(link)
        return link

    async def receiver(self, address: str, credit: int) -> Receiver:
        handle = self._engine.attach_receiver(address, name=self._name(), second=True)
        link = Receiver(self, handle, credit)
        await self._attached(link)
        return link

    async def accept_session(
        self, address: str, session_id: str | None, credit: int, timeout_ms: int
    ) -> tuple[str, Receiver]:
        """Accept a session, or the next available one for None. Also returns its id."""
        handle = lib.pn_receiver(self._engine.amqp_session, self._name().encode())
        source = lib.pn_link_source(handle)
        lib.pn_terminus_set_address(source, address.encode())
        set_data(lib.pn_terminus_filter(source), encode({SESSION_FILTER: session_id}))
        set_data(lib.pn_link_properties(handle), encode({TIMEOUT: UInt(timeout_ms)}))
        lib.pn_terminus_set_address(lib.pn_link_target(handle), b"here")
        lib.pn_link_set_rcv_settle_mode(handle, lib.PN_RCV_SECOND)
        lib.pn_link_open(handle)
        link = Receiver(self, handle, credit)
        await self._attached(link)
        filters = data_bytes(lib.pn_terminus_filter(lib.pn_link_remote_source(handle)))
        accepted = decode(filters)[0]
        assert isinstance(accepted, dict)
        return str(accepted[SESSION_FILTER]), link

    async def coordinator(self) -> Coordinator:
        handle = lib.pn_sender(self._engine.amqp_session, self._name().encode())
        lib.pn_terminus_set_type(lib.pn_link_target(handle), lib.PN_COORDINATOR)
        lib.pn_terminus_set_address(lib.pn_link_source(handle), b"here")
        lib.pn_link_open(handle)
        link = Coordinator(self, handle)
        await self._attached(link)
        return link

    async def management(self, entity: str) -> Management:
        """The `$management` node of an entity."""
        return Management(
            await self.sender(f"{entity}/$management"),
            await self.receiver(f"{entity}/$management", credit=20),
        )

    async def _attached(self, link: Link) -> None:
        self._links[link.handle] = link
        await self.answer(link.attached, "an attach")

    def _name(self) -> str:
        self._tags += 1
        return f"link-{self._tags}"

    # ---- for links ----------------------------------------------------------------------------

    def put(
        self,
        link: Link,
        message: bytes,
        then: Callable[[Outcome], None],
        transaction_id: bytes | None = None,
    ) -> None:
        """Send a message. `then` is called with the outcome."""
        self.check()
        self._tags += 1
        delivery = self._engine.send(link.handle, message, self._tags.to_bytes(8, "big"))
        if transaction_id is not None:
            _set_state(delivery, TRANSACTIONAL, [transaction_id])
        self._awaited[delivery] = then
        self.flush_soon()

    def settle(
        self,
        delivery: Any,
        then: Callable[[Outcome], None],
        *,
        outcome: int = ACCEPTED,
        transaction_id: bytes | None = None,
    ) -> None:
        """Complete a message, defer it (MODIFIED) or dead-letter it (REJECTED); `then` is called
        with the broker's answer."""
        self.check()
        if transaction_id is not None:
            _set_state(delivery, TRANSACTIONAL, [transaction_id, Described(ULong(outcome), [])])
        else:
            local = lib.pn_delivery_local(delivery)
            if outcome == MODIFIED:
                lib.pn_disposition_set_undeliverable(local, True)
            elif outcome == REJECTED:
                lib.pn_condition_set_name(lib.pn_disposition_condition(local), DEAD_LETTER)
            lib.pn_delivery_update(delivery, outcome)
        self._awaited[delivery] = then
        self.flush_soon()

    def settle_silently(self, delivery: Any, transaction_id: bytes) -> None:
        """Complete a message in a transaction without waiting for an answer."""
        self.check()
        outcome = Described(ULong(ACCEPTED), [])
        _set_state(delivery, TRANSACTIONAL, [transaction_id, outcome])
        lib.pn_delivery_settle(delivery)
        self.flush_soon()

    async def answer(self, future: asyncio.Future[Answer], what: str) -> Answer:
        """Wait for an answer, at most until the connection ends."""
        self.check()
        self._futures[future] = None
        self.flush_soon()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await future
        except TimeoutError:
            raise Unanswered(f"no answer to {what} for {ANSWER_TIMEOUT_S} s") from None
        finally:
            self._futures.pop(future, None)

    def check(self) -> None:
        """Raises if the connection has ended."""
        if self._failure is not None:
            raise self._failure

    def flush_soon(self) -> None:
        """Flush once for everything that is done in this pass of the event loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close the socket without a close frame."""
        if self._failure is None:
            self._fail(PeerFailed("the connection was closed here"))
        self._engine.free()

    # ---- bytes and events ---------------------------------------------------------------------

    def _flush(self) -> None:
        self._is_flushing = False
        if self._failure is not None:
            return
        self._engine.flush()
        if self._engine.has_unsent:
            self._loop.add_writer(self._engine, self._flush)
        else:
            self._loop.remove_writer(self._engine)
        if self._engine.is_closed:
            self._fail(PeerFailed("the connection ended"))

    def _read(self) -> None:
        self._engine.receive()
        try:
            self._handle_events()
        except PeerFailed as failure:
            self._fail(failure)
            return
        self._flush()

    def _handle_events(self) -> None:
        collector = self._engine.collector
        while event := lib.pn_collector_peek(collector):
            kind = lib.pn_event_type(event)
            if kind == lib.PN_DELIVERY:
                self._on_delivery(lib.pn_event_delivery(event))
            elif kind in FAILURES:
                self._engine.check(event)
            elif link := self._links.get(lib.pn_event_link(event)):
                link.on_event(kind)
            lib.pn_collector_pop(collector)

    def _on_delivery(self, delivery: Any) -> None:
        if lib.pn_delivery_readable(delivery):
            if not lib.pn_delivery_partial(delivery):
                handle = lib.pn_delivery_link(delivery)
                message = self._engine.take(handle, delivery)
                receiver = self._links[handle]
                assert isinstance(receiver, Receiver)
                receiver.on_message(Arrival(delivery, message))
        elif (state := lib.pn_delivery_remote_state(delivery)) and delivery in self._awaited:
            then = self._awaited.pop(delivery)
            remote = lib.pn_delivery_remote(delivery)
            condition = text(lib.pn_condition_get_name(lib.pn_disposition_condition(remote)))
            fields = data_bytes(lib.pn_disposition_data(remote))
            decoded = decode(fields)[0] if fields else []
            assert isinstance(decoded, list)
            lib.pn_delivery_settle(delivery)
            then(Outcome(state, decoded, condition))

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._loop.remove_reader(self._engine)
        self._loop.remove_writer(self._engine)
        self._awaited.clear()
        for future in self._futures:
            if not future.done():
                future.set_exception(failure)
        for link in self._links.values():
            link.fail(failure)


def _set_state(delivery: Any, state: int, fields: list[object]) -> None:
    set_data(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), encode(fields))
    lib.pn_delivery_update(delivery, state)
