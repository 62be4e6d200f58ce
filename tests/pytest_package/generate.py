"""Writes the modules of `pytest-peeklock` that follow from the OpenAPI document: `python -m tests.pytest_package.generate`.

Each operation becomes a method with typed arguments, and each schema a type. A test fails if the modules are not those
of the document, so a new route cannot be forgotten.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.packaging.dockerfile import ROOT

PACKAGE = ROOT / "pytest-peeklock" / "src" / "pytest_peeklock"
PREFIX = "/namespaces/{namespace}"
WRITTEN_BY = "Written by `python -m tests.pytest_package.generate` from the OpenAPI document. Change that, not this."
_SEGMENT = re.compile(r"\{(\w+)\}")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

ANSWERS_HEAD = f'''\
"""The types of what the control API answers and takes: plain JSON objects, as the broker writes them.

{WRITTEN_BY}
"""

from __future__ import annotations

from typing import Any, Literal, Optional, TypedDict, Union

'''

CONTROL_API_HEAD = f'''\
"""Every operation of the control API as a method. `client.py` adds what tests need beside them.

{WRITTEN_BY}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from pytest_peeklock.http_requests import HttpRequests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_peeklock.answers import (
        {{imported}}
    )

__tracebackhide__ = True  # a test's traceback ends in the test


class ControlApi(HttpRequests):
    """The operations of the broker's OpenAPI document, each with its name and its fields. None: the field is left
    out. Answers are the JSON objects that the broker writes. What it refuses is raised as `PeeklockError`."""
'''


@dataclass(frozen=True)
class Argument:
    """An argument of a method: a query field, a member of the body, or a segment of the path."""

    field: str
    annotation: str
    is_required: bool

    @property
    def name(self) -> str:
        return f"{self.field}_" if keyword.iskeyword(self.field) else self.field

    @property
    def is_positional(self) -> bool:
        """Whether it may be given without its name. A bare True says nothing to a reader."""
        return self.is_required and self.annotation != "bool"

    def declared(self) -> str:
        if self.is_required:
            return f"{self.name}: {self.annotation}"
        optional = self.annotation.removesuffix(" | None")
        return f"{self.name}: {optional} | None = None"


class Generator:
    """The modules for one document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._paths: dict[str, dict[str, Any]] = document["paths"]
        self._schemas: dict[str, Any] = document["components"]["schemas"]
        self._used: set[str] = set()
        """The names of the schemas for which a type is needed."""

    def modules(self) -> dict[str, str]:
        """Returns the text of each module by its name."""
        methods = "\n".join(self._methods())
        imported = ",\n        ".join(sorted(_type_name(one) for one in self._used)) + ","
        control_api = CONTROL_API_HEAD.replace("{imported}", imported) + methods
        return {
            "control_api.py": _formatted(control_api),
            "answers.py": _formatted(ANSWERS_HEAD + self._types()),
        }

    # --- methods -------------------------------------------------------------------------------

    def _methods(self) -> list[str]:
        found = []
        for path, operations in self._paths.items():
            below = path.removeprefix(PREFIX)
            if path != below and below in self._paths and self._is_copy(path, below):
                continue
            for method, operation in operations.items():
                found.append(self._method(path, method.upper(), operation))
        return found

    def _is_copy(self, path: str, below: str) -> bool:
        """Whether a path is that of another in a namespace."""
        ids = {one["operationId"] for one in self._paths[below].values()}
        copies = {one["operationId"] for one in self._paths[path].values()}
        return copies == {f"{one}OfNamespace" for one in ids}

    def _method(self, path: str, method: str, operation: dict[str, Any]) -> str:
        is_namespaced = PREFIX + path in self._paths and self._is_copy(PREFIX + path, path)
        segments = [Argument(one, "str", one != "namespace") for one in _SEGMENT.findall(path)]
        query = [
            Argument(one["name"], self._annotation(one["schema"]), one["required"])
            for one in operation.get("parameters", ())
            if one["in"] == "query"
        ]
        body = self._body(operation)
        arguments = [*segments, *query, *(body or ())]
        by_position = [one.declared() for one in arguments if one.is_positional]
        by_name = [one.declared() for one in arguments if not one.is_positional]
        signature = ", ".join(["self", *by_position, *(["*"] if by_name else []), *by_name])
        call = [f'"{method}"', _path(path, is_namespaced=is_namespaced)]
        call += [f"query={_mapping(query)}"] if query else []
        call += [f"body={_mapping(body)}"] if body is not None else []
        answer, is_stream = self._answer(operation)
        name = _WORDS.sub("_", operation["operationId"]).lower()
        summary = operation["summary"].rstrip(".")
        made = f"self.{'stream' if is_stream else 'request'}({', '.join(call)})"
        lines = [f"answer: {answer} = {made}", "return answer"]
        if is_stream:
            lines = [f"return {made}"]
        indented = "\n".join(f"        {line}" for line in lines)
        return f'\n    def {name}({signature}) -> {answer}:\n        """{summary}."""\n{indented}\n'

    def _body(self, operation: dict[str, Any]) -> list[Argument] | None:
        if "requestBody" not in operation:
            return None
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        described = self._schemas[_schema_name(schema)]
        required = described.get("required", ())
        return [
            Argument(name, self._annotation(one), name in required)
            for name, one in described.get("properties", {}).items()
        ]

    def _answer(self, operation: dict[str, Any]) -> tuple[str, bool]:
        """Returns the type of the answer, and whether it is a stream of such objects."""
        (success,) = [one for status, one in operation["responses"].items() if status[0] == "2"]
        content = success["content"]
        if "text/event-stream" in content:
            return "Iterator[dict[str, Any]]", True
        types = [self._annotation(one["schema"]) for one in content.values()]
        return " | ".join(dict.fromkeys(types)), False

    # --- types ---------------------------------------------------------------------------------

    def _annotation(self, schema: dict[str, Any]) -> str:
        if "$ref" in schema:
            self._used.add(_schema_name(schema))
            return _type_name(_schema_name(schema))
        for several in ("anyOf", "oneOf"):
            if several in schema:
                parts = list(dict.fromkeys(self._annotation(one) for one in schema[several]))
                if "Any" in parts:
                    return "Any"
                if "None" in parts:  # last, as people write it
                    parts = [*(one for one in parts if one != "None"), "None"]
                return " | ".join(parts)
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return f"Literal[{', '.join(json.dumps(one) for one in values)}]"
        match schema.get("type"):
            case "array":
                return f"list[{self._annotation(schema.get('items', {}))}]"
            case "object":
                values = schema.get("additionalProperties")
                inner = self._annotation(values) if isinstance(values, dict) else "Any"
                return f"dict[str, {inner}]"
            case str() as name:
                return _PLAIN[name]
        return "Any"

    def _types(self) -> str:
        """Returns the types that methods need, and those that these need."""
        texts: dict[str, str] = {}
        while missing := self._used - texts.keys():
            for name in sorted(missing):
                texts[name] = self._type(name, self._schemas[name])
        names = [_type_name(name) for name in texts]
        assert len(names) == len(set(names)), f"two types have one name: {sorted(names)}"
        return "\n\n".join(texts[name] for name in sorted(texts))

    def _type(self, name: str, schema: dict[str, Any]) -> str:
        if "properties" not in schema:
            return f"{_type_name(name)} = {self._annotation(schema)}\n"
        fields = {one: self._annotation(of) for one, of in schema["properties"].items()}
        documented = " ".join(schema.get("description", "").split()).replace('"', "'")
        documented = textwrap.fill(documented, 110, subsequent_indent="    ")
        is_total = set(fields) == set(schema.get("required", ()))
        if any(keyword.iskeyword(one) for one in fields):
            members = ", ".join(f'"{one}": "{of}"' for one, of in fields.items())
            members = re.sub(r'"([^"]*?) \| None"', r'Optional["\1"]', members)
            return f'{_type_name(name)} = TypedDict("{_type_name(name)}", {{{members}}}, total={is_total})\n"""{documented}"""\n'
        base = "TypedDict" if is_total else "TypedDict, total=False"
        lines = "\n".join(f"    {one}: {of}" for one, of in fields.items())
        return f'class {_type_name(name)}({base}):\n    """{documented}"""\n\n{lines}\n'


_PLAIN = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}


def _schema_name(reference: dict[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]


def _type_name(schema: str) -> str:
    """Returns the name of the type of a schema. Two models of one name have the names of their modules in front, such as
    `protocol__http__control__history_resource__RecordingAnswer`, which becomes `HistoryRecording`."""
    *modules, name = schema.split("__")
    module = modules[-1].removesuffix("_resource").title().replace("_", "") if modules else ""
    return module + name.removesuffix("Answer")


def _path(path: str, *, is_namespaced: bool) -> str:
    """Returns an expression for the path of a request."""

    def segment(found: re.Match[str]) -> str:
        if found[1] == "namespace":
            return "{self.named(namespace)}"
        return f"{{quote({found[1]}, safe='')}}"

    text = _SEGMENT.sub(segment, path)
    if is_namespaced:
        text = "{self.base}" + text
    return f'f"{text}"' if "{" in text else f'"{text}"'


def _mapping(arguments: list[Argument]) -> str:
    return "{" + ", ".join(f'"{one.field}": {one.name}' for one in arguments) + "}"


def _formatted(text: str) -> str:
    """Returns the module as the linter wants it."""
    ruff = Path(sys.executable).parent / "ruff"
    file = ["--stdin-filename", str(PACKAGE / "generated.py"), "-"]
    for command in (["check", "--fix-only", "--quiet"], ["format", "--quiet"]):
        text = subprocess.run(
            [ruff, *command, *file], input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def document_of_this_broker() -> dict[str, Any]:
    """Returns the document that the broker of this source tree serves."""
    from tests.support.server import BrokerProcess

    with BrokerProcess() as broker:
        status, content = broker.request("GET", "/$peeklock/v1/openapi.json")
    assert status == 200
    document: dict[str, Any] = json.loads(content)
    return document


if __name__ == "__main__":
    for module, content in Generator(document_of_this_broker()).modules().items():
        (PACKAGE / module).write_text(content)
