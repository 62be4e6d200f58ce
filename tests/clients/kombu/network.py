"""A network in which the broker has the name and the ports that Kombu insists on.

Kombu's URLs have no place for a port, and it completes the name to `NAME.servicebus.windows.net`. A
user of containers gives the broker that name as a network alias. Here a network namespace does:
outside it, a relay from a Unix socket to the broker; inside, relays from the usual ports to that.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import certifi

from tests.clients.python.trial import Broker, say
from tests.clients.table import scenarios

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

NAME = "sbemulatorns.servicebus.windows.net"
PORTS = (443, 5671, 5672)
CHUNK_BYTES = 65_536
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
INSIDE = "inside"


# ---- relays -------------------------------------------------------------------------------------


def _relay(connect: Connect) -> Callable[..., Awaitable[None]]:
    """What joins a client that has come with a connection of its own."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await connect()
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    return serve


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer):
        try:
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
        except OSError:
            return


def _in_background(start: Callable[[], Awaitable[object]]) -> None:
    """Have servers run until the program ends."""
    started = threading.Event()

    async def serve() -> None:
        await start()
        started.set()
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    assert started.wait(10)


# ---- outside and inside -------------------------------------------------------------------------


def outside(folder: Path) -> int:
    """Start the scenarios in a network of their own."""
    broker, path = Broker.from_environment(), folder / "broker.socket"

    async def start() -> None:
        to_broker = _relay(lambda: asyncio.open_connection(broker.host, broker.amqp_port))
        await asyncio.start_unix_server(to_broker, path)

    _in_background(start)
    program = [sys.executable, "-m", "tests.clients.kombu.network", INSIDE, str(folder)]
    return subprocess.run([*UNSHARE, *program, *sys.argv[1:]], check=False).returncode


def inside(folder: Path) -> None:
    """Give the broker its name, its ports and its authority, then run the scenarios."""
    broker = Broker.from_environment()
    hosts, authorities = folder / "hosts", folder / "authorities.pem"
    hosts.write_text(f"127.0.0.1 localhost {NAME}\n")
    # As a user adds a company's authority to the bundle that the SDK takes without asking.
    own = Path(broker.authority_file).read_text()
    authorities.write_text(Path(certifi.where()).read_text() + own)
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["mount", "--bind", hosts, "/etc/hosts"],
        ["mount", "--bind", authorities, certifi.where()],
    ):
        subprocess.run(command, check=True)

    async def start() -> None:
        to_socket = _relay(lambda: asyncio.open_unix_connection(folder / "broker.socket"))
        for port in (*PORTS, broker.http_port):
            await asyncio.start_server(to_socket, "127.0.0.1", port)

    _in_background(start)
    from tests.clients.kombu.scenarios import main

    main(broker)


def main() -> None:
    if sys.argv[1:2] == [INSIDE]:
        path = Path(sys.argv[2])
        del sys.argv[1:3]
        inside(path)
        return
    allowed = subprocess.run([*UNSHARE, "true"], check=False, capture_output=True, text=True)
    if allowed.returncode:
        for name in scenarios(short=os.environ.get("PEEKLOCK_SHORT") == "1"):
            say({"scenario": name, "outcome": "skipped", "detail": allowed.stderr.strip()})
        return
    with tempfile.TemporaryDirectory(prefix="peeklock-kombu-") as folder:
        sys.exit(outside(Path(folder)))


if __name__ == "__main__":
    main()
