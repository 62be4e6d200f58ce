"""Signals that end the broker, and standard streams that are closed or cannot be written."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from proton.utils import BlockingConnection, LinkDetached

from tests.support.server import HOST, ROOT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

QUEUE = "queue.1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_broker_in_order(number: signal.Signals) -> None:
    """Clients get the reason, the store is closed, and the exit code is 0."""
    with BrokerProcess() as broker:
        assert 0 == broker.stop(number)
        assert "[info     ] stopped" in broker.log_text()


def test_a_second_signal_stops_the_broker_at_once() -> None:
    """A user who presses Ctrl-C twice does not want to wait for clients that do not answer."""
    with BrokerProcess(arguments=["--shutdown-grace", "60s"]) as broker:
        connection = BlockingConnection(f"{HOST}:{broker.amqp_port}", timeout=10)
        connection.create_receiver(QUEUE, credit=1)  # it does not read, so it never says goodbye
        broker.send_signal(signal.SIGINT)
        broker.wait_for_log("stopping")
        assert 1 == broker.stop(signal.SIGINT)
        assert "stopped.at_once" in broker.log_text()


def test_an_ignored_hangup_stays_ignored() -> None:
    """As under `nohup`."""
    with BrokerProcess(prefix=["nohup"]) as broker:
        broker.send_signal(signal.SIGHUP)
        assert broker.is_healthy()
        assert 0 == broker.terminate()
        assert "stopping" in broker.log_text()
        assert "SIGHUP" not in broker.log_text()


@pytest.mark.parametrize(
    "redirection",
    [">&- 2>&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full", "> >(head -n 1)"],
    ids=["output closed", "all closed", "disk full", "reader gone"],
)
def test_a_broker_without_usable_output_serves_and_stops_in_order(redirection: str) -> None:
    """It costs the log and nothing else."""
    shell = ["/bin/bash", "-c", f'exec "$0" "$@" {redirection}']
    with BrokerProcess(prefix=shell) as broker:
        connection = BlockingConnection(f"{HOST}:{broker.amqp_port}", timeout=10)
        for number in range(2):
            with pytest.raises(LinkDetached, match="not-found"):
                connection.create_receiver(f"no-such-queue-{number}")  # which is logged
        connection.close()
        assert broker.is_healthy()
        assert 0 == broker.terminate()


UNREAD_PIPE = """
import fcntl, os, sys
unread, output = os.pipe()
fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, 4096)
os.dup2(output, 1)
os.dup2(output, 2)
os.set_inheritable(unread, True)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Starts a program with a pipe as its output that nobody reads, and that takes little."""


def test_a_broker_whose_output_nobody_reads_serves_and_stops_in_order() -> None:
    """For example one that a test has started with `stdout=PIPE`. A write to a full pipe would wait for the reader."""
    with BrokerProcess(
        prefix=[sys.executable, "-c", UNREAD_PIPE], arguments=["--log-level", "debug"]
    ) as broker:
        for _ in range(50):
            connection = BlockingConnection(f"{HOST}:{broker.amqp_port}", timeout=10)
            connection.create_receiver(QUEUE).close()
            connection.close()
        assert broker.is_healthy()
        assert 0 == broker.terminate()


def test_closed_streams_are_not_taken_by_files_or_sockets(tmp_path: Path) -> None:
    """Otherwise the output of libraries would be written into them."""
    script = tmp_path / "probe.py"
    script.write_text(
        "import os\n"
        "from broker.app.observe.logs import open_standard_streams\n"
        "open_standard_streams()\n"
        "descriptor = os.open(os.devnull, os.O_RDWR)\n"
        f"open({str(tmp_path / 'answer')!r}, 'w').write(str(descriptor))\n"
    )
    command = f'"$0" {script} <&- >&- 2>&-'
    arguments: Sequence[str] = ["/bin/sh", "-c", command, sys.executable]
    subprocess.run(arguments, cwd=ROOT, check=True, env={"PYTHONPATH": str(ROOT)})
    assert 3 <= int((tmp_path / "answer").read_text())
