"""The managed identity endpoint: `DefaultAzureCredential` works unchanged, and clients without the
secret get no token."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.contract.errors import ArgumentError, Unauthorized
from protocol.identity import ALL_CLAIMS, TokenRefused
from protocol.identity.managed_identity import (
    LIFETIME_S,
    ManagedIdentity,
    TokenRequest,
    is_for_service_bus,
)
from tests.support.memory_broker import NOW_MS, MemoryBroker
from tests.support.server import HOST, ROOT, BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

RESOURCE = "https://servicebus.azure.net/"
KEY = "a key of the operator's own"
SECRET = ManagedIdentity(KEY).secret
STRICT: dict[str, Any] = {"authorization": "strict", "shared_access_key": KEY}

# --- tokens --------------------------------------------------------------------------------------


def test_a_token_of_ours_grants_everything_for_a_day():
    """As the key does that its own is derived from."""
    identity = ManagedIdentity(KEY)
    token = identity.token(RESOURCE, NOW_MS)
    assert identity.issued(token)
    grant = identity.verify(token, NOW_MS)
    assert (ALL_CLAIMS, NOW_MS + LIFETIME_S * 1000) == (grant.claims, grant.expires_at_ms)
    with pytest.raises(TokenRefused, match="ExpiredToken"):
        identity.verify(token, NOW_MS + LIFETIME_S * 1000)


def test_another_key_takes_back_what_was_issued():
    """And a token can be neither changed nor made by others."""
    token = ManagedIdentity(KEY).token(RESOURCE, NOW_MS)
    with pytest.raises(TokenRefused, match="InvalidSignature"):
        ManagedIdentity("another").verify(token, NOW_MS)
    header, claims, signature = token.split(".")
    changed = json.loads(base64.urlsafe_b64decode(claims + "=="))
    changed["exp"] += 1
    forged = base64.urlsafe_b64encode(json.dumps(changed).encode()).decode().rstrip("=")
    with pytest.raises(TokenRefused):
        ManagedIdentity(KEY).verify(f"{header}.{forged}.{signature}", NOW_MS)
    unsigned = base64.urlsafe_b64encode(
        b'{"alg":"none","kid":"peeklock-managed-identity"}'
    ).decode()
    with pytest.raises(TokenRefused):
        ManagedIdentity(KEY).verify(f"{unsigned}.{claims}.", NOW_MS)


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "W10.W10.", "e30.e30.e30", "\N{SNOWMAN}.a.b"])
def test_what_is_no_token_of_ours_is_left_to_others(token):
    """Tokens of any other form are not verified here."""
    assert not ManagedIdentity(KEY).issued(token)


@pytest.mark.parametrize(
    ("resource", "is_ours"),
    [
        ("https://servicebus.azure.net", True),
        ("https://servicebus.azure.net/", True),
        ("https://SERVICEBUS.azure.net//", True),
        ("https://my-namespace.servicebus.windows.net", True),
        ("https://storage.azure.com/", False),
        ("https://servicebus.azure.net.evil.example", False),
        ("servicebus", False),
        ("https://[servicebus.azure.net", False),
        ("", False),
    ],
)
def test_tokens_are_for_service_bus_alone(resource, is_ours):
    """For others the next credential of the chain is asked, such as the one of the Azure CLI."""
    assert is_ours == is_for_service_bus(resource)


# --- who gets one --------------------------------------------------------------------------------


def ask(broker: MemoryBroker, secret: str | None = SECRET, *, is_local: bool = True) -> str:
    return broker.access.identity_token(TokenRequest(secret, RESOURCE, is_local))


@pytest.mark.parametrize("secret", [None, "", "SAS_KEY_VALUE", KEY, SECRET[:-1], SECRET.upper()])
def test_a_client_without_the_secret_gets_no_token(secret):
    """Wherever they ask from."""
    with pytest.raises(Unauthorized, match="X-IDENTITY-HEADER"):
        ask(MemoryBroker(**STRICT), secret)


def test_in_strict_authorization_the_secret_is_good_on_this_machine_only():
    """Unless the operator says otherwise; where every token passes anyway, it is good everywhere."""
    assert ask(MemoryBroker(**STRICT))
    with pytest.raises(Unauthorized, match="identity_clients=any"):
        ask(MemoryBroker(**STRICT), is_local=False)
    assert ask(MemoryBroker(**STRICT, identity_clients="any"), is_local=False)
    assert ask(MemoryBroker(shared_access_key=KEY), is_local=False)
    with pytest.raises(Unauthorized, match="identity_clients=any"):
        ask(MemoryBroker(shared_access_key=KEY, identity_clients="loopback"), is_local=False)
    assert not MemoryBroker(identity_clients="none").access.issues_identity_tokens


@pytest.mark.parametrize("resource", [None, "", "https://vault.azure.net"])
def test_a_token_must_be_asked_for_service_bus(resource):
    """The sentence says for what."""
    with pytest.raises(ArgumentError, match="servicebus"):
        MemoryBroker(**STRICT).access.identity_token(TokenRequest(SECRET, resource, True))


def test_strict_authorization_takes_the_token_over_amqp_and_http():
    """And nothing that only looks like one."""
    broker = MemoryBroker("queues: {q: }", **STRICT)
    token = ask(broker)
    client = broker.connect()
    assert 202 == client.put_token("sb://localhost/q", token)[0]
    assert client.attach_sender("q") is None
    assert client.attach_receiver("q") is None
    assert "sbemulatorns" == broker.access.authorize_http(f"Bearer {token}", "q", "Manage")
    forged = ManagedIdentity("SAS_KEY_VALUE").token(RESOURCE, NOW_MS)
    status, text = broker.connect().put_token("sb://localhost/q", forged)
    assert (401, True) == (status, "InvalidSignature" in text)
    with pytest.raises(TokenRefused):
        broker.access.authorize_http(f"Bearer {forged}", "q", "Listen")


# --- over HTTP -----------------------------------------------------------------------------------


def get(broker: BrokerProcess, query: str = f"resource={RESOURCE}", **headers: str):
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=10)
    try:
        path = f"/msi/token?api-version=2019-08-01&{query}"
        connection.request(
            "GET", path, headers={n.replace("_", "-"): v for n, v in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def strict_broker():
    environment = {"PEEKLOCK_AUTHORIZATION": "strict", "PEEKLOCK_SHARED_ACCESS_KEY": KEY}
    with BrokerProcess(environment=environment) as broker:
        yield broker


def test_the_answer_is_that_of_app_service(strict_broker):
    """Every identity library reads these names."""
    status, text = get(strict_broker, X_IDENTITY_HEADER=SECRET)
    assert 200 == status
    content = json.loads(text)
    assert (RESOURCE, "Bearer") == (content["resource"], content["token_type"])
    assert ManagedIdentity(KEY).issued(content["access_token"])
    assert abs(int(content["expires_on"]) - time.time() - LIFETIME_S) < 60


@pytest.mark.parametrize(
    ("status", "query", "headers"),
    [
        (401, f"resource={RESOURCE}", {}),
        (401, f"resource={RESOURCE}", {"X_IDENTITY_HEADER": "wrong"}),
        (401, f"resource={RESOURCE}", {"X_IDENTITY_HEADER": SECRET, "X_Forwarded_For": "10.0.0.1"}),
        (400, "", {"X_IDENTITY_HEADER": SECRET}),
        (400, "resource=https://storage.azure.com", {"X_IDENTITY_HEADER": SECRET}),
    ],
)
def test_refusals_are_json(strict_broker, status, query, headers):
    """Without a token in them, and without the secret."""
    found, text = get(strict_broker, query, **headers)
    content = json.loads(text)
    assert (status, status) == (found, content["statusCode"])
    assert content["message"]
    assert "access_token" not in text
    assert SECRET not in text


def test_a_secret_that_is_no_text_is_refused(strict_broker):
    """With any bytes."""
    with socket.create_connection((HOST, strict_broker.http_port), timeout=10) as connection:
        connection.sendall(
            f"GET /msi/token?resource={RESOURCE} HTTP/1.1\r\nHost: localhost\r\n".encode()
            + b"X-IDENTITY-HEADER: \xff\xfe\r\nConnection: close\r\n\r\n"
        )
        assert b" 401 " in connection.recv(4096).partition(b"\r\n")[0]


def test_neither_secret_nor_token_is_in_the_log(strict_broker):
    """Of requests that were granted as of those that were not."""
    _, text = get(strict_broker, X_IDENTITY_HEADER=SECRET)
    get(strict_broker, "resource=x", X_IDENTITY_HEADER=SECRET)
    log = strict_broker.log_text()
    assert SECRET not in log
    assert json.loads(text)["access_token"] not in log


def test_a_queue_may_have_that_path():
    """Nothing is taken from users."""
    with BrokerProcess(config={"queues": {"msi/token": None}}) as broker:
        _, text = get(broker, "")
        assert "<QueueDescription" in text


# --- the stock library ---------------------------------------------------------------------------

PROGRAM = """
import os
from azure.identity import DefaultAzureCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

credential = DefaultAzureCredential()
client = ServiceBusClient(
    os.environ["SERVICEBUS_FULLY_QUALIFIED_NAMESPACE"],
    credential,
    custom_endpoint_address="sb://localhost:" + os.environ["TLS_PORT"],
    transport_type=TransportType.Amqp,
    connection_verify=os.environ["SERVICEBUS_CA_FILE"],
)
with client:
    with client.get_queue_sender("queue.1") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
    with client.get_queue_receiver("queue.1") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=10)
        receiver.complete_message(message)
        print(message)
administration = ServiceBusAdministrationClient(
    os.environ["SERVICEBUS_ADMIN_FULLY_QUALIFIED_NAMESPACE"], credential
)
print(administration.get_queue("queue.1").name)
"""


@pytest.mark.parametrize("authorization", ["development", "strict"])
def test_default_azure_credential_sends_receives_and_administers(
    tmp_path: Path, authorization: str
) -> None:
    """Over TLS, with the variables that `peeklock env` prints and no other configuration."""
    given = {
        "PEEKLOCK_AUTHORIZATION": authorization,
        "PEEKLOCK_SHARED_ACCESS_KEY": KEY,
        "PEEKLOCK_TLS_FOLDER": str(tmp_path / "tls"),
    }
    with BrokerProcess(environment=given) as broker:
        ports = {
            "PEEKLOCK_AMQP_PORT": str(broker.amqp_port),
            "PEEKLOCK_HTTP_PORT": str(broker.http_port),
        }
        clean = {name: value for name, value in os.environ.items() if name[:6] != "AZURE_"}
        printed = subprocess.run(
            [sys.executable, "-m", "peeklock", "env", "--form", "json"],
            env=clean | given | ports,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        variables = json.loads(printed.stdout) | {"TLS_PORT": str(broker.amqp_port)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=clean | variables,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
    assert (0, "hello\nqueue.1\n") == (done.returncode, done.stdout), done.stderr
