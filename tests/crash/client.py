"""A client that waits for its answers: one connection on the bare AMQP engine, under asyncio.

It knows links, outcomes, requests and transactions, not what they are for. When the connection ends
everything that waits fails, and what was on its way stays in doubt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cproton_ffi import lib

from protocol.amqp.outcomes import data_bytes, set_data, text
from protocol.amqp.values import Described, Symbol, UInt, ULong, decode, encode
from tests.crash.messages import APPLICATION_PROPERTIES, PROPERTIES, VALUE, section, sections_of
from tests.support.proton_client import PeerFailed, ProtonClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ANSWER_TIMEOUT_S = 30.0
"""A broker that lives answers everything long before."""
SESSION_FILTER = Symbol("com.microsoft:session-filter")
TIMEOUT = Symbol("com.microsoft:timeout")

ACCEPTED, REJECTED, MODIFIED, DECLARED, TRANSACTIONAL = 0x24, 0x25, 0x27, 0x33, 0x34
DECLARE, DISCHARGE = 0x31, 0x32
FAILURES = frozenset(
    (lib.PN_TRANSPORT_ERROR, lib.PN_SESSION_REMOTE_CLOSE, lib.PN_CONNECTION_REMOTE_CLOSE)
)

Answer = TypeVar("Answer")


class Refused(Exception):
    """The broker ended a link, or would not have it; the text begins with the condition."""


class Unanswered(Exception):
    """The broker lives and says nothing."""


class Outcome(NamedTuple):
    """What the broker says about a delivery."""

    state: int
    fields: list[Any]

    @property
    def is_accepted(self) -> bool:
        if self.state == TRANSACTIONAL:
            return len(self.fields) > 1 and self.fields[1].descriptor == ACCEPTED
        return self.state == ACCEPTED

    @property
    def is_refused(self) -> bool:
        return self.state == REJECTED


class Arrival(NamedTuple):
    """A message that was received, and the delivery to settle it by."""

    delivery: Any
    message: bytes


class Client:
    """A connection. `close` it, whatever happened; its links end with it."""

    def __init__(self, host: str, port: int, container_id: str) -> None:
        self._engine = ProtonClient(host, port, container_id)
        self._loop = asyncio.get_running_loop()
        self._links: dict[Any, Link] = {}
        self._awaited: dict[Any, Callable[[Outcome], None]] = {}
        self._futures: set[asyncio.Future[Any]] = set()
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
        """Hold a session, or with None the next that is available; gives its id too."""
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
        """Send; `then` is called with the outcome."""
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
        defer: bool = False,
        transaction_id: bytes | None = None,
    ) -> None:
        """Complete a message, or defer it; `then` is called with the broker's answer."""
        self.check()
        if transaction_id is not None:
            outcome = Described(ULong(ACCEPTED), [])
            _set_state(delivery, TRANSACTIONAL, [transaction_id, outcome])
        elif defer:
            lib.pn_disposition_set_undeliverable(lib.pn_delivery_local(delivery), True)
            lib.pn_delivery_update(delivery, MODIFIED)
        else:
            lib.pn_delivery_update(delivery, ACCEPTED)
        self._awaited[delivery] = then
        self.flush_soon()

    def settle_silently(self, delivery: Any, transaction_id: bytes) -> None:
        """Complete a message under a transaction, wanting no answer to it."""
        self.check()
        outcome = Described(ULong(ACCEPTED), [])
        _set_state(delivery, TRANSACTIONAL, [transaction_id, outcome])
        lib.pn_delivery_settle(delivery)
        self.flush_soon()

    async def answer(self, future: asyncio.Future[Answer], what: str) -> Answer:
        """Wait for it, no longer than until the connection ends."""
        self.check()
        self._futures.add(future)
        self.flush_soon()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await future
        except TimeoutError:
            raise Unanswered(f"no answer to {what} for {ANSWER_TIMEOUT_S} s") from None
        finally:
            self._futures.discard(future)

    def check(self) -> None:
        """Raises if the connection has ended."""
        if self._failure is not None:
            raise self._failure

    def flush_soon(self) -> None:
        """Write once for all that is done in this pass of the event loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Drop the connection."""
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
            fields = data_bytes(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))
            decoded = decode(fields)[0] if fields else []
            assert isinstance(decoded, list)
            lib.pn_delivery_settle(delivery)
            then(Outcome(state, decoded))

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


class Link:
    """What all links do: attach, detach."""

    def __init__(self, client: Client, handle: Any) -> None:
        self.client = client
        self.handle = handle
        loop = asyncio.get_running_loop()
        self.attached: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()

    def on_event(self, kind: int) -> None:
        if kind == lib.PN_LINK_REMOTE_OPEN:
            # A refusal is an attach without an end, followed by a detach that says why.
            ends = lib.pn_link_remote_source(self.handle), lib.pn_link_remote_target(self.handle)
            if any(lib.pn_terminus_get_type(end) != lib.PN_UNSPECIFIED for end in ends):
                _resolve(self.attached, None)
        elif kind in (lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH):
            condition = lib.pn_link_remote_condition(self.handle)
            name = text(lib.pn_condition_get_name(condition))
            _resolve(self._ended, None)
            lib.pn_link_close(self.handle)
            if name is not None:
                description = text(lib.pn_condition_get_description(condition))
                self.fail(Refused(f"{name}: {description}"))

    def fail(self, failure: Exception) -> None:
        """Nothing more will come of it."""
        if not self.attached.done():
            self.attached.set_exception(failure)

    async def detach(self) -> None:
        """End the link and wait until the broker knows."""
        lib.pn_link_close(self.handle)
        await self.client.answer(self._ended, "a detach")


class Sender(Link):
    """Sends, as far as there is credit."""

    def __init__(self, client: Client, handle: Any) -> None:
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
        """Send without waiting. There must be credit."""
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
    """Receives in peek-lock and keeps the credit topped up."""

    def __init__(self, client: Client, handle: Any, credit: int) -> None:
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
        """The next message, or None if there is none for so long. Raises when the link ends."""
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

    async def settle(
        self, arrival: Arrival, *, defer: bool = False, transaction_id: bytes | None = None
    ) -> Outcome:
        """Complete a message, or defer it, and wait for the broker's answer."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        then = partial(_resolve, outcome)
        self.client.settle(arrival.delivery, then, defer=defer, transaction_id=transaction_id)
        return await self.client.answer(outcome, "a settlement")


class Coordinator(Sender):
    """Declares and discharges transactions."""

    async def declare(self) -> bytes:
        """A new transaction's id."""
        outcome = await self.send(section(VALUE, Described(ULong(DECLARE), [])))
        if outcome.state != DECLARED:
            raise Refused(f"a declare was answered with {outcome}")
        transaction_id = outcome.fields[0]
        assert isinstance(transaction_id, bytes)
        return transaction_id

    async def discharge(self, transaction_id: bytes, *, fail: bool) -> Outcome:
        """Commit, or roll back."""
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
        """Ask and wait; gives the status and the body of the answer."""
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


def _set_state(delivery: Any, state: int, fields: list[object]) -> None:
    set_data(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), encode(fields))
    lib.pn_delivery_update(delivery, state)


def _resolve(future: asyncio.Future[Answer], value: Answer) -> None:
    if not future.done():
        future.set_result(value)
