"""Every message that docs/troubleshooting.md quotes is a message that occurs in the situation it names."""

from __future__ import annotations

import html
import http.client
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from broker.app.cli.command_line import main
from broker.core.contract.errors import ServerBusy
from storage.contract import StorageError
from storage.sqlite.store import SqliteStore
from storage.urls import store_for
from tests.conftest import UNAVAILABLE
from tests.packaging.dockerfile import ROOT
from tests.packaging.markdown import Page
from tests.support.postgres_server import LOCKED_ROLE, PASSWORD
from tests.support.server import HOST, BrokerProcess, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.postgres_server import PostgresServer

PAGE = Page(ROOT / "docs" / "troubleshooting.md")
QUOTED = set(re.findall(r"^\| `([^`]+)` \|", PAGE.text, re.MULTILINE))
NOT_REPRODUCED = {
    "certificate signed by unknown authority": "the text of Go's crypto/x509",
    "PKIX path building failed": "the text of Java's certificate path validator",
}
LISTEN_KEY = "bGlzdGVuIG9ubHksIGZvciBhIHRlc3Qgb2YgcGFnZXM="
QUEUE = "plain"
MISSING_CLAIM = "claim(s) are required to perform this operation"
BASIC_TIER = "the namespace is using the 'Basic' tier"
TOPIC = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><TopicDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)
CONFIG = {
    "queues": {
        QUEUE: {
            "authorization_rules": {"listen": {"rights": ["Listen"], "primary_key": LISTEN_KEY}}
        },
        "sessions": {"requires_session": True},
        "disabled": {"status": "Disabled"},
    }
}


# --- the broker does not start -------------------------------------------------------------------


def served(*arguments: str) -> str:
    """What a broker prints that cannot start."""
    command = [sys.executable, "-m", "broker", "serve", "--http-port", "0", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert 1 == done.returncode
    return done.stdout


def port_in_use(_: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return served("--amqp-port", str(taken.getsockname()[1]), "--storage", "memory:")


def foreign_address(_: Path) -> str:
    return served("--amqp-port", "0", "--storage", "memory:", "--host", "192.0.2.1")


def store_in_use(folder: Path) -> str:
    store = SqliteStore(folder / "store.db")
    store.open()
    try:
        return served("--amqp-port", "0", "--storage", f"sqlite:///{store.path}")
    finally:
        store.close()


def damaged_store(folder: Path) -> str:
    (folder / "store.db").write_text("not a database")
    return served("--amqp-port", "0", "--storage", f"sqlite:///{folder / 'store.db'}")


def newer_store(folder: Path) -> str:
    store = SqliteStore(folder / "store.db")
    store.open()
    store.close()
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 9999")
    connection.commit()
    connection.close()
    return served("--amqp-port", "0", "--storage", f"sqlite:///{store.path}")


def store_without_permission(_: Path) -> str:
    return served("--amqp-port", "0", "--storage", "sqlite:////proc/store.db")


def unusable_certificate(folder: Path) -> str:
    (folder / "certificate.pem").write_text("not a certificate")
    return served(
        *("--amqp-port", "0", "--storage", "memory:"),
        *("--tls-certificate", str(folder / "certificate.pem")),
    )


STARTS: dict[str, Callable[[Path], str]] = {
    "Address already in use": port_in_use,
    "Cannot assign requested address": foreign_address,
    "is in use by process": store_in_use,
    "is damaged or no SQLite file": damaged_store,
    "has schema version": newer_store,
    "cannot be written; check the permissions": store_without_permission,
    "is unusable: [SSL]": unusable_certificate,
}


# --- PostgreSQL ----------------------------------------------------------------------------------


def wrong_password(server: PostgresServer) -> str:
    return f"postgresql://{LOCKED_ROLE}:secret@{HOST}:{server.port}/peeklock"


def missing_database(server: PostgresServer) -> str:
    return f"postgresql://peeklock@{HOST}:{server.port}/nothing"


def role_without_rights(server: PostgresServer) -> str:
    return f"postgresql://{LOCKED_ROLE}:{PASSWORD}@{HOST}:{server.port}/peeklock?schema=denied"


def no_password(server: PostgresServer) -> str:
    return f"postgresql://{LOCKED_ROLE}@{HOST}:{server.port}/peeklock?passfile=/dev/null"


def foreign_schema(server: PostgresServer) -> str:
    url = server.url()
    with closing(server.connect()) as administrator:
        schema = url.partition("schema=")[2]
        administrator.execute(f"CREATE SCHEMA {schema} AUTHORIZATION peeklock")
        administrator.execute(f"CREATE TABLE {schema}.invoices (id int)")
    return url


def newer_schema(server: PostgresServer) -> str:
    url = server.url()
    store_for(url).open()
    with closing(server.connect()) as administrator:
        administrator.execute(
            f"UPDATE {url.partition('schema=')[2]}.peeklock_version SET version = 99"
        )
    return url


TLS_MESSAGES = {
    "has a certificate that is not trusted",
    "has a certificate for another host name",
    "needs TLS",
}
"""Shown by `tests/storage/postgres/test_protected_databases.py`, which has a server with certificates."""

DATABASES: dict[str, Callable[[PostgresServer], str]] = {
    "needs a password": no_password,
    "refuses the password": wrong_password,
    "create it with createdb": missing_database,
    "AUTHORIZATION": role_without_rights,
    "belongs to another program": foreign_schema,
    "use a newer broker or another schema": newer_schema,
}


@pytest.mark.parametrize("message", DATABASES)
def test_a_database_that_cannot_be_used_is_explained(message, postgres_server):
    """Exit code 1, one line in the log with the message, no traceback, no password."""
    said = served("--amqp-port", "0", "--storage", DATABASES[message](postgres_server))
    assert message in said
    assert "Traceback" not in said
    assert "secret" not in said
    assert PASSWORD not in said.partition("AUTHORIZATION")[0]


def test_a_missing_driver_is_explained(monkeypatch):
    """As in an environment without the extra."""
    monkeypatch.setitem(sys.modules, "storage.postgres.store", None)
    with pytest.raises(StorageError, match="needs the package psycopg"):
        store_for("postgresql://host/database")


STORAGE_WAIT = "the setting storage_wait"


def test_a_database_that_does_not_come_is_explained():
    """The broker waits for it, and then says for how long it did."""
    (port,) = free_ports(1)
    url = f"postgresql://nobody@127.0.0.1:{port}/nothing"
    assert STORAGE_WAIT in served("--amqp-port", "0", "--storage", url, "--storage-wait", "0s")


@pytest.mark.parametrize("message", STARTS)
def test_a_broker_that_cannot_start_says_why(message, tmp_path):
    """Exit code 1, and the message in the log."""
    assert message in STARTS[message](tmp_path)


MISTAKES = {
    "there is no such property": "queues: {orders: {lock_duratoin: 30s}}",
    "is not allowed; expected": "queues: {orders: {max_delivery_count: 0}}",
    "cannot be read: No such file or directory": None,
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_wrong_config_file_is_reported(message, tmp_path, capsys):
    """Exit code 2, and the message on standard error."""
    path, text = tmp_path / "entities.yaml", MISTAKES[message]
    if text is not None:
        path.write_text(text)
    assert 2 == main(["serve", "--config", str(path)])
    assert message in capsys.readouterr().err


def test_an_unknown_option_is_reported(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--amqp-prot", "0"])
    assert 2 == ended.value.code
    assert "there is no option" in capsys.readouterr().err


# --- clients -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(config=CONFIG) as process:
        yield process


def sent(string: str, queue: str = QUEUE, body: str = "") -> None:
    with (
        ServiceBusClient.from_connection_string(string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage(body))


def received(string: str, queue: str, **options: Any) -> None:
    with (
        ServiceBusClient.from_connection_string(string, retry_total=0) as client,
        client.get_queue_receiver(queue, **options) as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)


def not_listening(broker: BrokerProcess) -> None:
    with socket.socket() as bound:  # no other program can listen there meanwhile
        bound.bind(("127.0.0.1", 0))
        port = str(bound.getsockname()[1])
        sent(broker.connection_string.replace(str(broker.amqp_port), port))


def unknown_host(broker: BrokerProcess) -> None:
    sent(broker.connection_string.replace("127.0.0.1", "no-such-host.invalid"))


def untrusted(broker: BrokerProcess) -> None:
    string = broker.admin_connection_string
    with ServiceBusAdministrationClient.from_connection_string(string, retry_total=0) as client:
        list(client.list_queues())


def wrong_key(broker: BrokerProcess) -> None:
    sent(broker.connection_string.replace("SAS_KEY_VALUE", "wrong"))


def lost_lock(broker: BrokerProcess) -> None:
    sent(broker.connection_string)
    with ExitStack() as stack:
        client = stack.enter_context(
            ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0)
        )
        receiver = stack.enter_context(client.get_queue_receiver(QUEUE))
        (message,) = receiver.receive_messages(max_wait_time=5)
        broker.advance_clock(301_000)
        receiver.complete_message(message)


def no_session(broker: BrokerProcess) -> None:
    received(
        broker.connection_string, "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=3
    )


FAILURES: dict[str, Callable[[BrokerProcess], None]] = {
    "Connection refused": not_listening,
    "Name or service not known": unknown_host,
    "CERTIFICATE_VERIFY_FAILED": untrusted,
    "ServiceBusAuthenticationError": wrong_key,
    "could not be found": lambda broker: sent(broker.connection_string, "missing"),
    "is currently disabled": lambda broker: sent(broker.connection_string, "disabled"),
    "The lock supplied is invalid": lost_lock,
    "exceeds the limit": lambda broker: sent(broker.connection_string, QUEUE, "x" * 2_000_000),
    "The SessionId was not set on a message": lambda broker: sent(
        broker.connection_string, "sessions"
    ),
    "to create a non-sessionful message receiver": lambda broker: received(
        broker.connection_string, "sessions"
    ),
    "A sessionful message receiver cannot be created": lambda broker: received(
        broker.connection_string, QUEUE, session_id="one"
    ),
    "did not complete within the allotted timeout": no_session,
}


@pytest.mark.parametrize("message", FAILURES)
def test_the_python_sdk_reports_the_message(message, broker):
    with pytest.raises((ServiceBusError, AzureError)) as raised:
        FAILURES[message](broker)
    assert message in f"{raised.type.__name__}: {raised.value}"


def test_the_log_gives_the_reason_of_a_wrong_key(broker):
    """The SDK does not show it."""
    with pytest.raises(ServiceBusError):
        wrong_key(broker)
    broker.wait_for_log("InvalidSignature")


def test_strict_authorization_refuses_missing_rights_and_expired_tokens():
    """The clock of the broker decides whether a token has expired."""
    with BrokerProcess(config=CONFIG, arguments=["--authorization", "strict"]) as strict:
        string = strict.connection_string.replace("RootManageSharedAccessKey", "listen")
        with pytest.raises(ServiceBusError) as raised:
            sent(f"{string.replace('SAS_KEY_VALUE', LISTEN_KEY)}EntityPath={QUEUE};")
        assert MISSING_CLAIM in str(raised.value)
        strict.advance_clock(2 * 3_600_000)
        with pytest.raises(ServiceBusError):
            sent(strict.connection_string)
        strict.wait_for_log("ExpiredToken")


def test_a_broker_refuses_what_is_switched_off():
    """This one has no testing API, and its tier has no topics."""
    config: dict[str, Any] = {"queues": {QUEUE: {}}}
    with BrokerProcess(config=config, testing_api=False, arguments=["--tier", "Basic"]) as plain:
        _, body = plain.request("POST", "/$peeklock/clock", {"advance_ms": 1})
        assert "The testing API is off" in body.decode()
        connection = http.client.HTTPConnection("127.0.0.1", plain.http_port, timeout=30)
        connection.request("PUT", "/news?api-version=2021-05", TOPIC)
        assert BASIC_TIER in html.unescape(connection.getresponse().read().decode())
        connection.close()


def test_node_and_curl_report_an_untrusted_certificate(broker):
    address = f"https://localhost:{broker.http_port}/health"
    script = f"require('https').get('{address}').on('error', e => console.log(e.message))"
    commands = [["curl", "--silent", "--show-error", address], ["node", "-e", script]]
    found = [command for command in commands if shutil.which(command[0])]
    if not found:
        pytest.skip(UNAVAILABLE + "neither curl nor node is on the PATH")
    for command in found:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "self-signed certificate in certificate chain" in done.stdout + done.stderr


def test_every_message_on_the_page_is_tested():
    """Also the other way round: the tests have no message that the page does not have."""
    tested = {
        *STARTS,
        *DATABASES,
        *TLS_MESSAGES,
        "needs the package psycopg",
        STORAGE_WAIT,
        *MISTAKES,
        *FAILURES,
        *NOT_REPRODUCED,
        "there is no option",
        "self-signed certificate in certificate chain",
        "ExpiredToken",
        "The testing API is off",
        MISSING_CLAIM,
        BASIC_TIER,
        ServerBusy.condition,
    }
    assert tested == QUOTED
