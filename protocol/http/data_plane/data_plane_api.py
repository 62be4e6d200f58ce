"""The REST data plane: sends, receives and settles messages by HTTP requests.

Each request attaches to its entity as a link does, does one operation and detaches, so the same rules apply as to an
AMQP client. The API has no sessions.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from aiohttp import web

from broker.core.contract import commands
from broker.core.contract.effects import (
    AttachRefused,
    Deliver,
    Detached,
    Drained,
    ReceiverAttached,
    SendAccepted,
    SenderAttached,
    SendRefused,
    messages_as_delivered,
)
from broker.core.contract.errors import (
    ArgumentOutOfRange,
    BrokerError,
    EntityNotFound,
    MessageLockLost,
    MessageSizeExceeded,
    ServerBusy,
)
from broker.core.contract.settlement_values import ABANDON, COMPLETE, ReceiveMode
from protocol.http import request_bodies, request_paths
from protocol.http.data_plane import rest_messages
from protocol.http.data_plane.rest_messages import ReceivedMessage
from protocol.http.error_responses import BodyTooLarge, EntityGone, LockNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.core.contract.effects import Effect
    from broker.core.contract.message import Message
    from protocol.http.broker_services import BrokerServices

DEFAULT_TIMEOUT_S = 60
MAX_TIMEOUT_S = 300
READING_S = 0.002
"""How long a batch is read before others are served, and for how long they are."""

MODES = {"POST": ReceiveMode.PEEK_LOCK, "DELETE": ReceiveMode.RECEIVE_AND_DELETE}
"""The meaning of the method on `messages/head`."""
SETTLEMENTS = {"DELETE": COMPLETE, "PUT": ABANDON}
"""The meaning of the method on a locked message; POST renews its lock."""

Event = SenderAttached | ReceiverAttached | SendAccepted | Drained | ReceivedMessage | BrokerError
Expected = TypeVar("Expected", SenderAttached, ReceiverAttached, SendAccepted)


class DataPlane:
    """Serves the messages of entities."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._request_peers: set[RequestPeer] = set()

    async def handle(
        self, request: web.Request, resource: request_paths.MessageResource
    ) -> web.Response:
        """Answers a request about messages."""
        try:
            match resource:
                case request_paths.MessagesResource():
                    return await self._send(request, resource.path)
                case request_paths.NextMessage():
                    return await self._receive(request, resource.path)
                case request_paths.LockedMessageResource():
                    return await self._settle(request, resource)
        except EntityNotFound as error:
            missing = EntityNotFound(f"sb://{request.host}/{error.path}")
            raise EntityGone(str(missing)) from None
        except MessageLockLost as error:
            raise LockNotFound(str(error)) from None

    async def stop(self, _application: web.Application) -> None:
        """Refuses requests that wait for a message, because the broker stops."""
        for request_peer in tuple(self._request_peers):
            request_peer.events.put_nowait(ServerBusy("The broker is stopping; try again."))

    # --- the three operations ------------------------------------------------------------------

    async def _send(self, request: web.Request, path: str) -> web.Response:
        with self._request_peer() as request_peer:
            self._services.submit(commands.AttachSender(request_peer, path))
            attached = await request_peer.expect(SenderAttached)
            if request.content_type == rest_messages.BATCH_CONTENT_TYPE:
                body = await _read(request, self._services.limits.http_body_max_bytes)
                messages = await self._read_batch(body)
                self._services.submit(commands.SendBatch(request_peer, messages, request_peer))
            else:
                body = await _read(request, attached.max_message_size_bytes)
                message = rest_messages.read_single(
                    body,
                    request.headers.get("Content-Type"),
                    request.headers.items(),
                    self._services.sources,
                )
                self._services.submit(commands.Send(request_peer, [message], [request_peer]))
            await request_peer.expect(SendAccepted)
        return web.Response(status=201)

    async def _read_batch(self, body: bytes) -> list[Message]:
        """Returns the messages of a batch. The event loop serves others meanwhile."""
        messages = []
        sources = self._services.sources
        began_s = sources.stopwatch_s()
        max_messages = self._services.limits.batch_max_messages
        for message in rest_messages.read_batch(body, max_messages, sources):
            messages.append(message)
            if sources.stopwatch_s() - began_s > READING_S:
                await asyncio.sleep(READING_S)
                began_s = sources.stopwatch_s()
        return messages

    async def _receive(self, request: web.Request, path: str) -> web.Response:
        mode = MODES[request.method]
        timeout_s = _timeout_s(request)
        with self._request_peer() as request_peer:
            self._services.submit(commands.AttachReceiver(request_peer, path, mode))
            await request_peer.expect(ReceiverAttached)
            self._services.submit(commands.Credit(request_peer, 1, drain=timeout_s == 0))
            received = await self._first_message(request_peer, timeout_s)
        if received is None:
            return web.Response(status=204)
        headers = dict(received.headers)
        if mode is ReceiveMode.RECEIVE_AND_DELETE:
            return web.Response(status=200, body=received.body, headers=headers)
        base = f"{request.scheme}://{request.host}/{quote(path, safe='/$~')}"
        headers["Location"] = f"{base}/messages/{received.name}/{received.token}"
        return web.Response(status=201, body=received.body, headers=headers)

    async def _first_message(
        self, request_peer: RequestPeer, timeout_s: int
    ) -> ReceivedMessage | None:
        try:
            # The core answers a drain at once, so the timeout applies to waiting only.
            async with asyncio.timeout(timeout_s or None):
                event = await request_peer.next()
        except TimeoutError:
            self._services.submit(commands.Credit(request_peer, 1, drain=True))
            event = await request_peer.next()
        return event if isinstance(event, ReceivedMessage) else None

    async def _settle(
        self, request: web.Request, locked: request_paths.LockedMessageResource
    ) -> web.Response:
        settlement = SETTLEMENTS.get(request.method)
        if settlement is None:
            renewed = await self._services.ask(
                lambda peer, mark: commands.RenewLocks(peer, mark, locked.path, [locked.lock_token])
            )
            assert isinstance(renewed, list)
            return web.Response(status=200)
        await self._services.ask(
            lambda peer, mark: commands.SettleByToken(
                peer, mark, locked.path, [locked.lock_token], settlement
            )
        )
        return web.Response(status=200)

    @contextmanager
    def _request_peer(self) -> Iterator[RequestPeer]:
        """Yields a peer for one request, and detaches it afterwards.

        If the request is cancelled, its lock is released: the client does not know the lock.
        """
        request_peer = RequestPeer()
        self._request_peers.add(request_peer)
        self._services.request_peers.add(request_peer)
        cut_off = True
        try:
            yield request_peer
            cut_off = False
        finally:
            self._request_peers.discard(request_peer)
            self._services.request_peers.discard(request_peer)
            self._services.submit(commands.Detach([request_peer], connection_lost=cut_off))


class RequestPeer:
    """The peer of one request. It keeps effects until the request reads them."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()

    def receive(self, effect: Effect) -> None:
        """Keeps an effect. A message is read at once, because it may change or leave memory later."""
        match effect:
            case Deliver():
                (message,) = messages_as_delivered(effect)
                (token,) = effect.tokens
                self.events.put_nowait(rest_messages.write(message, token, effect.locked_until_ms))
            case AttachRefused() | Detached() | SendRefused():
                self.events.put_nowait(effect.error)
            case SenderAttached() | ReceiverAttached() | SendAccepted() | Drained():
                self.events.put_nowait(effect)

    def refuse(self, error: BrokerError) -> None:
        """Raises the error where the next event is awaited."""
        self.events.put_nowait(error)

    async def next(self) -> Event:
        """Returns the next event. Raises it if it is an error."""
        event = await self.events.get()
        if isinstance(event, BrokerError):
            raise event
        return event

    async def expect(self, kind: type[Expected]) -> Expected:
        """Returns the next event, which must be of this kind."""
        event = await self.next()
        assert isinstance(event, kind), f"expected {kind.__name__}, got {event!r}"
        return event


async def _read(request: web.Request, max_bytes: int) -> bytes:
    """Returns the body. Raises `MessageSizeExceeded`, as for AMQP, if it is too large."""
    try:
        return await request_bodies.read(request, max_bytes)
    except BodyTooLarge as error:
        raise MessageSizeExceeded(str(error)) from None


def _timeout_s(request: web.Request) -> int:
    text = request.query.get("timeout")
    if text is None:
        return DEFAULT_TIMEOUT_S
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise ArgumentOutOfRange(f"timeout must be whole seconds, not '{text[:50]}'.")
    return min(int(text), MAX_TIMEOUT_S)
