"""A client that sends the frames of the .NET SDK over a socket, because .NET itself may not be installed.

It authenticates with MSSBCBS, waits for every answer, begins one AMQP session for each link and
puts tokens for the whole namespace, as Azure.Messaging.ServiceBus and Microsoft.Azure.Amqp do.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from protocol.codec import Described, Symbol, Timestamp, UByte, UInt, ULong, UShort, encode
from tests.support.amqp_frames import HEADER, SASL_HEADER, frame, raw_frame
from tests.support.dotnet_links import (
    ATTACH_INITIAL_COUNT,
    ATTACH_SOURCE,
    ATTACH_TARGET,
    OPERATION_TIMEOUT,
    UNLIMITED,
    WINDOW,
    Link,
    Receiver,
    Requests,
    Sender,
)
from tests.support.frame_client import FrameClient, channel_of, connect, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

PRODUCT = "azsdk-net-Azure.Messaging.ServiceBus"
KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"


class DotNetClient(FrameClient):
    """A connection, as `ServiceBusClient` opens it for its first operation."""

    def __init__(self, port: int, host: str = "localhost", product: str = PRODUCT) -> None:
        self._host = host
        self._product = product
        super().__init__(connect(port))
        self._numbers = 0
        self._next_delivery_ids: list[int] = []
        self._next_incoming_ids: list[int] = []
        self.container_id = f"amqp://{host}/-{uuid.uuid4().hex[:8]}"
        self._cbs: Requests | None = None
        try:
            self._sign_on()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.write(frame("close"))
                self.expect("close")
        finally:
            self.close()

    def _sign_on(self) -> None:
        """Opens the connection. The SDK waits for every answer before it sends the next frame."""
        self.write(SASL_HEADER)
        self.expect_header(SASL_HEADER)
        mechanisms = self.expect("sasl-mechanisms")[0]
        assert "MSSBCBS" in mechanisms.items
        sasl_init = Described(ULong(0x41), [Symbol("MSSBCBS"), None, self._host])
        self.write(raw_frame(encode(sasl_init), kind=1))
        assert 0 == self.expect("sasl-outcome")[0]
        self.write(HEADER)
        self.expect_header(HEADER)
        product = {
            Symbol("product"): self._product,
            Symbol("version"): "7.21.0",
            Symbol("framework"): ".NET 10.0.0",
            Symbol("platform"): "Linux",
            Symbol("user-agent"): f"{self._product}/7.21.0",
        }
        fields = [self.container_id, self._host, UInt(65_536), UShort(8191), UInt(60_000)]
        self.write(frame("open", *fields, None, None, None, None, product))
        assert self.expect("open")[0]

    def receive(self) -> list[bytes]:
        """Reads frames, and counts the transfers of each AMQP session: flows must contain their
        number."""
        arrived = super().receive()
        for data in arrived:
            if name_of(data) == "transfer":
                self._next_incoming_ids[channel_of(data)] += 1
        return arrived

    # ---- sessions, claims, links ------------------------------------------------------------------

    def begin(self, incoming_window: int = UNLIMITED) -> int:
        """Begins an AMQP session and returns its channel."""
        channel = len(self._next_delivery_ids)
        self._next_delivery_ids.append(0)
        self._next_incoming_ids.append(0)
        fields = [None, UInt(1), UInt(incoming_window), UInt(WINDOW), UInt(UNLIMITED)]
        self.write(frame("begin", *fields, None, None, {}, channel=channel))
        self._next_incoming_ids[channel] += self.expect("begin", channel)[1]
        return channel

    def next_delivery_id(self, channel: int) -> int:
        """Returns the next delivery id. The links of an AMQP session share one count."""
        delivery_id = self._next_delivery_ids[channel]
        self._next_delivery_ids[channel] += 1
        return delivery_id

    def next_incoming_id(self, channel: int) -> int:
        return self._next_incoming_ids[channel]

    def number(self) -> int:
        """Returns the next number for a name."""
        self._numbers += 1
        return self._numbers

    def claim(self, path: str, key: str = KEY) -> dict[str, Any]:
        """Puts a token for an entity. The token is signed for the whole namespace, as in the
        SDK."""
        if self._cbs is None:
            self._cbs = Requests(self, "$cbs", OPERATION_TIMEOUT)
        expiry_s = int(time.time()) + 1200
        resource = quote(f"amqps://{self._host}/", safe="").lower()
        digest = hmac.new(key.encode(), f"{resource}\n{expiry_s}".encode(), hashlib.sha256)
        signature = quote(base64.b64encode(digest.digest()).decode(), safe="")
        token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry_s}&skn={KEY_NAME}"
        properties = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": f"amqp://{self._host}/{quote(path, safe='/$')}",
            "expiration": Timestamp(expiry_s * 1000),
        }
        answer = self._cbs.ask(token, properties).properties
        # `(int)` and `(string)` casts: anything else, or nothing, is an exception there.
        assert "Int" == type(answer["status-code"]).__name__
        assert isinstance(answer["status-description"], str)
        return answer

    def sender(
        self, path: str, channel: int | None = None, *, transaction: bytes | None = None
    ) -> Sender:
        self.claim(path)
        return Sender(self, path, self.begin() if channel is None else channel, transaction)

    def receiver(
        self,
        path: str,
        channel: int | None = None,
        *,
        filters: dict[Any, object] | None = None,
        deletes: bool = False,
        wait_ms: int | None = None,
    ) -> Receiver:
        self.claim(path)
        channel = self.begin() if channel is None else channel
        return Receiver(self, path, channel, filters, wait_ms, deletes=deletes)

    def requests(self, path: str) -> Requests:
        """Returns a pair of links to the management node of an entity. Its address is not a URI, so
        nothing is escaped."""
        self.claim(f"{path}/$management")
        kind = {Symbol("com.microsoft:entity-type"): "entity-mgmt"}
        return Requests(self, f"{path}/$management", {**OPERATION_TIMEOUT, **kind})

    def attach(
        self,
        channel: int,
        name: str,
        *,
        receives: bool,
        source: Described,
        target: Described,
        settle_modes: tuple[UByte | None, UByte | None] = (None, None),
        properties: Mapping[Any, object] | None = None,
    ) -> Link:
        """Attaches a link and waits for the answer. A refusal is an attach with a null terminus,
        and a detach with the error follows."""
        handle = self.number()
        first = None if receives else UInt(0)
        fields = [name, UInt(handle), receives, *settle_modes, source, target]
        rest = [None, None, first, None, None, None, properties]
        self.write(frame("attach", *fields, *rest, channel=channel))
        answer = self.expect("attach", channel, lambda one: one[0] == name)
        link = Link(self, channel, handle, answer)
        if (answer[ATTACH_SOURCE] if receives else answer[ATTACH_TARGET]) is None:
            link.raise_detached()
        # The SDK takes over whatever the answer says, and cannot do without these.
        assert settle_modes == (
            answer[3] if settle_modes[0] is not None else None,
            answer[4] if settle_modes[1] is not None else None,
        )
        assert not receives or answer[ATTACH_INITIAL_COUNT] is not None
        return link
