"""Who serves when the owner is killed, stops, is stopped or is cut off: with real processes and stock clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from cproton_ffi import lib

from tests.failover.conftest import LEASE_S, Broker, wait_until
from tests.sdk.support import bodies, receive
from tests.support.amqp_messages import sdk_encoded
from tests.support.proton.client import ProtonClient
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def send(broker: Broker, *texts: str) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(text) for text in texts])


def take(broker: Broker, count: int) -> list[str]:
    """Receives and completes."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        messages = receive(receiver, count)
        for message in messages:
            receiver.complete_message(message)
        return bodies(messages)


def test_a_standby_says_so_and_serves_nothing_but_probes(pair: tuple[Broker, Broker]) -> None:
    """Clients of AMQP are refused at once, so that they try the next address."""
    owner, standby = pair
    status, body = standby.request("GET", "/health")
    answer = json.loads(body)
    assert (503, "standby") == (status, answer["reason"])
    assert f"process {owner.process_id} on " in answer["detail"]
    assert f"owner='process {owner.process_id} on " in standby.log_text()
    assert (1, 0) == (owner.metric("peeklock_owner"), standby.metric("peeklock_owner"))
    status, body = standby.request("GET", "/orders")
    assert 503 == status
    assert b"owns the store" in body
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((standby.host, standby.amqp_port), 5)
    with socket.create_connection((standby.host, standby.http_port), 5) as amqp:
        amqp.sendall(b"AMQP\x00\x01\x00\x00")
        with contextlib.suppress(ConnectionResetError):
            assert b"" == amqp.recv(100)


def seconds_to_take_over(
    owner: Broker, standby: Broker, bound_s: float, stop: Callable[[Broker], None] | None = None
) -> tuple[float, Broker, Broker]:
    """Stops or kills the owner, and starts it again as the standby. If it took longer than the bound, the other one is
    ended, and so on, three times at most: other programs can delay one of them. Returns the shortest time, the last
    owner and the last standby."""
    times: list[float] = []
    while not times or (min(times) >= bound_s and len(times) < 3):
        log_length = len(owner.log_text())
        (stop or Broker.kill)(owner)
        times.append(wait_until(standby.is_healthy))
        if stop is not None:
            assert 0 == owner.wait()
        owner.launch()
        wait_until(lambda: "] standby [" in owner.log_text()[log_length:])  # noqa: B023
        owner, standby = standby, owner
    return min(times), owner, standby


def test_when_the_owner_is_killed_the_standby_has_everything_within_two_seconds(
    pair: tuple[Broker, Broker],
) -> None:
    """Also what was locked. The killed one is the standby when it comes back."""
    send(pair[0], "first", "second")
    took_s, owner, standby = seconds_to_take_over(*pair, 2)
    assert took_s < 2
    assert 1 == owner.metric("peeklock_owner")
    assert ["first", "second"] == take(owner, 2)
    assert "standby" == standby.why_not_serving
    send(owner, "third")
    assert ["third"] == take(owner, 1)


def test_a_planned_stop_hands_over_within_a_second(pair: tuple[Broker, Broker]) -> None:
    """Although a client does not answer the close of its connection."""
    with contextlib.ExitStack() as silent_clients:

        def stop(owner: Broker) -> None:
            silent = silent_clients.enter_context(
                socket.create_connection((owner.host, owner.amqp_port))
            )
            silent.sendall(b"AMQP\x00\x01\x00\x00")
            assert silent.recv(8)
            owner.send_signal(signal.SIGTERM)

        send(pair[0], "kept")
        took_s, owner, _ = seconds_to_take_over(*pair, 1, stop)
        assert took_s < 1
        assert ["kept"] == take(owner, 1)


class StoppedOwner:
    """A client of an owner that is stopped, and continues after another process has taken over."""

    def __init__(self, owner: Broker, standby: Broker) -> None:
        self.owner = owner
        self.standby = standby
        self.answers: list[object] = []
        """Outcomes and deliveries."""
        self.end = ""

    async def sends(self) -> None:
        """A hundred messages are in the buffer of the stopped process when it continues."""
        client = self._connect()
        sender = await client.sender("orders")
        await sender.wait_for_credit()
        await asyncio.to_thread(self._stop)
        for number in range(100):
            message = sdk_encoded(ServiceBusMessage(f"late {number}"))
            client.put(sender, message, self.answers.append)
        await self._continue(client)

    async def receives(self) -> None:
        """Credit is in the buffer. A delivery would need no commit."""
        client = self._connect()
        receiver = await client.receiver("orders", credit=0)
        receiver.on_message = self.answers.append  # type: ignore[assignment,method-assign]
        await asyncio.to_thread(self._stop)
        lib.pn_link_flow(receiver.handle, 10)
        client.flush_soon()
        await self._continue(client)

    def _connect(self) -> ProtonClient:
        return ProtonClient(self.owner.host, self.owner.amqp_port, "a client")

    def _stop(self) -> None:
        self.owner.send_signal(signal.SIGSTOP)
        assert wait_until(self.standby.is_healthy) > LEASE_S / 2

    async def _continue(self, client: ProtonClient) -> None:
        await asyncio.sleep(0.1)  # until the kernel has what was written
        self.owner.send_signal(signal.SIGCONT)
        async with asyncio.timeout(20):
            while not self.end:
                try:
                    client.check()
                except PeerFailed as failure:
                    self.end = str(failure)
                await asyncio.sleep(0.01)
        client.close()


def test_an_owner_that_was_stopped_changes_nothing_and_answers_nothing(
    pair: tuple[Broker, Broker],
) -> None:
    """The owner is stopped past its lease. What it finds in its buffers afterwards takes no effect, nothing of it is
    answered, and nothing is delivered from its memory. Its clients are told to connect again."""
    first, second = pair
    send(first, "before")
    stopped = StoppedOwner(first, second)
    asyncio.run(stopped.receives())
    assert [] == stopped.answers
    assert "amqp:connection:forced" in stopped.end
    wait_until(lambda: not first.is_healthy())
    assert "standby" == first.why_not_serving

    # It is a standby now, and serves again when the other one is stopped.
    stopped = StoppedOwner(second, first)
    asyncio.run(stopped.sends())
    assert [] == stopped.answers
    assert "amqp:connection:forced" in stopped.end
    assert 1 == first.message_count("orders")
    assert ["before"] == take(first, 1)


@pytest.fixture
def one_name(storage: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers behind one name with two addresses, as a DNS name or a service of Compose is."""
    owner = Broker(storage, host="127.0.0.1")
    standby = Broker(storage, host="127.0.0.2", amqp_port=owner.amqp_port)
    resolve = socket.getaddrinfo

    def both(host: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
        if host != "brokers.test":
            return resolve(host, port, *arguments, **options)
        return [
            found
            for address in (standby.host, owner.host)
            for found in resolve(address, port, *arguments, **options)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with owner.launched():
        owner.wait_until_healthy()
        with standby.launched():
            standby.wait_until_standby()
            yield owner, standby


def test_a_stock_client_follows_one_name_to_the_new_owner(one_name: tuple[Broker, Broker]) -> None:
    """One client and one sender keep sending. The SDK's own retries are enough, nothing that was accepted is lost, and
    the order stays."""
    owner, standby = one_name
    text = owner.connection_string.replace(owner.host, "brokers.test")
    accepted: list[str] = []
    failures: list[Exception] = []
    enough = threading.Event()

    def keep_sending() -> None:
        with (
            ServiceBusClient.from_connection_string(text, retry_backoff_factor=0.1) as client,
            client.get_queue_sender("orders") as sender,
        ):
            number = 0
            while not enough.is_set():
                try:
                    sender.send_messages(ServiceBusMessage(str(number)))
                    accepted.append(str(number))
                except ServiceBusError as error:
                    failures.append(error)
                number += 1

    sending = threading.Thread(target=keep_sending)
    sending.start()
    try:
        wait_until(lambda: len(accepted) > 50)
        owner.kill()
        before = len(accepted)
        wait_until(lambda: len(accepted) > before + 50)
    finally:
        enough.set()
        sending.join()
    assert [] == failures
    held = standby.message_count("orders")
    seen = list(dict.fromkeys(take(standby, held)))  # a send whose answer was lost is sent again
    assert accepted == seen
    assert held <= len(accepted) + 1


def test_two_brokers_on_one_machine_can_have_one_amqp_port(storage: str) -> None:
    """The standby listens on it when it takes over: its clients need no other address."""
    owner = Broker(storage)
    with owner.launched():
        owner.wait_until_healthy()
        standby = Broker(storage, amqp_port=owner.amqp_port)
        with standby.launched():
            standby.wait_until_standby()
            send(owner, "one")
            owner.kill()
            wait_until(standby.is_healthy)
            assert owner.connection_string == standby.connection_string
            assert ["one"] == take(standby, 1)


def test_a_standby_stops_when_it_is_told_to(pair: tuple[Broker, Broker]) -> None:
    """The owner is not disturbed."""
    owner, standby = pair
    assert 0 == standby.terminate()
    assert owner.is_healthy()
    assert 1 == owner.log_text().count("] ready [")
