"""Message locks after the end of a connection: they stay after a close, and end when the connection
is lost."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from protocol.codec import Array, ArrayCode, Long, UInt
from tests.support.amqp_frames import frame
from tests.support.dotnet_links import DEFERRED, Refused
from tests.support.dotnet_setup import bodies, left_in, send
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.dotnet_client import DotNetClient
    from tests.support.dotnet_links import Received, Receiver
    from tests.support.dotnet_setup import DotNetSetup


def close_in_order(client: DotNetClient, _: Receiver) -> None:
    client.write(frame("close"))
    client.expect("close")
    client.stream.close()


def close_and_leave(client: DotNetClient, _: Receiver) -> None:
    """The close frame and the end of the socket arrive together."""
    client.write(frame("close"))
    client.stream.close()


def end_session_then_close(client: DotNetClient, receiver: Receiver) -> None:
    client.write(frame("end", channel=receiver.link.channel))
    client.expect("end", receiver.link.channel)
    close_in_order(client, receiver)


def detach_then_close(client: DotNetClient, receiver: Receiver) -> None:
    receiver.close()
    close_in_order(client, receiver)


def cut(client: DotNetClient, _: Receiver) -> None:
    client.stream.close()


def shut_down_without_close(client: DotNetClient, _: Receiver) -> None:
    """The socket ends politely, AMQP does not."""
    assert isinstance(client.stream, socket.socket)
    client.stream.shutdown(socket.SHUT_WR)
    while client.stream.recv(1 << 16):
        pass


def detach_then_cut(client: DotNetClient, receiver: Receiver) -> None:
    receiver.close()
    client.stream.close()


def break_the_protocol(client: DotNetClient, _: Receiver) -> None:
    client.write(b"\x00\x00\x00\x08\x01\x00\x00\x00\x00")
    while client.stream.recv(1 << 16):
        pass


def locked_by_another_connection(
    setup: DotNetSetup, client: DotNetClient, *bodies: bytes
) -> tuple[str, DotNetClient, Receiver, Received]:
    """Creates a queue whose first message is locked through another connection."""
    queue = setup.queue()
    send(client, queue, *bodies)
    leaving = setup.client()
    receiver = leaving.receiver(queue)
    (held,) = receiver.receive()
    return queue, leaving, receiver, held


IN_ORDER = [close_in_order, close_and_leave, end_session_then_close, detach_then_close]
BROKEN = [cut, shut_down_without_close, detach_then_cut, break_the_protocol]


def complete(client: DotNetClient, queue: str, message: Received) -> None:
    """Settle by token, as SDKs do with what another connection received."""
    tokens = Array(ArrayCode.UUID, [message.lock_token])
    request = {"disposition-status": "completed", "lock-tokens": tokens}
    client.requests(queue).manage("update-disposition", request)


@pytest.mark.parametrize("end", IN_ORDER)
def test_locks_of_a_closed_connection_stay(
    setup: DotNetSetup, client: DotNetClient, end: Callable[[DotNetClient, Receiver], None]
) -> None:
    """No other receiver gets the message, and another connection can settle it by its token."""
    queue, leaving, receiver, held = locked_by_another_connection(setup, client, b"held", b"free")
    end(leaving, receiver)
    assert [b"free"] == bodies(client.receiver(queue).receive())
    complete(client, queue, held)
    assert [b"free"] == left_in(client, queue)


def test_locks_of_a_closed_connection_expire_in_their_time(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """And then the delivery counts as failed."""
    queue, leaving, receiver, held = locked_by_another_connection(setup, client, b"held")
    close_in_order(leaving, receiver)
    setup.lock_expires()
    (again,) = client.receiver(queue).receive()
    assert 1 == again.delivery_count
    with pytest.raises(Refused) as refused:
        complete(client, queue, held)
    assert "com.microsoft:message-lock-lost" == refused.value.condition


@pytest.mark.parametrize("end", BROKEN)
def test_locks_of_a_broken_connection_are_dropped_at_once(
    setup: DotNetSetup, client: DotNetClient, end: Callable[[DotNetClient, Receiver], None]
) -> None:
    """Each a failed delivery; the token is worth nothing any more."""
    queue, leaving, receiver, held = locked_by_another_connection(setup, client, b"held")
    end(leaving, receiver)
    (again,) = client.receiver(queue).receive()
    assert (b"held", 1) == (again.body, again.delivery_count)
    with pytest.raises(Refused) as refused:
        complete(client, queue, held)
    assert "com.microsoft:message-lock-lost" == refused.value.condition


@pytest.mark.parametrize(("end", "stands"), [(close_in_order, True), (cut, False)])
def test_locks_of_deferred_messages_end_alike(
    setup: DotNetSetup,
    client: DotNetClient,
    end: Callable[[DotNetClient, Receiver], None],
    stands: bool,
) -> None:
    """What was fetched by number was locked through the connection too."""
    queue, leaving, receiver, held = locked_by_another_connection(setup, client, b"held")
    receiver.settle(held, DEFERRED)
    number = Long(held.annotations["x-opt-sequence-number"])
    fetch = {"sequence-numbers": Array(ArrayCode.LONG, [number]), "receiver-settle-mode": UInt(1)}
    leaving.requests(queue).manage("receive-by-sequence-number", fetch)
    end(leaving, receiver)
    requests = client.requests(queue)
    if stands:
        with pytest.raises(Refused):
            requests.manage("receive-by-sequence-number", fetch)
    else:
        assert requests.manage("receive-by-sequence-number", fetch)["messages"]


def test_a_setting_holds_the_locks_of_broken_connections_too(setup: DotNetSetup) -> None:
    """With this setting, locks stay until they expire, as in the cloud."""
    environment = {"PEEKLOCK_HOLD_LOCKS_AFTER_CONNECTION_LOSS": "on"}
    with BrokerProcess(environment=environment) as broker:
        patient = type(setup)(broker)
        queue = patient.queue()
        with patient.client() as client:
            send(client, queue, b"held", b"free")
            leaving = patient.client()
            receiver = leaving.receiver(queue)
            (held,) = receiver.receive()
            cut(leaving, receiver)
            assert [b"free"] == bodies(client.receiver(queue).receive())
            complete(client, queue, held)
