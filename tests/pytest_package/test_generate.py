"""The client has every operation that the running broker describes, with every field."""

from __future__ import annotations

import inspect
import json
import re

import pytest

from pytest_peeklock import Peeklock, answers
from tests.pytest_package.generate import PACKAGE, Generator


@pytest.fixture(scope="module")
def document(broker_process):
    status, content = broker_process.request("GET", "/$peeklock/v1/openapi.json")
    assert 200 == status
    return json.loads(content)


def test_the_modules_are_those_of_the_document(document):
    """If not: `python -m tests.pytest_package.generate`."""
    for name, text in Generator(document).modules().items():
        assert text == (PACKAGE / name).read_text(), f"{name} is not current"


def test_every_operation_is_a_method_that_takes_its_fields(document):
    """Looked at without the generator: a mistake of it would be in what it wrote, too."""
    operations = {
        operation["operationId"]: (path, operation)
        for path, methods in document["paths"].items()
        for operation in methods.values()
        if not operation["operationId"].endswith("OfNamespace")
    }
    assert len(operations) > 30
    for name, (path, operation) in operations.items():
        method = getattr(Peeklock, re.sub(r"([A-Z])", r"_\1", name).lower())
        taken = {one.rstrip("_") for one in inspect.signature(method).parameters} - {"self"}
        wanted = {one["name"] for one in operation.get("parameters", ())}
        wanted |= set(re.findall(r"\{(\w+)\}", path))
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            body = document["components"]["schemas"][schema.rpartition("/")[2]]
            wanted |= set(body.get("properties", ()))
        assert wanted == taken, name


def test_a_type_has_the_fields_of_its_schema(document):
    message = document["components"]["schemas"]["MessageAnswer"]["properties"]
    assert set(message) == answers.Message.__required_keys__
    condition = document["components"]["schemas"]["Condition"]["properties"]
    assert set(condition) == answers.Condition.__optional_keys__
