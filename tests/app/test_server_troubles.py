"""The broker process as a whole, where a real process would be hard to bring into the state."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from structlog.testing import capture_logs

from broker.app.runtime.standby import STARTING
from broker.app.server import Server
from config.files.topology import Topology
from config.settings.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def server_without_core(settings: Settings) -> Any:
    """A server that listens, and whose core serves no namespace."""
    server: Any = Server(settings, Topology({"ns": {}}))
    server._core = SimpleNamespace(not_serving=None, is_serving=True, namespaces={})
    server._listeners.open_all(asyncio.Protocol)
    server._ready = True
    return server


async def test_health_waits_until_amqp_listens_again() -> None:
    """After the store was lost and regained, while another process still has the port."""
    server = server_without_core(Settings(host="127.0.0.1", amqp_port=0, http_port=0))
    try:
        assert server._not_serving() is None
        server.stopped_serving("another process owns it")
        with socket.create_server(("127.0.0.1", server._listeners.ports["amqp"])):
            server.serving_again()
            await asyncio.sleep(0.1)
            assert STARTING == server._not_serving()
        await server._listening_again
        assert server._not_serving() is None
    finally:
        server._listeners.close()


async def test_a_report_that_fails_does_not_end_the_stop(tmp_path: Path) -> None:
    server = server_without_core(Settings(host="127.0.0.1", amqp_port=0, http_port=0))
    server._listeners.close()

    class Failing:
        async def all_reports(self, _: object) -> None:
            raise LookupError("a bug")

    server._reports = Failing()
    with capture_logs() as lines:
        await server._write_reports([tmp_path / "report.xml"])
    assert [("report.failed", "LookupError('a bug')")] == [
        (one["event"], one["error"]) for one in lines
    ]
