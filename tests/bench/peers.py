"""Other brokers in the same run: RabbitMQ with a quorum queue, Artemis with a synced journal.

Each is started on free ports with its data in a temporary folder if it is installed (`rabbitmq-server` on the PATH,
`ARTEMIS_HOME` in the environment), and stopped afterwards. Or an address is given; then its queue must exist.
Both are durable before they accept a message, so they are compared with Peeklock on SQLite.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.bench import observe
from tests.bench.load import new_run
from tests.bench.load_program import run_program
from tests.bench.roles import Load
from tests.bench.systems import ARTEMIS, QUEUE, RABBITMQ, Target
from tests.support.server import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.02
RABBITMQ_ADDRESS = f"/queues/{QUEUE}"
"""RabbitMQ 4 has such addresses for its queues."""


class PeerMissing(Exception):
    """The broker is not installed and no address is given, or it did not start."""


class Peer(NamedTuple):
    """A peer that runs, and how long its start took if we started it."""

    target: Target
    ready_after_s: float | None


class Kind(NamedTuple):
    """A broker that can be measured."""

    system: str
    address: str
    capability: str
    start: Callable[[Path], Iterator[tuple[subprocess.Popen[bytes], int]]]
    """Starts it with its data in a folder; yields its process and port."""


@contextmanager
def running(system: str, address: str | None) -> Iterator[Peer]:
    """The peer at this address, or a new one. Raises PeerMissing."""
    kind = KINDS[system]
    if address is not None:
        host, _, number = address.rpartition(":")
        yield Peer(_target(kind, host or HOST, int(number)), None)
        return
    with tempfile.TemporaryDirectory(prefix="peeklock-bench-", ignore_cleanup_errors=True) as name:
        starting = kind.start(Path(name))
        process, port = next(starting)
        began_s = time.monotonic()
        try:
            _wait_until_ready(kind, process, port, Path(name))
            yield Peer(_target(kind, HOST, port), time.monotonic() - began_s)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            next(starting, None)


def _target(kind: Kind, host: str, port: int) -> Target:
    process_id = observe.listening_process(port)
    return Target(kind.system, port, process_id, host, kind.address, kind.capability, sasl=True)


def _wait_until_ready(
    kind: Kind, process: subprocess.Popen[bytes], port: int, folder: Path
) -> None:
    """Wait until a message can be sent and received."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        load = Load(
            port=port, address=kind.address, count=1, run=new_run(), stall_timeout_s=START_TIMEOUT_S
        )
        results = run_program("both", load, capability=kind.capability, sasl=True)
        if all(result["is_clean"] for result in results):
            return
        if process.poll() is not None or time.monotonic() > deadline_s:
            log = folder / "log"
            text = log.read_text(errors="replace")[-2_000:] if log.exists() else ""
            raise PeerMissing(f"{kind.system} did not start: {results[0]['error']}\n{text}")
        time.sleep(POLL_INTERVAL_S)


def _start(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


# --- RabbitMQ ----------------------------------------------------------------------------------


def _start_rabbitmq(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = shutil.which("rabbitmq-server")
    if command is None:
        raise PeerMissing("rabbitmq-server is not on the PATH; --rabbitmq HOST:PORT names another")
    port, distribution_port, epmd_port = free_ports(3)
    definitions = {
        "vhosts": [{"name": "/"}],
        "users": [{"name": "guest", "password": "guest", "tags": ["administrator"]}],
        "permissions": [
            {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        ],
        "queues": [
            {
                "name": QUEUE,
                "vhost": "/",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-queue-type": "quorum"},
            }
        ],
    }
    (folder / "definitions.json").write_text(json.dumps(definitions))
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.default = {HOST}:{port}\n"
        f"load_definitions = {folder / 'definitions.json'}\n"
        "anonymous_login_user = guest\nanonymous_login_pass = guest\n"
    )
    (folder / "plugins").write_text("[].\n")
    environment = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": "peeklock-bench@localhost",
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    yield _start([command], folder, environment), port
    # Erlang's name server was started with the broker, on our port, and would stay.
    name_server = observe.listening_process(epmd_port)
    if name_server is not None:
        os.kill(name_server, signal.SIGTERM)


# --- Artemis -----------------------------------------------------------------------------------


def _start_artemis(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    home = os.environ.get("ARTEMIS_HOME")
    if home is None:
        raise PeerMissing("ARTEMIS_HOME is not set; --artemis HOST:PORT names a broker that runs")
    (port,) = free_ports(1)
    instance = folder / "instance"
    create = [str(Path(home) / "bin" / "artemis"), "create", str(instance)]
    create += ["--silent", "--allow-anonymous", "--user", "guest", "--password", "guest"]
    create += ["--host", HOST, "--default-port", str(port), "--queues", QUEUE, "--no-web"]
    create += ["--no-amqp-acceptor", "--no-hornetq-acceptor", "--no-mqtt-acceptor"]
    create += ["--no-stomp-acceptor"]
    subprocess.run(create, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    # The script replaces itself with Java, so that the process is the broker's.
    yield _start([str(instance / "bin" / "artemis"), "run"], folder), port


KINDS = {
    RABBITMQ: Kind(RABBITMQ, RABBITMQ_ADDRESS, "", _start_rabbitmq),
    ARTEMIS: Kind(ARTEMIS, QUEUE, "queue", _start_artemis),
}
