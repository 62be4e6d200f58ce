"""The OpenAPI document of the control API, made from the routes and their models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from protocol.http.control.control_routes import BASE
from protocol.http.control.request_models import ErrorAnswer
from protocol.http.control.routes import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import BaseModel

    from protocol.http.control.routes import Route

_REFERENCE = "#/components/schemas/{model}"
_COMMON_REFUSALS = {
    400: "The request is wrong; nothing was changed.",
    401: "The request needs a token that grants Manage.",
    404: "The namespace or the entity does not exist.",
}
_TEXT_SEGMENTS = {"namespace": "the name of a namespace"}
_SEGMENT = re.compile(r"\{(\w+)\}")


def describe(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """Returns the document."""
    models: list[type[BaseModel]] = [ErrorAnswer]
    for route in routes:
        models += [one for one in (route.query, route.body, route.answer) if one is not None]
    unique = list(dict.fromkeys(models))
    references, schemas = models_json_schema(
        [(model, "validation") for model in unique], ref_template=_REFERENCE
    )
    named = {model: references[model, "validation"] for model in unique}
    definitions = schemas["$defs"]
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for number, path in enumerate(route.paths):
            operation = _operation(route, path, named, definitions)
            if number:
                operation["operationId"] += "OfNamespace"
            paths.setdefault(path, {})[route.method.lower()] = operation
    queries = {route.query.__name__ for route in routes}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Peeklock control API",
            "version": version,
            "description": "Looks at a running broker, waits for it and changes it, for tests. "
            "A path without a namespace concerns the default namespace.",
        },
        "servers": [{"url": BASE}],
        "paths": paths,
        "components": {
            "schemas": {
                name: schema for name, schema in definitions.items() if name not in queries
            },
        },
    }


def _operation(
    route: Route,
    path: str,
    named: dict[type[BaseModel], Any],
    definitions: dict[str, Any],
) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    parameters = [*_segments(path), *_query(definitions[_name(named[route.query])])]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": named[route.body]}},
        }
    refusals = {**_COMMON_REFUSALS, **route.refusals}
    if route.is_stream:
        refusals[429] = "Too many streams are open."
    if route.scope is Scope.DESCRIPTION:
        del refusals[404]
    success: dict[str, Any] = {"description": "Done"}
    schema = {"type": "object"} if route.answer is None else named[route.answer]
    form = "text/event-stream" if route.is_stream else "application/json"
    success["content"] = {form: {"schema": {"type": "string"} if route.is_stream else schema}}
    for other in route.other_forms:
        success["content"][other] = {"schema": {"type": "string"}}
    operation["responses"] = {str(route.status): success} | {
        str(status): {
            "description": sentence,
            "content": {"application/json": {"schema": named[ErrorAnswer]}},
        }
        for status, sentence in sorted(refusals.items())
    }
    return operation


def _segments(path: str) -> Iterable[dict[str, Any]]:
    for name in _SEGMENT.findall(path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": _TEXT_SEGMENTS.get(name, name),
            "schema": {"type": "string"},
        }


def _query(schema: dict[str, Any]) -> Iterable[dict[str, Any]]:
    required = schema.get("required", ())
    for name, described in schema.get("properties", {}).items():
        described = dict(described)
        yield {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": described.pop("description", ""),
            "schema": described,
        }


def _name(reference: dict[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]
