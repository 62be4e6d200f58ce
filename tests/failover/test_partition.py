"""The network between a broker and its database fails: connections are reset, carry nothing, or are slow.

The owner stops in time, another process takes over, and nothing that was accepted is lost. Only the network of the first
broker fails: it reaches its database through a proxy.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.failover.conftest import LEASE_S, Broker, wait_until
from tests.sdk.support import bodies
from tests.support.amqp_messages import sdk_encoded
from tests.support.proton.client import ProtonClient
from tests.support.proton.connection import PeerFailed
from tests.support.server import HOST
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.postgres_server import PostgresServer
    from tests.support.proton.answers import Outcome
    from tests.support.proton.links import Sender

WINDOW = 8
"""So many sends are without an answer at a time."""
ENOUGH = 50
SLACK_S = 0.5
"""For the machine that runs the tests."""
TOO_SLOW_S = 1.5 * LEASE_S
SLOW_S = 0.1

PARTITIONS: dict[str, Callable[[TcpProxy], None]] = {
    "connections are reset": TcpProxy.cut,
    "nothing arrives": TcpProxy.hang,
    "everything is too late": lambda proxy: proxy.delay(TOO_SLOW_S),
}


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[TcpProxy]:
    """The network of the first broker."""
    with TcpProxy(HOST, postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def owner(storage: str, proxy: TcpProxy, postgres_server: PostgresServer) -> Iterator[Broker]:
    """A broker that serves, behind the proxy."""
    broker = Broker(storage.replace(f":{postgres_server.port}/", f":{proxy.port}/"))
    with broker.launched():
        broker.wait_until_healthy()
        yield broker


@pytest.fixture
def standby(owner: Broker, storage: str) -> Iterator[Broker]:
    """Another one, which reaches the database."""
    with (broker := Broker(storage)).launched():
        broker.wait_until_standby()
        yield broker


class Sending:
    """A client that sends all the time, and knows when it was told what."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._unanswered = 0
        self._enough = False
        self.sent = 0
        self.accepted: list[str] = []
        self.answered_s = 0.0
        """When the last answer came."""
        self.ended_s = 0.0
        """When the broker closed the connection."""
        self.end = ""

    @contextmanager
    def running(self) -> Iterator[Sending]:
        self._thread.start()
        try:
            self.wait_for_more()
            yield self
        finally:
            self._enough = True
            self._thread.join()

    def wait_for_more(self) -> None:
        before = len(self.accepted)
        wait_until(lambda: len(self.accepted) > before + ENOUGH)

    def wait_for_end(self) -> None:
        wait_until(lambda: bool(self.end))

    def check(self, found: list[str]) -> None:
        """Everything that was accepted is there once, in order, and nothing else but sends without an answer."""
        numbers = [int(text) for text in found]
        assert sorted(set(numbers)) == numbers
        assert set() == set(self.accepted) - set(found)
        assert len(found) <= len(self.accepted) + WINDOW

    async def _run(self) -> None:
        client = ProtonClient(self._broker.host, self._broker.amqp_port, "sending")
        sender = await client.sender("orders")
        await sender.wait_for_credit()
        try:
            while not self._enough:
                client.check()
                while self._unanswered < WINDOW:
                    self._put(client, sender)
                await asyncio.sleep(0.001)
        except PeerFailed as failure:
            self.end, self.ended_s = str(failure), time.monotonic()
        client.close()

    def _put(self, client: ProtonClient, sender: Sender) -> None:
        self.sent += 1
        self._unanswered += 1
        text = str(self.sent)

        def answered(outcome: Outcome) -> None:
            self._unanswered -= 1
            self.answered_s = time.monotonic()
            if outcome.is_accepted:
                self.accepted.append(text)

        client.put(sender, sdk_encoded(ServiceBusMessage(text)), answered)


def stored(broker: Broker) -> list[str]:
    """Everything in the queue, in order."""
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        number = 1
        while page := receiver.peek_messages(250, sequence_number=number):
            found += bodies(page)
            number = (page[-1].sequence_number or 0) + 1
    return found


def why_not_serving(broker: Broker) -> tuple[str, str]:
    status, body = broker.request("GET", "/health")
    answer = json.loads(body)
    return (answer["reason"], answer["detail"]) if status == 503 else ("", "")


@pytest.mark.parametrize("partition", PARTITIONS)
def test_an_owner_without_its_database_stops_within_the_lease_time(
    owner: Broker, standby: Broker, proxy: TcpProxy, partition: str
) -> None:
    """It ends its connections, answers nothing more, and is a standby. What arrives at the database later takes no
    effect."""
    with (sending := Sending(owner)).running():
        begin_s = time.monotonic()
        PARTITIONS[partition](proxy)
        sending.wait_for_end()
        assert sending.ended_s - begin_s < LEASE_S + SLACK_S
        assert "amqp:connection:forced" in sending.end
    assert why_not_serving(owner)[0] in {"standby", "storage_unavailable"}
    wait_until(standby.is_healthy)
    assert time.monotonic() - begin_s < 2 * LEASE_S + SLACK_S
    found = stored(standby)
    sending.check(found)

    proxy.heal()
    wait_until(lambda: f"process {standby.process_id} " in why_not_serving(owner)[1])
    assert found == stored(standby)
    assert standby.is_healthy()


@pytest.mark.parametrize("partition", PARTITIONS)
def test_an_owner_serves_again_when_its_network_is_back(
    owner: Broker, proxy: TcpProxy, partition: str
) -> None:
    """Nobody has taken over. It does not wait for the end of its old sessions, and has everything that it accepted."""
    with (sending := Sending(owner)).running():
        PARTITIONS[partition](proxy)
        sending.wait_for_end()
    proxy.heal()
    wait_until(owner.is_healthy)
    sending.check(stored(owner))
    with (again := Sending(owner)).running():
        again.wait_for_more()
    assert "" == again.end


def test_a_short_partition_is_waited_for(owner: Broker, standby: Broker, proxy: TcpProxy) -> None:
    """Clients stay connected, and get their answers late."""
    with (sending := Sending(owner)).running():
        proxy.hang()
        time.sleep(LEASE_S / 4)  # the network is away for so long
        proxy.heal()
        sending.wait_for_more()
        proxy.delay(SLOW_S)
        sending.wait_for_more()
        proxy.heal()
    assert "" == sending.end
    sending.check(stored(owner))
    assert not standby.is_healthy()


def test_an_owner_that_cannot_hand_over_says_so_and_stops(
    owner: Broker, standby: Broker, proxy: TcpProxy
) -> None:
    """The standby has to wait for the lease time."""
    proxy.hang()
    owner.send_signal(signal.SIGTERM)
    assert 0 == owner.wait()
    assert "ownership.not_released" in owner.log_text()
    wait_until(standby.is_healthy)
