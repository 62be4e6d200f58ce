"""The broker as a process: how it starts, says it is ready, fails, and stops."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from proton.utils import BlockingConnection, ConnectionClosed

from tests.support.server import ROOT, BrokerProcess, free_ports

QUEUE = "queue.1"


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `peeklock serve` where it is expected to fail at once."""
    return subprocess.run(
        [sys.executable, "-m", "peeklock", "serve", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def store(folder: Path) -> str:
    return f"sqlite:///{folder / 'peeklock.db'}"


def send(broker: BrokerProcess, *texts: str) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages([ServiceBusMessage(text) for text in texts])


def receive(broker: BrokerProcess, count: int) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        messages = receiver.receive_messages(count, max_wait_time=5)
        for message in messages:
            receiver.complete_message(message)
        return [str(message) for message in messages]


def test_ready_in_a_second_also_on_an_existing_file(tmp_path: Path) -> None:
    """Starting takes less than a second of processor time, so less than one on an idle machine.

    Other tests run beside this one, so neither the clock on the wall nor one start alone is fair.
    """
    with BrokerProcess(storage=store(tmp_path)) as broker:
        send(broker, "kept")
        spent_s = []
        for _ in range(3):
            broker.restart()
            spent_s.append(processor_seconds(broker.process_id))
        assert min(spent_s) < 1.0


def processor_seconds(process_id: int) -> float:
    """What a process has used so far, in all its threads."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ready_line_names_every_address_and_a_connection_string() -> None:
    """Scripts wait for the emulator's own sentence; people paste the connection string."""
    with BrokerProcess(environment={"PEEKLOCK_LOG_FORMAT": "json"}) as broker:
        ready = next(
            event
            for event in map(json.loads, broker.log_text().splitlines())
            if event["event"] == "ready"
        )
        assert "Emulator Service is Successfully Up!" == ready["text"]
        assert f"127.0.0.1:{broker.amqp_port}" == ready["amqp"]
        assert f"127.0.0.1:{broker.http_port}" == ready["http"]
        assert f"Endpoint=sb://localhost:{broker.amqp_port};" in ready["connection_string"]


def test_messages_outlive_a_stop_and_a_kill(tmp_path: Path) -> None:
    """What was accepted is there again, however the process ended."""
    with BrokerProcess(storage=store(tmp_path)) as broker:
        send(broker, "before the stop")
        assert 0 == broker.terminate()
        broker.start()
        send(broker, "before the kill")
        broker.kill()
        broker.start()
        assert ["before the stop", "before the kill"] == receive(broker, 2)
        broker.kill()
        broker.start()
        assert [] == receive(broker, 1)


def test_a_stop_sends_the_reason_to_clients() -> None:
    """A client that is connected when the broker stops gets the reason."""
    with BrokerProcess() as broker:
        connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
        connection.create_receiver(QUEUE, credit=1)
        assert 0 == broker.terminate()
        with pytest.raises(ConnectionClosed, match="shutting down"):
            connection.wait(lambda: False, timeout=5)


def test_stop_does_not_wait_for_clients_that_do_not_answer() -> None:
    """A client that reads nothing, as an idle Python SDK, gets a close, and the broker does not
    wait for its answer."""
    with BrokerProcess() as broker:
        connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
        connection.create_receiver(QUEUE, credit=1)
        began_s = time.monotonic()
        assert 0 == broker.terminate()
        assert time.monotonic() - began_s < 5
        with pytest.raises(ConnectionClosed, match="shutting down"):
            connection.wait(lambda: False, timeout=5)


def test_stop_is_no_failed_delivery_of_a_client_that_does_not_answer(tmp_path: Path) -> None:
    """What it holds is there again, uncounted, and the stop leaves no error in the log."""
    with BrokerProcess(storage=store(tmp_path)) as broker:
        send(broker, "held")
        connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
        assert 0 == connection.create_receiver(QUEUE, credit=1).receive().delivery_count
        assert 0 == broker.terminate()
        assert "[error" not in broker.log_text()
        broker.start()
        again = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
        assert 0 == again.create_receiver(QUEUE, credit=1).receive().delivery_count
        again.close()


def test_second_broker_on_the_same_file_is_refused(tmp_path: Path) -> None:
    """One process owns a store. The refusal names its process id."""
    with BrokerProcess(storage=store(tmp_path)) as broker:
        result = serve("--storage", store(tmp_path), "--amqp-port", "0", "--http-port", "0")
        assert 1 == result.returncode
        assert str(broker.process_id) in result.stdout + result.stderr
        assert "peeklock.db" in result.stdout + result.stderr


def test_taken_port_is_named() -> None:
    """A port in use is an error that says which one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = serve("--storage", "memory:", "--amqp-port", port, "--http-port", "0")
    assert 1 == result.returncode
    assert port in result.stdout + result.stderr


def test_one_port_can_be_for_everything() -> None:
    """Given the same port twice, a broker listens there once: every listener understands all."""
    (port,) = free_ports(1)
    flags = [f"--{kind}-port={port}" for kind in ("amqp", "http", "tls")]
    broker = BrokerProcess(arguments=flags)
    broker.amqp_port = broker.http_port = port
    with broker:
        send(broker, "here")
        assert ["here"] == receive(broker, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "nowhere.invalid"], ["nowhere.invalid:0", "give an address of this machine"]),
        (["--host", "192.0.2.1"], ["192.0.2.1:0", "this machine has no such address"]),
        (["--tls-certificate", __file__], [__file__, "unusable"]),
        (["--tls-folder", f"{__file__}/tls", "--tls-port", "0"], [__file__, "set tls_folder"]),
    ],
)
def test_what_keeps_it_from_starting_is_named(arguments: list[str], words: list[str]) -> None:
    """The cause and the cure, not an errno."""
    result = serve("--storage", "memory:", "--amqp-port", "0", "--http-port", "0", *arguments)
    assert 1 == result.returncode
    for word in words:
        assert word in result.stdout


def test_where_nothing_can_be_written_plain_connections_still_work(tmp_path: Path) -> None:
    """A home folder that is read-only costs TLS, which few ask for, and a warning."""
    (tmp_path / "data").touch()  # a file, where a folder would have to be made
    with BrokerProcess(environment={"XDG_DATA_HOME": str(tmp_path / "data")}) as broker:
        send(broker, "plain")
        assert ["plain"] == receive(broker, 1)
        assert f"no certificate can be kept in {tmp_path}" in broker.log_text()


def test_bad_configuration_names_every_mistake(tmp_path: Path) -> None:
    """All mistakes at once, exit code 2, nothing started."""
    config = tmp_path / "Config.json"
    config.write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": ['
        '{"Name": "a", "Properties": {"LockDuration": "PT9H"}},'
        '{"Name": "b", "Properties": {"MaxDeliveryCount": 0}}]}],'
        '"Logging": {"Type": "File"}}}'
    )
    result = serve("--config", str(config), "--storage", "memory:")
    assert 2 == result.returncode
    text = result.stdout + result.stderr
    assert "Queues[0].Properties.LockDuration" in text
    assert "Queues[1].Properties.MaxDeliveryCount" in text


def test_many_clients_leave_nothing_behind() -> None:
    """Closed connections leave no memory behind."""
    with BrokerProcess() as broker:
        for _ in range(5):
            with ExitStack() as clients:
                for _ in range(20):
                    connection = BlockingConnection(f"127.0.0.1:{broker.amqp_port}", timeout=10)
                    clients.callback(connection.close)
                    connection.create_receiver(QUEUE, credit=1)
        _, content = broker.request("GET", "/metrics")
        assert "peeklock_connections 0.0" in content.decode()
        assert "peeklock_links 0.0" in content.decode()
