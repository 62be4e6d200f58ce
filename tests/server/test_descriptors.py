"""A broker that runs out of file descriptors: connected clients are not affected, and it
recovers."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

from proton import Message
from proton.utils import BlockingConnection

from tests.support.server import HOST, BrokerProcess

QUEUE = "queue.1"
DESCRIPTORS = 64


def test_out_of_descriptors_it_waits_and_says_so_once() -> None:
    """The loop does not spin, the log does not fill, and new clients are taken later."""
    shell = ["/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"']
    with BrokerProcess(prefix=shell) as broker, ExitStack() as others:
        connected = BlockingConnection(f"{HOST}:{broker.amqp_port}", timeout=10)
        sender = connected.create_sender(QUEUE)
        for _ in range(2 * DESCRIPTORS):
            others.enter_context(socket.create_connection((HOST, broker.amqp_port)))
        broker.wait_for_log("listener.accept_failed")
        before_s = _processor_seconds(broker.process_id)
        began_s = time.monotonic()
        while time.monotonic() - began_s < 1.0:
            sender.send(Message(body="still served"))
            time.sleep(0.05)
        assert _processor_seconds(broker.process_id) - before_s < 0.5
        assert 1 == broker.log_text().count("listener.accept_failed")
        others.close()
        broker.wait_for_log("listener.accepts_again")
        assert broker.is_healthy()
        connected.close()


def _processor_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/schedstat").read_text().split()
    return int(fields[0]) / 1e9
