"""`peeklock tls`: how a developer makes clients trust the broker."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import certifi
import pytest

from broker.app.cli.command_line import main
from tests.support.server import BrokerProcess

CLIENTS = [".NET", "Python", "JavaScript", "Java", "Go", "curl", "Debian", "macOS", "Windows"]


def test_the_authority_is_there_when_its_path_is_printed(tmp_path, capsys):
    """Made on the spot, so that it can be trusted before the first start."""
    assert 0 == main(["tls", "--tls-folder", str(tmp_path / "new"), "--path"])
    printed = Path(capsys.readouterr().out.strip())
    assert tmp_path / "new" / "ca.pem" == printed
    ssl.create_default_context(cafile=str(printed))


def test_it_stays_the_same(tmp_path, capsys):
    """A developer has to trust the authority only once."""
    main(["tls", "--tls-folder", str(tmp_path), "--path"])
    before = (tmp_path / "ca.pem").read_bytes()
    main(["tls", "--tls-folder", str(tmp_path)])
    assert before == (tmp_path / "ca.pem").read_bytes()


@pytest.mark.parametrize("client", CLIENTS)
def test_the_output_has_instructions_for_every_client(tmp_path, capsys, client):
    """With the path of the file, ready to paste."""
    main(["tls", "--tls-folder", str(tmp_path)])
    told = capsys.readouterr().out
    place = told.index(f"  {client}")
    assert str(tmp_path / "ca.pem") in told[place : place + 800]


def test_dotnet_comes_first(tmp_path, capsys):
    """Most users come with it."""
    main(["tls", "--tls-folder", str(tmp_path)])
    told = capsys.readouterr().out
    places = [told.index(f"  {client}  ") for client in CLIENTS[:6]]
    assert sorted(places) == places


def test_a_certificate_of_the_operators_own_is_named(tmp_path, capsys, monkeypatch):
    """Then there is no authority of the broker to trust."""
    certificate = tmp_path / "mine.pem"
    certificate.touch()
    monkeypatch.setenv("PEEKLOCK_TLS_CERTIFICATE", str(certificate))
    assert 0 == main(["tls"])
    assert str(certificate) in capsys.readouterr().out


def test_a_folder_that_cannot_be_created_is_reported(tmp_path, capsys):
    """In words, with an exit code."""
    (tmp_path / "file").touch()
    assert 1 == main(["tls", "--tls-folder", str(tmp_path / "file" / "tls")])
    assert str(tmp_path / "file" / "tls") in capsys.readouterr().err


# --- that it is true of the Python SDK -----------------------------------------------------------

MESSAGING = """
import asyncio, os
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus import ServiceBusClient

options = {
    "custom_endpoint_address": os.environ["MESSAGING_ENDPOINT"],
    "transport_type": TransportType.Amqp,
    "retry_total": 0,
}
if "VERIFY" in os.environ:
    options["connection_verify"] = os.environ["VERIFY"]
string = os.environ["STRING"]


async def asynchronous():
    async with AsyncClient.from_connection_string(string, **options) as client:
        async with client.get_queue_sender("queue.1") as sender:
            await sender.send_messages(ServiceBusMessage("hello"))


def blocking():
    with ServiceBusClient.from_connection_string(string, **options) as client:
        with client.get_queue_sender("queue.1") as sender:
            sender.send_messages(ServiceBusMessage("hello"))


asyncio.run(asynchronous()) if os.environ["KIND"] == "asynchronous" else blocking()
"""

ADMINISTRATION = """
import asyncio, os
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncClient
from azure.servicebus.management import ServiceBusAdministrationClient

options = {"retry_total": 0}
if "VERIFY" in os.environ:
    options["connection_verify"] = os.environ["VERIFY"]
string = os.environ["ADMINISTRATION_STRING"]


async def asynchronous():
    async with AsyncClient.from_connection_string(string, **options) as client:
        await client.get_queue("queue.1")


def blocking():
    with ServiceBusAdministrationClient.from_connection_string(string, **options) as client:
        client.get_queue("queue.1")


asyncio.run(asynchronous()) if os.environ["KIND"] == "asynchronous" else blocking()
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    with BrokerProcess(environment={"PEEKLOCK_TLS_FOLDER": str(folder)}) as process:
        yield process, folder / "ca.pem"


@pytest.mark.parametrize(
    ("program", "kind", "reaching"),
    [
        (MESSAGING, "blocking", {"VERIFY", "CERTIFI"}),
        (MESSAGING, "asynchronous", {"VERIFY", "CERTIFI"}),
        (ADMINISTRATION, "blocking", {"VERIFY", "CERTIFI", "REQUESTS_CA_BUNDLE"}),
        (ADMINISTRATION, "asynchronous", {"VERIFY", "SSL_CERT_FILE"}),
    ],
)
def test_what_reaches_the_python_sdk_is_what_the_guide_says(
    broker, tmp_path, program, kind, reaching
):
    """Each way is tested alone; those that do not work leave the certificate untrusted. `CERTIFI`
    is an authority that was added to the file of certifi."""
    process, authority = broker
    (tmp_path / "certifi.py").write_text(
        "import os, pathlib\n"
        "def where(): return os.environ.get('CERTIFI', os.environ['USUAL'])\n"
        "def contents(): return pathlib.Path(where()).read_text()\n"
    )
    key = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
    given = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    } | {
        "PYTHONPATH": str(tmp_path),
        "USUAL": certifi.where(),
        "KIND": kind,
        "STRING": f"Endpoint=sb://localhost;{key}",
        "ADMINISTRATION_STRING": f"Endpoint=sb://localhost:{process.http_port};{key}",
        "MESSAGING_ENDPOINT": f"sb://localhost:{process.amqp_port}",
    }
    worked = set()
    for variable in ("VERIFY", "CERTIFI", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=given | {variable: str(authority)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if done.returncode == 0:
            worked.add(variable)
        else:
            assert "CERTIFICATE_VERIFY_FAILED" in done.stderr, done.stderr
    assert reaching == worked
