"""Each kind of fault on each operation that can have it, as a client sees it that adds nothing: Proton over a socket.

The stock SDKs try again, and turn conditions into exceptions of their own. This client does neither.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from cproton_ffi import ffi, lib

from protocol.amqp.engine.outcomes import text
from protocol.codec import Array, ArrayCode, Int, Long
from protocol.faults.fault_kinds import AFTER, KINDS, FaultKind, Operation
from protocol.identity import sas
from tests.support.message_sections import (
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    VALUE,
    section,
    sections_of,
)
from tests.support.proton.answers import Outcome, Refused
from tests.support.proton.client import ProtonClient
from tests.support.proton.connection import PeerFailed
from tests.support.proton.nodes import Management

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from tests.control.client import ControlClient
    from tests.support.proton.links import Link, Receiver, Sender
    from tests.support.server import BrokerProcess

DELAY_S = 0.2
NOTHING_S = 0.5
"""How long a client waits for an answer that does not come. Others come within milliseconds."""
ANSWER_S = 20.0
CONDITION, DETACHED = "amqp:resource-limit-exceeded", "amqp:link:detach-forced"
BUSY, UNAUTHORIZED = "com.microsoft:server-busy", "amqp:unauthorized-access"
ANSWERED, NOTHING, LOST = "answered", "nothing", "connection lost"
SESSION = "s1"
K = FaultKind

ACTIONS: dict[FaultKind, dict[str, object]] = {
    K.REFUSE: {"condition": CONDITION},
    K.DELAY: {"seconds": DELAY_S},
    K.DETACH: {"condition": DETACHED},
}
"""What rules of a kind have beside it."""

REQUEST = {
    K.REFUSE: "status 403",
    K.SERVER_BUSY: "status 503",
    K.DELAY: "status 200",
    K.NO_ANSWER: NOTHING,
    K.DROP_CONNECTION: LOST,
    K.EXPIRE_TOKEN: "status 401",
}
LOCK_REQUEST = {
    **REQUEST,
    K.DETACH: f"detached: {DETACHED}",
    K.LOSE_LOCK: "status 410",
    K.CLOSE_SESSION: "status 410",
}
LINK = {
    K.DELAY: ANSWERED,
    K.NO_ANSWER: NOTHING,
    K.DROP_CONNECTION: LOST,
    K.DETACH: f"detached: {DETACHED}",
    K.EXPIRE_TOKEN: f"detached: {UNAUTHORIZED}",
}
TRANSFER = {**LINK, K.REFUSE: f"refused: {CONDITION}", K.SERVER_BUSY: f"refused: {BUSY}"}

EXPECTED: dict[Operation, dict[FaultKind, str]] = {
    Operation.CONNECT: LINK,
    Operation.OPEN: {**LINK, K.REFUSE: f"closed: {CONDITION}", K.SERVER_BUSY: f"closed: {BUSY}"},
    Operation.ATTACH: {
        **LINK,
        K.REFUSE: f"detached: {CONDITION}",
        K.SERVER_BUSY: f"detached: {BUSY}",
    },
    Operation.SEND: TRANSFER,
    # What the client sees when it settles the message, after it got it.
    Operation.DELIVER: {
        **LINK,
        K.LOSE_LOCK: "refused: com.microsoft:message-lock-lost",
        K.DELIVER_TWICE: "delivered again",
        K.CLOSE_SESSION: "detached: com.microsoft:session-lock-lost",
    },
    Operation.SETTLE: {
        **TRANSFER,
        K.LOSE_LOCK: "refused: com.microsoft:message-lock-lost",
        K.CLOSE_SESSION: "refused: com.microsoft:session-lock-lost",
    },
    Operation.RENEW: LOCK_REQUEST,
    Operation.MANAGEMENT: LOCK_REQUEST,
    Operation.PUT_TOKEN: {**LOCK_REQUEST, K.DELAY: "status 202"},
    Operation.ADMINISTRATION: REQUEST,
}

CASES = [
    (operation, kind, when)
    for operation, kinds in KINDS.items()
    for kind in kinds
    for when in (("before", "after") if operation in AFTER.get(kind, ()) else (None,))
]


@pytest.mark.parametrize(("operation", "kind", "when"), CASES)
async def test_a_client_sees_the_fault_once(
    api: ControlClient,
    broker: BrokerProcess,
    operation: Operation,
    kind: FaultKind,
    when: str | None,
) -> None:
    """And a client that comes later sees nothing of it."""
    with_session = kind is K.CLOSE_SESSION
    client = RawClient(broker, kind, with_session=with_session)
    api.post("/reset")
    message = {"body": "one", "session_id": SESSION} if with_session else {"body": "one"}
    api.post("/messages", entity=client.entity, messages=[message])
    action: dict[str, object] = {"kind": kind, **ACTIONS.get(kind, {})}
    if when is not None:
        action["when"] = when
    if operation is not Operation.DELIVER:
        await client.prepare(operation)
    rule = api.post("/faults", operation=operation, action=action, occurrence={"first": 1})["name"]
    try:
        began_s = time.monotonic()  # a delivery may begin while it is prepared
        if operation is Operation.DELIVER:
            await client.prepare(operation)
        seen = await client.observe(operation)
        assert EXPECTED[operation][kind] == seen
        if kind is K.DELAY:
            assert time.monotonic() - began_s >= DELAY_S
        assert 1 == api.get(f"/faults/{rule}")["hits"]
    finally:
        client.close()
    if when is not None and operation in EFFECTS:
        counts = api.get("/entity", entity=client.entity)["counts"]
        assert EFFECTS[operation][when == "after"] == counts["active"] + counts["locked"]
    later = RawClient(broker, kind, with_session=False)
    try:
        assert ANSWERED == await later.observe(Operation.OPEN)
    finally:
        later.close()


EFFECTS = {Operation.SEND: (1, 2), Operation.SETTLE: (1, 0)}
"""How many messages there are if the fault comes before the effect, and after it."""


class RawClient:
    """Carries out one operation, and tells what it sees."""

    def __init__(self, broker: BrokerProcess, kind: FaultKind, *, with_session: bool) -> None:
        self.entity = "carts" if with_session else "orders"
        self._broker = broker
        self._kind = kind
        self._with_session = with_session
        self._connected: ProtonClient | None = None
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._arrival: Any = None
        self._http = http.client.HTTPConnection(broker.host, broker.http_port, timeout=ANSWER_S)

    @property
    def client(self) -> ProtonClient:
        assert self._connected is not None
        return self._connected

    @property
    def sender(self) -> Sender:
        assert self._sender is not None
        return self._sender

    @property
    def receiver(self) -> Receiver:
        assert self._receiver is not None
        return self._receiver

    def connect(self) -> None:
        self._connected = ProtonClient(self._broker.host, self._broker.amqp_port, "raw")

    def close(self) -> None:
        self._http.close()
        if self._connected is not None:
            self._connected.close()

    async def prepare(self, operation: Operation) -> None:
        """Does what comes before the operation."""
        if operation in (Operation.CONNECT, Operation.OPEN, Operation.ADMINISTRATION):
            return
        self.connect()
        node = {Operation.SEND: self.entity, Operation.PUT_TOKEN: "$cbs"}.get(operation)
        if operation in (Operation.RENEW, Operation.MANAGEMENT):
            node = f"{self.entity}/$management"
        if operation in (*LOCKED, Operation.DELIVER):
            if self._with_session:
                _, self._receiver = await self.client.accept_session(
                    self.entity, SESSION, credit=1, timeout_ms=5_000
                )
            else:
                self._receiver = await self.client.receiver(self.entity, credit=1)
        if operation in LOCKED:
            self._arrival = await self.receiver.next(ANSWER_S)
        if node is not None:
            self._sender = await self.client.sender(node)
            await self.sender.wait_for_credit()
            if node != self.entity:
                self._receiver = await self.client.receiver(node, credit=1)

    async def observe(self, operation: Operation) -> str:
        """Returns what the client sees of the operation."""
        try:
            async with asyncio.timeout(NOTHING_S if self._kind is K.NO_ANSWER else ANSWER_S):
                return await PERFORM[operation](self)
        except TimeoutError:
            return NOTHING
        except Refused as refusal:
            return f"detached: {str(refusal).split(': ')[0]}"
        except PeerFailed as failure:
            closed = f"connection closed: {(CONDITION, BUSY)[self._kind is K.SERVER_BUSY]}"
            return closed.removeprefix("connection ") if closed in str(failure) else LOST
        except (http.client.HTTPException, ConnectionError):
            return LOST

    # --- the operations ------------------------------------------------------------------------

    async def open(self) -> str:
        self.connect()
        await self.client.sender("orders")
        return ANSWERED

    async def attach(self) -> str:
        await self.client.sender(self.entity)
        while self._kind is K.DROP_CONNECTION:  # it is dropped soon after the answer
            await self.client.sender(self.entity)
        return ANSWERED

    async def send(self) -> str:
        return await _unless_ended(self._send(), self.sender)

    async def _send(self) -> str:
        return _seen(await self.sender.send(section(DATA, b"two")))

    async def deliver(self) -> str:
        self._arrival = await self.receiver.next(ANSWER_S)
        if self._kind is K.CLOSE_SESSION:
            await self.receiver.next(ANSWER_S)  # the link ends after the delivery
        seen = await self.settle()
        if self._kind is K.DELIVER_TWICE and await self.receiver.next(ANSWER_S) is not None:
            return "delivered again"
        return seen

    async def settle(self) -> str:
        return await _unless_ended(self._settle(), self.receiver)

    async def _settle(self) -> str:
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.client.settle(self._arrival.delivery, outcome.set_result)
        return _seen(await self.client.answer(outcome, "a settlement"))

    async def renew(self) -> str:
        if self._with_session:
            return await self._request("renew-session-lock", {"session-id": SESSION})
        tag = lib.pn_delivery_tag(self._arrival.delivery)
        token = UUID(bytes_le=bytes(ffi.buffer(tag.start, tag.size)))
        return await self._request("renew-lock", {"lock-tokens": Array(ArrayCode.UUID, [token])})

    async def manage(self) -> str:
        if self._kind in (K.LOSE_LOCK, K.CLOSE_SESSION):  # only requests about a lock can lose it
            return await self.renew()
        body = {"from-sequence-number": Long(1), "message-count": Int(1)}
        return await self._request("peek-message", body)

    async def _request(self, operation: str, body: Mapping[str, object]) -> str:
        node = Management(self.sender, self.receiver)

        async def ask() -> str:
            status, _ = await node.request(operation, body)
            return f"status {status}"

        return await _unless_ended(ask(), self.sender)

    async def put_token(self) -> str:
        return await _unless_ended(self._put_token(), self.sender)

    async def _put_token(self) -> str:
        audience = "sb://localhost/orders"
        expires_s = int(time.time()) + 3_600
        token = sas.make(audience, "RootManageSharedAccessKey", "SAS_KEY_VALUE", expires_s)
        properties = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
        }
        reply_to = text(lib.pn_link_name(self.receiver.handle))
        await self.sender.send(
            section(PROPERTIES, ["one", None, "$cbs", None, reply_to])
            + section(APPLICATION_PROPERTIES, properties)
            + section(VALUE, token)
        )
        arrival = await self.receiver.next(ANSWER_S)
        assert arrival is not None
        found = sections_of(arrival.message)[APPLICATION_PROPERTIES]
        return f"status {found['status-code']}"

    async def administrate(self) -> str:
        return await asyncio.to_thread(self._administrate)

    def _administrate(self) -> str:
        self._http.timeout = NOTHING_S if self._kind is K.NO_ANSWER else ANSWER_S
        self._http.request("GET", "/orders?api-version=2021-05")
        return f"status {self._http.getresponse().status}"


LOCKED = (Operation.SETTLE, Operation.RENEW, Operation.MANAGEMENT)
"""The operations that need a locked message."""

PERFORM: dict[Operation, Callable[[RawClient], Awaitable[str]]] = {
    Operation.CONNECT: RawClient.open,
    Operation.OPEN: RawClient.open,
    Operation.ATTACH: RawClient.attach,
    Operation.SEND: RawClient.send,
    Operation.DELIVER: RawClient.deliver,
    Operation.SETTLE: RawClient.settle,
    Operation.RENEW: RawClient.renew,
    Operation.MANAGEMENT: RawClient.manage,
    Operation.PUT_TOKEN: RawClient.put_token,
    Operation.ADMINISTRATION: RawClient.administrate,
}


def _seen(outcome: Outcome) -> str:
    return ANSWERED if outcome.is_accepted else f"refused: {outcome.condition}"


async def _unless_ended(answer: Coroutine[Any, Any, str], link: Link) -> str:
    """Waits for an answer, or for the end of the link on which the question was."""
    asked = asyncio.get_running_loop().create_task(answer)
    futures: set[asyncio.Future[Any]] = {asked, link.ended}
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return await asked
        condition = lib.pn_link_remote_condition(link.handle)
        raise Refused(f"{text(lib.pn_condition_get_name(condition))}: ")
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
