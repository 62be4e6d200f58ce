"""Making, listing and removing fault rules, and what is refused."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from protocol.faults.fault_kinds import AFTER, KINDS, FaultKind, Operation
from tests.control.client import BASE, ControlClient

BUSY = {"kind": "server_busy"}
RULE: dict[str, Any] = {"operation": "send", "action": BUSY}
COMPLETE_ACTIONS: dict[FaultKind, dict[str, Any]] = {
    FaultKind.REFUSE: {"condition": "amqp:not-allowed"},
    FaultKind.DELAY: {"seconds": 1},
}


@pytest.fixture(autouse=True)
def reset(api):
    api.post("/reset")


def test_a_rule_is_answered_as_it_was_made(api):
    made = api.post(
        "/faults",
        name="busy-orders",
        operation="settle",
        entity="orders",
        sub_queue="dead_letter",
        client={"container_id": "worker-*"},
        filter="color = 'red'",
        occurrence={"probability": 0.2, "seed": 7},
        action={"kind": "refuse", "condition": "com.microsoft:server-busy"},
    )
    assert {
        "name": "busy-orders",
        "operation": "settle",
        "entity": "orders",
        "sub_queue": "dead_letter",
        "management_operation": None,
        "client": {"container_id": "worker-*", "key_name": None},
        "filter": "color = 'red'",
        "occurrence": {
            "nth": None,
            "every": None,
            "first": None,
            "probability": 0.2,
            "seed": 7,
        },
        "action": {
            "kind": "refuse",
            "condition": "com.microsoft:server-busy",
            "description": None,
            "seconds": None,
            "when": None,
        },
        "matched": 0,
        "hits": 0,
    } == made
    assert made == api.get("/faults/busy-orders")
    assert {"faults": [made]} == api.get("/faults")


def test_rules_are_removed(api):
    names = [api.post("/faults", **RULE)["name"] for _ in range(3)]
    assert 3 == len(set(names))
    assert names == [one["name"] for one in api.get("/faults")["faults"]]
    removed = api.request("DELETE", f"/faults/{names[1]}")
    assert (200, names[1]) == (removed.status, removed.content["name"])
    assert [names[0], names[2]] == [one["name"] for one in api.get("/faults")["faults"]]
    assert (200, {"count": 2}) == api.request("DELETE", "/faults")
    assert (200, {"count": 0}) == api.request("DELETE", "/faults")


def test_a_reset_removes_the_rules_of_its_namespace(api):
    other = ControlClient(api.port, "team-b")
    other.post("/reset")
    api.post("/faults", **RULE)
    kept = other.post("/faults", **RULE)
    api.post("/reset")
    assert {"faults": []} == api.get("/faults")
    assert {"faults": [kept]} == other.get("/faults")
    other.post("/reset")


def test_a_name_is_taken_once(api):
    api.post("/faults", name="one", **RULE)
    answer = api.refused("POST", "/faults", {"name": "one", **RULE})
    assert (409, "fault_already_exists", "name") == (
        answer.status,
        answer.error["code"],
        answer.error["field"],
    )
    ControlClient(api.port, "team-b").post("/faults", name="one", **RULE)
    ControlClient(api.port, "team-b").request("DELETE", "/faults")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_rule_that_does_not_exist(api, method):
    answer = api.refused(method, "/faults/missing")
    assert (404, "fault_not_found", "fault") == (
        answer.status,
        answer.error["code"],
        answer.error["field"],
    )


def test_rules_are_bounded(api):
    connection = http.client.HTTPConnection("127.0.0.1", api.port)
    for _ in range(1_000):
        connection.request("POST", f"{BASE}/faults", json.dumps(RULE))
        connection.getresponse().read()
    connection.close()
    answer = api.refused("POST", "/faults", RULE)
    assert (403, "quota_exceeded") == (answer.status, answer.error["code"])
    assert {"count": 1_000} == api.request("DELETE", "/faults").content


@pytest.mark.parametrize("operation", Operation)
def test_an_operation_can_have_the_kinds_of_the_table(api, operation):
    for kind in FaultKind:
        body = {"operation": operation, "action": {"kind": kind, **COMPLETE_ACTIONS.get(kind, {})}}
        if kind in KINDS[operation]:
            api.post("/faults", **body)
            continue
        answer = api.refused("POST", "/faults", body)
        assert (400, "action.kind") == (answer.status, answer.error["field"])
        assert ", ".join(sorted(KINDS[operation])) in answer.error["message"]
    made = [one["action"]["kind"] for one in api.get("/faults")["faults"]]
    assert sorted(KINDS[operation]) == sorted(made)


@pytest.mark.parametrize("kind", AFTER)
def test_a_fault_can_come_after_the_effect_where_there_is_one(api, kind):
    for operation in Operation:
        body = {"operation": operation, "action": {"kind": kind, "when": "after"}}
        if operation in AFTER[kind]:
            api.post("/faults", **body)
        elif kind in KINDS[operation]:
            assert "action.when" == api.refused("POST", "/faults", body).error["field"]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "operation", "required"),
        ({"operation": "send"}, "action", "required"),
        ({**RULE, "operation": "receive"}, "operation", "'deliver'"),
        ({**RULE, "entities": "orders"}, "entities", "known are name, operation"),
        ({**RULE, "name": ""}, "name", "1 character"),
        ({**RULE, "name": 7}, "name", "string"),
        ({**RULE, "entity": ""}, "entity", "1 character"),
        ({**RULE, "sub_queue": "dlq"}, "sub_queue", "'dead_letter'"),
        ({**RULE, "sub_queue": "dead_letter"}, "sub_queue", "it can with attach, deliver"),
        ({**RULE, "management_operation": "renew-lock"}, "management_operation", "management."),
        (
            {"operation": "management", "management_operation": "peek", "action": BUSY},
            "management_operation",
            "peek-message",
        ),
        ({**RULE, "client": "worker"}, "client", "object"),
        ({**RULE, "client": {"container": "worker"}}, "client.container", "no field"),
        (
            {"operation": "connect", "client": {}, "action": {"kind": "no_answer"}},
            "client",
            "it can with",
        ),
        (
            {"operation": "administration", "client": {"container_id": "x"}, "action": BUSY},
            "client.container_id",
            "administration",
        ),
        ({**RULE, "filter": "color ="}, "filter", "line 1, column 8"),
        ({**RULE, "filter": "sys.Nothing = 1"}, "filter", "column 1"),
        (
            {"operation": "renew", "filter": "color = 'red'", "action": BUSY},
            "filter",
            "it can with deliver, send, settle",
        ),
        ({**RULE, "occurrence": {}}, "occurrence", "one of nth, every"),
        ({**RULE, "occurrence": {"nth": 1, "every": 2}}, "occurrence", "one of nth, every"),
        ({**RULE, "occurrence": {"nth": 0}}, "occurrence.nth", "greater than or equal to 1"),
        ({**RULE, "occurrence": {"nth": "1"}}, "occurrence.nth", "integer"),
        ({**RULE, "occurrence": {"probability": 1.1}}, "occurrence.probability", "less than"),
        ({**RULE, "occurrence": {"nth": 1, "seed": 1}}, "occurrence.seed", "probability"),
        ({**RULE, "action": {"kind": "explode"}}, "action.kind", "'refuse'"),
        ({**RULE, "action": {"kind": "refuse"}}, "action.condition", "required"),
        ({**RULE, "action": {"kind": "refuse", "condition": "busy"}}, "action.condition", "known"),
        ({**RULE, "action": {"kind": "delay"}}, "action.seconds", "required"),
        ({**RULE, "action": {"kind": "delay", "seconds": 0}}, "action.seconds", "greater than"),
        ({**RULE, "action": {"kind": "delay", "seconds": 1e9}}, "action.seconds", "3600"),
        ({**RULE, "action": {**BUSY, "seconds": 1}}, "action.seconds", "delay"),
        ({**RULE, "action": {**BUSY, "when": "before"}}, "action.when", "no_answer"),
        ({**RULE, "action": {"kind": "no_answer", "when": "later"}}, "action.when", "'before'"),
        ({**RULE, "action": {**BUSY, "code": 1}}, "action.code", "no field"),
        (
            {
                "operation": "attach",
                "entity": "orders/$deadletterqueue",
                "sub_queue": "dead_letter",
                "action": BUSY,
            },
            "sub_queue",
            "already",
        ),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(api, body, field, words):
    answer = api.refused("POST", "/faults", body)
    assert (400, field) == (answer.status, answer.error["field"])
    assert words in answer.error["message"]
    assert {"faults": []} == api.get("/faults")


def test_an_entity_must_exist_unless_the_administration_may_create_it(api):
    answer = api.refused("POST", "/faults", {**RULE, "entity": "missing"})
    assert (404, "entity") == (answer.status, answer.error["field"])
    assert {"faults": []} == api.get("/faults")
    api.post("/faults", operation="administration", entity="missing", action=BUSY)


def test_faults_of_connect_belong_to_the_default_namespace(api):
    body = {"operation": "connect", "action": {"kind": "drop_connection"}}
    answer = ControlClient(api.port, "team-b").refused("POST", "/faults", body)
    assert (400, "operation") == (answer.status, answer.error["field"])
    api.post("/faults", **body)
