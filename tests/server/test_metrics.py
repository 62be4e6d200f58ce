"""What `/metrics` shows of a running broker that stock clients use."""

from __future__ import annotations

import http.client
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient
from prometheus_client.parser import text_string_to_metric_families
from proton import Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, LinkDetached

from broker import __version__
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prometheus_client.samples import Sample

NAMESPACE = "sbemulatorns"
QUEUE = "queue.1"
OPERATIONS = "peeklock_message_operations_total"


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def broker(tls_folder: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(environment={"PEEKLOCK_TLS_FOLDER": str(tls_folder)}) as broker:
        yield broker


@pytest.fixture
def administration(
    broker: BrokerProcess, tls_folder: Path
) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        broker.admin_connection_string.replace("127.0.0.1", "localhost"),
        connection_verify=str(tls_folder / "ca.pem"),
    ) as administration:
        yield administration


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0) as client:
        yield client


@pytest.fixture
def queue(request: pytest.FixtureRequest, administration: ServiceBusAdministrationClient) -> str:
    """A queue of the test's own."""
    name = request.node.name.replace("[", ".").replace("]", "")[:60]
    administration.create_queue(name, max_delivery_count=2)
    return str(name)


def _samples(broker: BrokerProcess) -> list[Sample]:
    status, content = broker.request("GET", "/metrics")
    assert 200 == status
    return [
        sample
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    ]


def _of_entity(broker: BrokerProcess, name: str, entity: str, label: str) -> dict[str, float]:
    """The values of one metric of one entity, by a label."""
    return {
        sample.labels[label]: sample.value
        for sample in _samples(broker)
        if sample.name == name
        and (sample.labels["entity"], sample.labels["namespace"]) == (entity, NAMESPACE)
    }


def _outcomes(broker: BrokerProcess, entity: str) -> dict[str, float]:
    return _of_entity(broker, OPERATIONS, entity, "outcome")


def _send(client: ServiceBusClient, queue: str, *texts: str, **properties: object) -> None:
    with client.get_queue_sender(queue) as sender:
        messages = [ServiceBusMessage(text, **properties) for text in texts]  # type: ignore[arg-type]
        sender.send_messages(messages)


def test_what_waits_is_shown_by_state(
    broker: BrokerProcess, client: ServiceBusClient, queue: str
) -> None:
    """And how large it is."""
    _send(client, queue, "one", "two", "three")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=10)
        receiver.dead_letter_message(message)
        states = _of_entity(broker, "peeklock_messages", queue, "state")
    assert {
        "active": 2.0,
        "locked": 0.0,
        "deferred": 0.0,
        "scheduled": 0.0,
        "dead_lettered": 1.0,
        "transfer_dead_lettered": 0.0,
    } == states


def test_messages_are_counted_however_they_come_and_go(
    broker: BrokerProcess, client: ServiceBusClient, queue: str
) -> None:
    """In batches, settled as they are sent, and settled without waiting for an answer."""
    connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
    connection.create_sender(queue, options=AtMostOnce()).send(Message(body="settled"))
    connection.close()
    _send(client, queue, *"abc")
    with client.get_queue_receiver(queue) as receiver:
        received = 0
        while received < 4:
            for message in receiver.receive_messages(4, max_wait_time=10):
                receiver.complete_message(message)
                received += 1
    assert {"accepted": 4.0, "delivered": 4.0, "completed": 4.0} == _outcomes(broker, queue)


def test_each_settlement_has_its_outcome(
    broker: BrokerProcess, client: ServiceBusClient, queue: str
) -> None:
    """All in one tense, settled on a link or by token."""
    _send(client, queue, "complete", "abandon", "defer", "dead-letter")
    with client.get_queue_receiver(queue) as receiver:
        messages: dict[str, ServiceBusReceivedMessage] = {}
        while len(messages) < 4:
            for message in receiver.receive_messages(4, max_wait_time=10):
                messages[str(message)] = message
        receiver.complete_message(messages["complete"])
        receiver.defer_message(messages["defer"])
        receiver.dead_letter_message(messages["dead-letter"])
        (number,) = [messages["defer"].sequence_number]
        assert number is not None
        (deferred,) = receiver.receive_deferred_messages(number)
        receiver.complete_message(deferred)
        receiver.abandon_message(messages["abandon"])
    with client.get_queue_receiver(
        queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        assert 1 == len(receiver.receive_messages(1, max_wait_time=10))
    assert {
        "accepted": 4.0,
        "delivered": 6.0,
        "completed": 2.0,
        "deferred": 1.0,
        "dead_lettered": 1.0,
        "abandoned": 1.0,
    } == _outcomes(broker, queue)


def test_requests_over_http_count_under_their_entity(broker: BrokerProcess, queue: str) -> None:
    """However the entity's name is written."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=10)
    for method, path, body in (
        ("POST", f"/{queue}/messages", b"hello"),
        ("POST", f"/{queue.upper()}/messages", b"hello"),
        ("DELETE", f"/{queue}/messages/head", None),
        ("POST", f"/{queue}/messages/head", None),
    ):
        connection.request(method, path, body)
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (200, 201)
    locked = json.loads(answer.headers["BrokerProperties"])
    path = f"/{queue}/messages/{locked['SequenceNumber']}/{locked['LockToken']}"
    connection.request("DELETE", path)
    assert 200 == connection.getresponse().status
    connection.close()
    assert {"accepted": 2.0, "delivered": 2.0, "completed": 1.0} == _outcomes(broker, queue)
    assert not _outcomes(broker, queue.upper())


def test_names_that_clients_make_up_are_no_series(broker: BrokerProcess) -> None:
    """However many there are, they count together, without an entity."""
    before = _outcomes(broker, "").get("attach_refused", 0)
    lines_before = len(_samples(broker))
    connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
    for number in range(200):
        with pytest.raises(LinkDetached):
            connection.create_receiver(f"made-up-{number}")
        with pytest.raises(LinkDetached):
            connection.create_sender(f"made-up-{number}/$DeadLetterQueue")
    connection.close()
    assert 400 == _outcomes(broker, "")["attach_refused"] - before
    assert not [s for s in _samples(broker) if "made-up" in str(s.labels)]
    assert len(_samples(broker)) - lines_before <= 2


def test_a_refused_attach_to_an_entity_counts_there(
    broker: BrokerProcess, client: ServiceBusClient, queue: str
) -> None:
    """By the entity's own name."""
    with (
        pytest.raises(ServiceBusError),
        client.get_queue_receiver(queue.upper(), session_id="one"),
    ):
        pass
    assert {"attach_refused": 1.0} == _outcomes(broker, queue)


def test_series_end_with_their_entity(
    broker: BrokerProcess,
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    queue: str,
) -> None:
    """A new entity of the same name begins at zero."""
    _send(client, queue, "one")
    assert _outcomes(broker, queue)
    administration.delete_queue(queue)
    assert not [s for s in _samples(broker) if s.labels.get("entity") == queue]
    administration.create_queue(queue)
    assert {} == _outcomes(broker, queue)


def test_dead_letters_are_counted_by_cause(
    broker: BrokerProcess,
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    queue: str,
) -> None:
    """Reasons that applications make up count together."""
    definition = administration.get_queue(queue)
    definition.dead_lettering_on_message_expiration = True
    administration.update_queue(definition)
    _send(client, queue, *"abcd")
    with client.get_queue_receiver(queue) as receiver:
        for text in "aabcd":
            (message,) = receiver.receive_messages(1, max_wait_time=10)
            assert text == str(message)
            if text == "a":
                receiver.abandon_message(message)
            else:
                receiver.dead_letter_message(message, reason=f"made up {text}")
    _send(client, queue, "e", time_to_live=timedelta(seconds=5))
    broker.advance_clock(5_001)
    assert {
        "application": 3.0,
        "max_delivery_count_exceeded": 1.0,
        "time_to_live_expired": 1.0,
    } == _of_entity(broker, "peeklock_dead_letters_total", queue, "reason")
    outcomes = _outcomes(broker, queue)
    assert (5.0, 1.0, 2.0) == (
        outcomes["dead_lettered"],
        outcomes["expired"],
        outcomes["abandoned"],
    )
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (message, *_) = receiver.receive_messages(1, max_wait_time=10)
        receiver.complete_message(message)
    of_sub_queue = _outcomes(broker, f"{queue}/$DeadLetterQueue")
    assert {"delivered": 1.0, "completed": 1.0} == of_sub_queue


def test_messages_that_no_subscription_wants_are_counted(
    broker: BrokerProcess, client: ServiceBusClient, administration: ServiceBusAdministrationClient
) -> None:
    """Sent and scheduled ones, each once."""
    administration.create_topic("unwanted")
    with client.get_topic_sender("unwanted") as sender:
        sender.send_messages(ServiceBusMessage("lost"))
        administration.create_subscription("unwanted", "all")
        sender.send_messages(ServiceBusMessage("found"))
    assert {"accepted": 2.0, "unmatched": 1.0} == _outcomes(broker, "unwanted")
    unmatched = [s for s in _samples(broker) if s.name == "peeklock_unmatched_messages_total"]
    assert [("unwanted", NAMESPACE, 1.0)] == [
        (s.labels["entity"], s.labels["namespace"], s.value) for s in unmatched
    ]


def test_refusals_are_counted_by_condition(
    broker: BrokerProcess, client: ServiceBusClient, administration: ServiceBusAdministrationClient
) -> None:
    """On every protocol, and refused sends under their entity, too."""

    def refused() -> dict[str, float]:
        return {
            sample.labels["condition"]: sample.value
            for sample in _samples(broker)
            if sample.name == "peeklock_refusals_total"
        }

    before = refused()
    administration.create_queue("with-sessions", requires_session=True)
    with client.get_queue_sender("with-sessions") as sender, pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("of no session"))
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=10)
    connection.request("POST", "/made-up/messages", b"hello")
    assert 410 == connection.getresponse().status
    connection.close()
    grown = {name: number - before.get(name, 0) for name, number in refused().items()}
    assert (1, 1) == (grown["amqp:not-allowed"], grown["amqp:not-found"])
    assert {"send_refused": 1.0} == _outcomes(broker, "with-sessions")


def test_the_broker_and_its_process_are_shown(broker: BrokerProcess) -> None:
    """Which version it is, how it does, and what it uses."""
    samples = {sample.name: sample for sample in _samples(broker)}
    assert __version__ == samples["peeklock_build_info"].labels["version"]
    assert samples.keys() >= {
        "peeklock_connections",
        "peeklock_connections_opened_total",
        "peeklock_links",
        "peeklock_event_loop_lag_seconds",
        "peeklock_commit_seconds_bucket",
        "peeklock_commit_seconds_count",
        "peeklock_commit_records_sum",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
    }
