"""Fixtures: a broker on free ports for a test run, and a new queue for each test.

Copy this file into your tests. It starts the command `peeklock`, which must be on the PATH. The
environment variable PEEKLOCK can name another command. The file does not import Peeklock.
"""

import http.client
import os
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

COMMAND = os.environ.get("PEEKLOCK", "peeklock")
ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
    '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/>'
    "</content></entry>"
)


@dataclass(frozen=True)
class Broker:
    """The addresses of a running broker."""

    connection_string: str
    http_port: int


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Start one broker for the whole run. It keeps its messages in memory."""
    arguments = ["serve", "--storage", "memory:", "--amqp-port", "0", "--http-port", "0"]
    environment = {**os.environ, "PEEKLOCK_LOG_FORMAT": "json"}
    process = subprocess.Popen(
        [*COMMAND.split(), *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    for line in process.stdout:
        if '"event": "ready"' in line:  # with the text Emulator Service is Successfully Up!
            connection_string = re.search(r'"connection_string": "([^"]+)"', line)
            http_address = re.search(r'"http": "[^"]*:(\d+)"', line)
            assert connection_string and http_address, line
            break
    else:
        raise AssertionError("the broker did not start")
    # Read the rest of the log, or the broker would block when the pipe is full.
    threading.Thread(target=process.stdout.read, daemon=True).start()
    yield Broker(connection_string[1], int(http_address[1]))
    process.terminate()
    process.wait(timeout=30)


@pytest.fixture
def queue(broker: Broker) -> str:
    """Create a new queue, so that tests can run in parallel and do not share messages."""
    name = f"test-{uuid.uuid4().hex}"
    connection = http.client.HTTPConnection("localhost", broker.http_port)
    connection.request("PUT", f"/{name}?api-version=2021-05", ENTRY)
    response = connection.getresponse()
    assert response.status == 201, response.read()
    connection.close()
    return name
