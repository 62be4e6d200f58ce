"""Certificates, the harness, and the stock administration clients on it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
import trustme
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.http.harness import HOST, HttpHarness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def authority_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="session")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def harness(server_tls: ssl.SSLContext) -> Iterator[HttpHarness]:
    with HttpHarness(server_tls) as harness:
        yield harness


@pytest.fixture(scope="module")
def admin(harness: HttpHarness, authority_file: Path) -> Iterator[ServiceBusAdministrationClient]:
    """Python's own administration client, unmodified, over TLS."""
    with ServiceBusAdministrationClient.from_connection_string(
        harness.connection_string, connection_verify=str(authority_file), retry_total=0
    ) as client:
        yield client
