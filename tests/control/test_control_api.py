"""Routing, authorization and the one form of errors of the control API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.identity import sas
from tests.control.client import BASE, ControlClient
from tests.http.client import request
from tests.support.server import HOST, BrokerProcess, root_token


def test_paths_without_a_namespace_concern_the_default_namespace(api, broker):
    assert api.get("/entities") == ControlClient(broker.http_port, "sbemulatorns").get("/entities")
    assert ["orders"] == [
        one["path"]
        for one in ControlClient(broker.http_port, "team-b").get("/entities")["entities"]
    ]


def test_the_default_namespace_comes_first(api):
    listed = api.get("/namespaces")["namespaces"]
    assert [("sbemulatorns", True), ("team-b", False)] == [
        (one["name"], one["is_default"]) for one in listed if one["is_declared"]
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "field"),
    [
        ("GET", "/nothing", None, 404, "no_such_resource", None),
        ("GET", "", None, 404, "no_such_resource", None),
        ("DELETE", "/entities", None, 405, "method_not_allowed", None),
        ("GET", "/namespaces/nobody/entities", None, 404, "namespace_not_found", "namespace"),
        ("GET", "/entities?limit=many", None, 400, "invalid_field", "limit"),
        ("GET", "/entities?limit=0", None, 400, "invalid_field", "limit"),
        ("GET", "/entities?limit=1&limit=2", None, 400, "invalid_field", "limit"),
        ("GET", "/entities?limits=1", None, 400, "unknown_field", "limits"),
        ("GET", "/entities?kind=queues", None, 400, "invalid_field", "kind"),
        ("GET", "/entity", None, 400, "missing_field", "entity"),
        ("GET", "/entity?entity=nobody", None, 404, "entity_not_found", "entity"),
        ("POST", "/clock/advance", b"{", 400, "invalid_json", None),
        ("POST", "/clock/advance", b"\xff", 400, "invalid_json", None),
        ("POST", "/clock/advance", b"[" * 100_000, 400, "invalid_json", None),
        ("POST", "/clock/advance", [], 400, "invalid_request", None),
        ("POST", "/clock/advance", {"second": 1}, 400, "unknown_field", "second"),
        ("POST", "/clock/advance", {"seconds": "1"}, 400, "invalid_field", "seconds"),
        ("POST", "/clock/advance", {"seconds": -1}, 400, "invalid_field", "seconds"),
        ("POST", "/clock/set", {}, 400, "missing_field", "time"),
        ("POST", "/clock/set", {"time": "tomorrow"}, 400, "invalid_field", "time"),
        ("POST", "/clock/set", {"time": "2020-01-01T00:00:00Z"}, 400, "invalid_field", "time"),
        ("POST", "/clock/set", {"time": "9020-01-01T00:00:00Z"}, 400, "invalid_field", "time"),
    ],
)
def test_a_wrong_request_is_refused_with_a_sentence_a_code_and_the_field(
    api, method, path, body, status, code, field
):
    before = api.get("/clock")["ahead_ms"]
    answer = api.refused(method, path, body)
    assert (status, code, field) == (answer.status, answer.error["code"], answer.error["field"])
    assert before == api.get("/clock")["ahead_ms"]


def test_a_page_of_another_site_is_refused(api):
    """A browser sends Origin with every request that a page of another site makes."""
    foreign = api.request("POST", "/clock/advance", {}, {"Origin": "https://elsewhere.example"})
    assert (403, "foreign_origin") == (foreign.status, foreign.error["code"])
    own = api.request("POST", "/clock/advance", {}, {"Origin": f"http://127.0.0.1:{api.port}"})
    assert 200 == own.status


def test_an_unknown_path_of_the_api_is_no_entity(api, broker):
    """Otherwise the administration API would answer with XML."""
    answer = request(broker.http_port, "GET", f"{BASE}/x?api-version=2021-05")
    assert (404, "no_such_resource") == (answer.status, json.loads(answer.body)["error"]["code"])


# --- authorization -------------------------------------------------------------------------------

STRICT: dict[str, Any] = {
    "queues": {"orders": {}},
    "authorization_rules": {
        "reader": {
            "rights": ["Listen"],
            "primary_key": "bGlzdGVuLWtleS1saXN0ZW4ta2V5LWxpc3Rlbi1rZXk=",
        }
    },
    "namespaces": {
        "team-b": {
            "queues": {"orders": {}},
            "authorization_rules": {
                "owner": {
                    "rights": ["Manage", "Send", "Listen"],
                    "primary_key": "b3duZXIta2V5LW93bmVyLWtleS1vd25lci1rZXktMDE=",
                }
            },
        }
    },
}


def token(name: str, key: str) -> str:
    return sas.make(f"sb://{HOST}/", name, key, 1 << 40)


def test_in_strict_authorization_the_api_is_off_unless_it_is_set():
    with BrokerProcess(config=STRICT, environment={"PEEKLOCK_AUTHORIZATION": "strict"}) as broker:
        answer = ControlClient(broker.http_port, token=root_token()).refused("GET", "/entities")
        assert (404, "control_api_off") == (answer.status, answer.error["code"])


def test_the_api_can_be_switched_off():
    with BrokerProcess(environment={"PEEKLOCK_CONTROL_API": "off"}) as broker:
        assert 404 == ControlClient(broker.http_port).refused("GET", "/entities").status


@pytest.fixture(scope="module")
def strict():
    environment = {"PEEKLOCK_AUTHORIZATION": "strict", "PEEKLOCK_CONTROL_API": "on"}
    with BrokerProcess(config=STRICT, environment=environment) as broker:
        yield broker


def test_in_strict_authorization_every_request_needs_manage(strict):
    rules = STRICT["authorization_rules"]
    listen = token("reader", rules["reader"]["primary_key"])
    for path in ("/entities", "/clock", "/namespaces", "/openapi.json"):
        for credential in (None, listen, "SharedAccessSignature sr=x&sig=x&se=1&skn=x"):
            answer = ControlClient(strict.http_port, token=credential).refused("GET", path)
            assert (401, "unauthorized") == (answer.status, answer.error["code"])
        ControlClient(strict.http_port, token=root_token()).get(path)


def test_in_strict_authorization_the_key_of_a_namespace_is_valid_there_only(strict):
    rules = STRICT["namespaces"]["team-b"]["authorization_rules"]
    owner = token("owner", rules["owner"]["primary_key"])
    port = strict.http_port
    ControlClient(port, "team-b", owner).get("/entities")
    assert 401 == ControlClient(port, "sbemulatorns", owner).refused("GET", "/entities").status
    assert 401 == ControlClient(port, token=owner).refused("GET", "/clock").status
    assert 401 == ControlClient(port, token=owner).refused("GET", "/namespaces").status
    root = root_token()
    ControlClient(port, "team-b", root).get("/entities")
    ControlClient(port, "sbemulatorns", root).get("/entities")
