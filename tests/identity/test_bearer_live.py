"""Bearer tokens on a whole broker in strict mode: configured, used, and misconfigured."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import jwt
import pytest

from tests.support.memory_broker import NOW_MS, MemoryBroker
from tests.support.server import HOST, ROOT, BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "a secret that is long enough to sign with"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def token(*roles: str, now_s: float, claims: dict[str, str] | None = None) -> str:
    content = {"exp": int(now_s) + 60, "roles": list(roles), **(claims or {})}
    return jwt.encode(content, SECRET, "HS256")


def test_a_bearer_token_opens_what_its_roles_say(keys: Path):
    """On the entity it was put for, until it runs out."""
    broker = MemoryBroker("queues: {orders: , other: }", authorization="strict", jwt_keys=str(keys))
    client = broker.connect()
    given = token("Send", now_s=NOW_MS / 1000)
    assert 202 == client.put_token("sb://localhost/orders", given)[0]
    assert client.attach_sender("orders") is None
    assert "'Listen' claim" in str(client.attach_receiver("orders"))
    assert "sb://localhost/other" in str(client.attach_sender("other"))
    broker.advance(60_000)
    assert "detach" in [frame.name for frame in client.listen()]


def test_issuer_and_audience_are_those_of_the_settings(keys: Path):
    """A token of another issuer is refused."""
    broker = MemoryBroker(
        "queues: {orders: }",
        authorization="strict",
        jwt_keys=str(keys),
        jwt_issuer="us",
        jwt_audience="broker",
    )
    client = broker.connect()
    for claims, expected in (
        ({"iss": "us", "aud": "broker"}, 202),
        ({"iss": "them", "aud": "broker"}, 401),
        ({"iss": "us", "aud": "other"}, 401),
    ):
        given = token("Manage", now_s=NOW_MS / 1000, claims=claims)
        assert expected == client.put_token("sb://localhost/orders", given)[0]


def test_a_bearer_token_administers_over_http(keys: Path):
    """With the role for it."""
    environment = {"PEEKLOCK_AUTHORIZATION": "strict", "PEEKLOCK_JWT_KEYS": str(keys)}
    with BrokerProcess(environment=environment) as broker:
        for role, expected in (("Manage", 200), ("Send", 401)):
            connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=20)
            header = {"Authorization": f"Bearer {token(role, now_s=time.time())}"}
            connection.request("GET", "/$Resources/queues", headers=header)
            assert expected == connection.getresponse().status
            connection.close()


def test_a_file_without_usable_keys_stops_the_start(tmp_path: Path):
    """And is named."""
    path = tmp_path / "keys.json"
    path.write_text("{}")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "peeklock", "serve", "--storage", "memory:"),
            *("--amqp-port", "0", "--http-port", "0"),
            *("--authorization", "strict", "--jwt-keys", str(path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert 1 == done.returncode
    assert f"{path} are unusable: it is no JWK set" in done.stdout
    assert "Traceback" not in done.stderr
