"""`python -m tests.fuzz.record [--only NAME]`: record anew what stock clients send.

Every client of `tests/clients` runs its short scenarios through a proxy that keeps what it sends;
only plain connections are of use. The streams hold tokens of the well-known development key.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import tempfile
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.clients.program import ProgramFailed, all_clients
from tests.fuzz import recordings
from tests.support.server import HOST, BrokerProcess, free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

TLS = b"\x16"
READ_BYTES = 65_536
TYPES_FILE = recordings.FOLDER.parent.parent / "clients" / "types.json"


class Proxy:
    """Carries bytes between clients and a broker, and keeps those of the clients."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._targets = ports
        self.ports = free_ports(len(ports))
        self.streams: list[bytearray] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        for port, target in zip(self.ports, self._targets, strict=True):
            self._loop.run_until_complete(
                asyncio.start_server(partial(self._serve, target), HOST, port)
            )
        self._started.set()
        self._loop.run_forever()

    async def _serve(
        self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        stream = bytearray()
        self.streams.append(stream)
        with suppress(OSError):
            upstream, up = await asyncio.open_connection(HOST, target)
            await asyncio.gather(_carry(reader, up, stream), _carry(upstream, writer, bytearray()))


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    with suppress(OSError):
        while data := await reader.read(READ_BYTES):
            kept += data
            writer.write(data)
            await writer.drain()
    writer.close()


def anonymous(stream: bytes) -> bytes:
    """Without the names that the machine has, which some clients tell."""
    for name in (platform.release(), platform.node()):
        stream = stream.replace(name.encode(), b"x" * len(name)) if name else stream
    return stream


def record(broker: BrokerProcess, name: str, tls_folder: Path) -> list[bytes]:
    """Run one client and give what is worth keeping of it. Raises `ProgramFailed`."""
    (client,) = all_clients([name])
    if client.missing():
        raise ProgramFailed(f"{name} lacks {', '.join(client.missing())}")
    client.make_ready()
    with Proxy([broker.amqp_port, broker.http_port]) as proxy:
        amqp_port, http_port = proxy.ports

        def through(text: str) -> str:
            return text.replace(str(broker.amqp_port), str(amqp_port)).replace(
                str(broker.http_port), str(http_port)
            )

        environment = {
            "PEEKLOCK_HOST": HOST,
            "PEEKLOCK_AMQP_PORT": str(amqp_port),
            "PEEKLOCK_HTTP_PORT": str(http_port),
            "PEEKLOCK_CONNECTION_STRING": through(broker.connection_string),
            "PEEKLOCK_ADMIN_CONNECTION_STRING": through(broker.admin_connection_string),
            "PEEKLOCK_TLS_CONNECTION_STRING": "",
            "PEEKLOCK_CA_FILE": str(tls_folder / "ca.pem"),
            "PEEKLOCK_TYPES_FILE": str(TYPES_FILE),
            "PEEKLOCK_RUN": "fuzz",
            "PEEKLOCK_SHORT": "1",
        }
        report = client.start((), environment, broker.restart, lambda _name, _outcome: None)
        plain = [anonymous(bytes(one)) for one in proxy.streams if not one.startswith(TLS)]
    if report.problem:
        raise ProgramFailed(f"{report.problem}\n{report.output[-500:]}")
    print(f"{name}: {len(plain)} plain streams, {report.count('passed')} scenarios passed")
    return recordings.chosen(plain)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.record", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="only this client; repeatable")
    options = parser.parse_args(arguments)
    recordings.FOLDER.mkdir(exist_ok=True)
    failed = False
    for client in all_clients(options.only):
        with (
            tempfile.TemporaryDirectory(prefix="peeklock-record-") as folder,
            BrokerProcess(environment={"PEEKLOCK_TLS_FOLDER": folder}) as broker,
        ):
            try:
                streams = record(broker, client.name, Path(folder))
            except ProgramFailed as error:
                print(f"{client.name}: {error}", file=sys.stderr)
                failed = True
                continue
        path = recordings.save(client.name, streams)
        print(f"  kept {len(streams)} of them, {path.stat().st_size} bytes", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
