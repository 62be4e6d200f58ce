"""The description of the control API is a valid OpenAPI document, and the running broker does what it says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from protocol.http.control.openapi import describe
from protocol.http.control.route_table import ROUTES

DOCUMENT: dict[str, Any] = json.loads(json.dumps(describe(ROUTES, "0")))
OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
IDS = [operation["operationId"] for _, _, operation in OPERATIONS]
ANSWERED = [
    one
    for one in OPERATIONS
    if all("application/json" in answer["content"] for answer in one[2]["responses"].values())
]
"""Without the streams, whose answers do not end."""
ANSWERED_IDS = [operation["operationId"] for _, _, operation in ANSWERED]
EXAMPLES_PER_OPERATION = 15


@pytest.mark.parametrize("operation", OPERATIONS, ids=IDS)
def test_an_operation_takes_the_sub_queues_that_it_promises(operation, api):
    """GET /entity, /sessions and /rules are about entities, and do not say that a sub-queue may follow."""
    path, method, described = operation
    promised = [
        one["name"]
        for one in described.get("parameters", ())
        if "sub-queue may follow" in one.get("description", "")
    ]
    if method == "get" and promised == ["entity"]:
        query = {"entity": "orders/$deadletterqueue", "sequence_number": "1"}
        needed = {one["name"] for one in described["parameters"] if one.get("required")}
        asked = {name: value for name, value in query.items() if name in needed}
        answer = api.request(method.upper(), path, query=asked)
        assert answer.status == 200 or answer.content["error"]["code"] != "entity_not_found"


def resolved(schema: Any) -> Any:
    """Returns a schema with its references replaced."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/components/schemas/")
            return resolved(DOCUMENT["components"]["schemas"][name])
        return {key: resolved(value) for key, value in schema.items()}
    return [resolved(one) for one in schema] if isinstance(schema, list) else schema


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    """Returns a strategy for the values that a resolved schema allows. It knows what our models use, and fails for
    anything else."""
    known = {"anyOf", "const", "enum", "type", "properties", "required", "additionalProperties"}
    known |= {"items", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"}
    known |= {"title", "description", "default", "examples", "format", "oneOf"}
    assert set(schema) <= known, set(schema) - known
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return st.one_of([values_of(one) for one in schema[several]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    match schema.get("type"):
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -(2**63)), schema.get("maximum", 2**63))
        case "number":
            lowest, highest = schema.get("minimum"), schema.get("maximum")
            return st.floats(lowest, highest, allow_nan=False, allow_infinity=False)
        case "string":
            longest = min(schema.get("maxLength", 30), 30)
            texts = st.text(min_size=schema.get("minLength", 0), max_size=longest)
            return texts | st.sampled_from(schema.get("examples") or ["orders"])
        case "array":
            items = values_of(schema.get("items", {}))
            most = min(schema.get("maxItems", 3), 3)
            return st.lists(items, min_size=schema.get("minItems", 0), max_size=most)
        case "object" if "properties" not in schema and "additionalProperties" in schema:
            any_values = schema["additionalProperties"] is True
            values = ANYTHING if any_values else values_of(schema["additionalProperties"])
            return st.dictionaries(st.text(max_size=10), values, max_size=3)
        case "object":
            properties = {name: values_of(one) for name, one in schema["properties"].items()}
            required = {name: properties[name] for name in schema.get("required", ())}
            optional = {name: one for name, one in properties.items() if name not in required}
            return st.fixed_dictionaries(required, optional=optional)
    return ANYTHING


ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.just([]), st.just({})
)


def test_the_broker_serves_the_description(api):
    served = api.get("/openapi.json")
    del served["paths"]["/openapi.json"], served["info"]["version"]
    expected = json.loads(json.dumps(DOCUMENT))
    del expected["info"]["version"]
    assert expected == served


def test_the_description_is_consistent():
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert len(IDS) == len(set(IDS))
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(resolved(schema))
    for path, _, operation in OPERATIONS:
        declared = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
        assert set(re.findall(r"\{(\w+)\}", path)) == declared
        assert operation["summary"]
        for parameter in operation.get("parameters", ()):
            Draft202012Validator.check_schema(resolved(parameter["schema"]))


def test_no_request_may_have_unknown_fields():
    for _, _, operation in OPERATIONS:
        if "requestBody" in operation:
            schema = resolved(operation["requestBody"]["content"]["application/json"]["schema"])
            assert schema["additionalProperties"] is False


@pytest.mark.parametrize(("path", "method", "operation"), ANSWERED, ids=ANSWERED_IDS)
def test_every_answer_is_as_described(api, path, method, operation):
    """Requests that the description allows, and requests with anything. The broker answers each with a status and
    a body that the description names, and never with an internal error."""
    parameters = operation.get("parameters", [])
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})

    @settings(
        max_examples=EXAMPLES_PER_OPERATION,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
    )
    @given(data=st.data())
    def check(data: Any) -> None:
        query = {}
        for one in parameters:
            if one["in"] == "query" and (one["required"] or data.draw(st.booleans())):
                value = data.draw(values_of(resolved(one["schema"])) | ANYTHING)
                query[one["name"]] = value if isinstance(value, str) else json.dumps(value)
        content = None
        if body:
            content = data.draw(values_of(resolved(body["schema"])) | ANYTHING)
            if isinstance(content, dict):
                content = {**content, **LIMITED.get(operation["operationId"], {})}
        answer = api.request(
            method.upper(), path.replace("{namespace}", "team-b"), content, query=query
        )
        described = operation["responses"]
        assert str(answer.status) in described, answer
        form = "application/json" if not isinstance(answer.content, str) else "application/xml"
        schema = described[str(answer.status)]["content"][form]["schema"]
        Draft202012Validator(resolved(schema)).validate(answer.content)

    check()


LIMITED: dict[str, dict[str, Any]] = {}
"""Fields that keep a request from taking long, or from moving the clock by a century."""
LIMITED["waitForConditions"] = LIMITED["waitForConditionsOfNamespace"] = {"timeout_s": 0.01}
for name in ("advanceClock", "advanceNamespaceClock"):
    LIMITED[name] = {"seconds": 1, "milliseconds": 1}
