"""A full disk: sends are refused as busy, nothing that was accepted is lost, and the broker
recovers."""

from __future__ import annotations

from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.support.server import BrokerProcess, root_token
from tests.support.small_disks import small_disk

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = "queue.1"
DISK_BYTES = 12 << 20
BODY = b"x" * 100_000


def test_full_disk_refuses_sends_and_keeps_what_it_accepted(tmp_path: Path) -> None:
    """Fill the disk, see refusals, take messages out, and send again."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with small_disk(tmp_path, DISK_BYTES), BrokerProcess(storage=storage) as broker:
        accepted = []
        with ServiceBusClient.from_connection_string(
            broker.connection_string, retry_total=0
        ) as client:
            refusals = 0
            sender = client.get_queue_sender(QUEUE)
            for number in range(200):
                try:
                    sender.send_messages(ServiceBusMessage(BODY, message_id=str(number)))
                    accepted.append(str(number))
                except ServiceBusError:
                    refusals += 1
                    sender.close()
                    sender = client.get_queue_sender(QUEUE)
                    if refusals == 3:
                        break
            sender.close()
            assert refusals, "the disk never filled"
            assert accepted, "nothing was accepted"
            assert broker.is_healthy()
            received = []
            with client.get_queue_receiver(QUEUE) as receiver:
                while more := receiver.receive_messages(10, max_wait_time=3):
                    for message in more:
                        received.append(message.message_id)
                        receiver.complete_message(message)
            assert accepted == received
            assert "full" in broker.log_text()
            assert "starting_again" not in broker.log_text()
            # The file is as large as before, and empty: there is room inside.
            _send_until_accepted(client, "after")
        broker.restart()
        with ServiceBusClient.from_connection_string(broker.connection_string) as client:
            _send_until_accepted(client, "after the restart")
            with client.get_queue_receiver(QUEUE) as receiver:
                messages = receiver.peek_messages(10)
        assert ["after", "after the restart"] == [message.message_id for message in messages]


def test_a_request_over_http_is_refused_if_the_disk_has_no_room_for_it(tmp_path: Path) -> None:
    """It has no connection that could be closed."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with small_disk(tmp_path, DISK_BYTES), BrokerProcess(storage=storage) as broker:
        statuses = [_post(broker, b"x" * 1_000_000) for _ in range(15)]
        assert 201 == statuses[0]
        assert HTTPStatus.SERVICE_UNAVAILABLE == statuses[-1]
        assert {201, HTTPStatus.SERVICE_UNAVAILABLE} == set(statuses)
        assert broker.is_running
        assert "starting_again" not in broker.log_text()


def _post(broker: BrokerProcess, body: bytes) -> int:
    with closing(HTTPConnection(broker.host, broker.http_port, timeout=10)) as connection:
        headers = {"Authorization": root_token(), "Content-Type": "text/plain"}
        connection.request("POST", f"/{QUEUE}/messages", body, headers)
        return connection.getresponse().status


def _send_until_accepted(client: ServiceBusClient, message_id: str) -> None:
    """The broker looks for room now and then, so the first tries may still be refused as busy."""
    for _ in range(10):
        with client.get_queue_sender(QUEUE) as sender:
            try:
                sender.send_messages(ServiceBusMessage(BODY, message_id=message_id))
            except ServiceBusError:
                continue
            return
    pytest.fail("no send was accepted any more")
