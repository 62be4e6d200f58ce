"""What clients do, in the log of a running broker: enough to find it, never a flood."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from proton.utils import BlockingConnection, LinkDetached

from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = "queue.1"
MADE_UP = 300


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    environment = {"PEEKLOCK_LOG_FORMAT": "json", "PEEKLOCK_LOG_LEVEL": "debug"}
    with BrokerProcess(environment=environment) as broker:
        yield broker


def _events(broker: BrokerProcess, *names: str) -> list[dict[str, Any]]:
    lines = [line for line in broker.log_text().splitlines() if line.startswith("{")]
    events = [json.loads(line) for line in lines]
    return [event for event in events if event["event"] in names]


def _client(broker: BrokerProcess) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0)


def test_the_same_refusal_many_times_is_a_line_and_a_number(broker: BrokerProcess) -> None:
    """Every tracking id that a client gets leads to its log lines."""
    connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
    told = []
    for _ in range(MADE_UP):
        with pytest.raises(LinkDetached) as refusal:
            connection.create_receiver("missing")
        told.append(str(refusal.value).partition("TrackingId:")[2].partition("_")[0])
    connection.close()
    assert 0 == broker.terminate()
    lines = _events(broker, "refused", "refused.repeated")
    assert 2 <= len(lines) <= 6  # the first, the number of the others; a slow machine has windows
    assert MADE_UP == sum(line.get("count", 1) for line in lines)
    assert MADE_UP == len(set(told))
    assert (told[0], told[-1]) == (lines[0]["tracking_id"], lines[-1]["tracking_id"])
    known = {line["tracking_id"].rpartition("-")[0] for line in lines}
    assert {one.rpartition("-")[0] for one in told} <= known
    assert ("missing", "attach receiver", "amqp:not-found") == (
        lines[0]["entity"],
        lines[0]["operation"],
        lines[0]["condition"],
    )


def test_names_that_clients_make_up_do_not_flood_the_log(broker: BrokerProcess) -> None:
    """Beyond a hundred names, they are counted together."""
    connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
    for number in range(MADE_UP):
        with pytest.raises(LinkDetached):
            connection.create_receiver(f"made-up-{number}")
    connection.close()
    assert 0 == broker.terminate()
    lines = _events(broker, "refused", "refused.repeated")
    assert MADE_UP == sum(line.get("count", 1) for line in lines)
    assert lines[-1]["various"] is True
    assert len(lines) <= 2 * 103  # at most two windows


def test_each_dead_letter_is_a_line(broker: BrokerProcess) -> None:
    """With its entity, its id, the reason and how often it was delivered."""
    with _client(broker) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("a", message_id="order-1"))
        with client.get_queue_receiver(QUEUE) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=10)
            receiver.abandon_message(message)
            (message,) = receiver.receive_messages(1, max_wait_time=10)
            receiver.dead_letter_message(message, reason="unpayable")
    (line,) = _events(broker, "dead_lettered")
    assert {
        "level": "info",
        "entity": QUEUE,
        "namespace": "sbemulatorns",
        "message_id": "order-1",
        "sequence_number": 1,
        "delivery_count": 1,
        "reason": "unpayable",
    }.items() <= line.items()


def test_many_dead_letters_are_a_few_lines_and_a_number(broker: BrokerProcess) -> None:
    """All of them are accounted for."""
    with _client(broker) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(500)])
        with client.get_queue_receiver(QUEUE, prefetch_count=500) as receiver:
            done = 0
            while done < 500:
                for message in receiver.receive_messages(500, max_wait_time=10):
                    receiver.dead_letter_message(message, reason=f"reason {done}")
                    done += 1
    assert 0 == broker.terminate()
    lines = _events(broker, "dead_lettered", "dead_lettered.repeated")
    assert 500 == sum(line.get("count", 1) for line in lines)
    assert len(lines) <= 100


def test_links_are_logged_at_debug_level(broker: BrokerProcess) -> None:
    """Who uses an entity, as what; a refused link was never attached."""
    with _client(broker) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("a"))
        with pytest.raises(ServiceBusError), client.get_queue_sender("missing"):
            pass
    assert 0 == broker.terminate()
    (attached,) = [e for e in _events(broker, "link.attached") if QUEUE in e["entity"]]
    (detached,) = [e for e in _events(broker, "link.detached") if QUEUE in e["entity"]]
    assert ("sender", "debug") == (attached["role"], attached["level"])
    assert attached["container"]
    for name in ("entity", "role", "container", "link"):
        assert attached[name] == detached[name]
    assert 1 == detached["received"]
    ends = [
        e for e in _events(broker, "link.attached", "link.detached") if "missing" in e["entity"]
    ]
    assert [] == ends
