"""Requests that a page of another web site makes are refused, also if its name resolves to this machine."""

from __future__ import annotations

import json

import pytest

from protocol.http.request_origin import host_name, is_local_name
from tests.http.client import request
from tests.support.server import BrokerProcess

OVERVIEW = "/$peeklock/v1/entities"
NAMES = "console.example.com,proxy.example.org"


@pytest.fixture(scope="module")
def broker():
    arguments = ["--http-names", NAMES]
    with BrokerProcess(config={"queues": {"orders": {}}}, arguments=arguments) as running:
        yield running


@pytest.mark.parametrize(
    ("header", "name", "is_local"),
    [
        ("localhost:5300", "localhost", True),
        ("LOCALHOST", "localhost", True),
        ("team-b.localhost:5300", "team-b.localhost", True),
        ("127.0.0.1:5300", "127.0.0.1", True),
        ("[::1]:5300", "::1", True),
        ("192.168.1.7:80", "192.168.1.7", True),
        ("peeklock:5300", "peeklock", True),
        ("broker.default.svc.cluster.local", "broker.default.svc.cluster.local", True),
        ("host.docker.internal", "host.docker.internal", True),
        ("evil.example:5300", "evil.example", False),
        ("localhost.evil.example", "localhost.evil.example", False),
        ("127.0.0.1.evil.example", "127.0.0.1.evil.example", False),
        ("evil.example.", "evil.example", False),
    ],
)
def test_only_names_that_nobody_can_register_are_local(header, name, is_local):
    assert (name, is_local) == (host_name(header), is_local_name(host_name(header)))


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        ("localhost", None, None),
        ("localhost", "http://localhost", None),
        ("localhost", "http://localhost:3000", "foreign_origin"),
        ("localhost", "https://evil.example", "foreign_origin"),
        ("localhost", "null", "foreign_origin"),
        ("localhost", "http://[", "foreign_origin"),
        ("localhost", "http://[evil.example]", "foreign_origin"),
        ("evil.example", None, "unknown_host"),
        ("evil.example", "http://evil.example", "unknown_host"),
        ("console.example.com", None, None),
        ("console.example.com", "https://console.example.com", None),
        # A reverse proxy that names its own host to the broker.
        ("localhost", "https://proxy.example.org", None),
        ("anything.servicebus.windows.net", None, None),
    ],
)
def test_the_control_api_checks_host_and_origin(broker, host, origin, code):
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    answer = request(broker.http_port, "GET", OVERVIEW, headers=headers)
    if code is None:
        assert 200 == answer.status
    else:
        error = json.loads(answer.body)["error"]
        assert (403, code) == (answer.status, error["code"])
        assert error["message"].endswith(".")


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost", None, 200),
        ("localhost", "http://localhost", 200),
        ("console.example.com", None, 200),
        ("evil.example", None, 403),
        ("localhost", "https://evil.example", 403),
    ],
)
def test_the_topology_checks_host_and_origin(broker, host, origin, status):
    """It contains keys, and a browser sends no Origin with a GET of the same site."""
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    answer = request(broker.http_port, "GET", "/$peeklock/topology", headers=headers)
    assert status == answer.status


def test_an_unknown_host_is_told_the_setting(broker):
    answer = request(broker.http_port, "GET", OVERVIEW, headers={"Host": "evil.example"})
    assert "http_names" in json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/orders/messages"),
        ("DELETE", "/orders/messages/head"),
        ("PUT", "/other?api-version=2021-05"),
        ("DELETE", "/orders?api-version=2021-05"),
        ("POST", "/$peeklock/clock"),
    ],
)
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
@pytest.mark.parametrize("origin", ["http://evil.example", "http://["])
def test_other_requests_that_change_something_are_refused_to_pages_of_other_sites(
    broker, method, path, host, origin
):
    headers = {"Host": host, "Origin": origin}
    assert 403 == request(broker.http_port, method, path, b"x", headers=headers).status


def test_a_client_that_is_no_browser_may_use_any_host_name(broker):
    """SDKs send no Origin, and may reach the broker by a name of which it knows nothing."""
    headers = {"Host": "bus.example.net"}
    assert (
        201 == request(broker.http_port, "POST", "/orders/messages", b"x", headers=headers).status
    )


def test_a_star_allows_every_host():
    with BrokerProcess(arguments=["--http-names", "*"]) as open_broker:
        headers = {"Host": "any.example"}
        assert 200 == request(open_broker.http_port, "GET", OVERVIEW, headers=headers).status


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "AMQPWSB10",
}


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost", None, 101),
        ("bus.example.net", None, 101),
        ("localhost", "http://localhost:3000", 101),
        ("localhost", "https://app.test", 101),
        ("localhost", "http://127.0.0.1:3000", 101),
        ("localhost", "http://[::1]:3000", 101),
        ("localhost", "http://192.168.1.7:3000", 101),
        ("203.0.112.7:5300", "http://203.0.112.7:3000", 101),
        ("localhost", "https://console.example.com", 101),
        ("localhost", "https://evil.example", 403),
        ("evil.example", "https://evil.example", 403),
        ("localhost", "https://localhost.evil.example", 403),
        ("localhost", "http://203.0.112.7", 403),
        ("localhost", "chrome-extension://abcdef", 403),
        ("localhost", "null", 403),
        ("localhost", "", 403),
        ("localhost", "http://[", 403),
    ],
)
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_page_of_another_site_cannot_use_amqp_over_websocket(broker, host, origin, status, slash):
    """The JavaScript SDK runs in pages of a developer's own server, which has another port."""
    headers = UPGRADE | {"Host": host} | ({} if origin is None else {"Origin": origin})
    path = "/$servicebus/websocket" + slash
    assert status == request(broker.http_port, "GET", path, headers=headers).status
