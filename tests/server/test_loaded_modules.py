"""What a broker has loaded when it is ready: imports take most of a start, and a third of the memory."""

from __future__ import annotations

import http
import re
import threading
from pathlib import Path

from tests.support.server import BrokerProcess

NOT_AT_START = {
    "aiohttp": "HTTP requests, except for the health",
    "azure": "clients",
    "cryptography": "certificates and bearer tokens",
    "email": "HTTP clients: the commands that ask a running broker",
    "jwt": "bearer tokens",
    "opentelemetry": "the setting tracing",
    "prometheus_client": "metrics",
    "pydantic": "requests to the control API",
    "yaml": "config files in YAML",
    "zipfile": "resources in archives",
    "xml": "administration",
}
"""Packages, and what needs them."""
_IMPORTED = re.compile(r"^import time:.*\| +([\w.]+)$", re.MULTILINE)


def loaded(broker: BrokerProcess) -> set[str]:
    """The top-level packages that the process has imported so far."""
    return {name.partition(".")[0] for name in _IMPORTED.findall(broker.log_text())}


def test_a_broker_that_is_ready_has_loaded_only_what_it_needs():
    """A health check needs no more; the first administration request loads the HTTP application."""
    with BrokerProcess(environment={"PYTHONPROFILEIMPORTTIME": "1"}) as broker:
        assert broker.is_healthy()
        assert {"asyncio", "uvloop", "structlog"} <= loaded(broker)
        assert set() == loaded(broker) & NOT_AT_START.keys()
        status, _ = broker.request("GET", "/$Resources/queues?api-version=2021-05")
        assert http.HTTPStatus.OK == status
        assert {"aiohttp", "xml"} <= loaded(broker)
        assert broker.is_healthy()


def test_the_first_start_creates_its_certificate_in_another_process(tmp_path: Path):
    """The library that does it would stay in the broker's memory."""
    with BrokerProcess(environment={"XDG_DATA_HOME": str(tmp_path)}) as broker:
        assert (tmp_path / "peeklock" / "tls" / "ca.pem").is_file()
        assert "cryptography" not in Path(f"/proc/{broker.process_id}/maps").read_text()
        assert "uvloop" in Path(f"/proc/{broker.process_id}/maps").read_text()


def test_many_first_requests_at_once_are_all_answered():
    """Those that come while the HTTP application is being loaded wait for it."""
    answers: list[int] = []

    def ask(broker: BrokerProcess) -> None:
        answers.append(broker.request("GET", "/$Resources/queues?api-version=2021-05")[0])

    with BrokerProcess() as broker:
        clients = [threading.Thread(target=ask, args=(broker,)) for _ in range(20)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert [http.HTTPStatus.OK] * 20 == answers
