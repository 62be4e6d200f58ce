"""Evaluates the expressions in an ARM template, such as `[concat(parameters('namespace'), '/orders')]`.

Knows parameters with their default values, variables, and the functions that names and properties of entities use. What
depends on a deployment, such as `resourceGroup()`, cannot be evaluated.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from config.files.document import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from config.files.document import Value

_TOKEN = re.compile(
    r"\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<number>-?\d+)|(?P<name>[A-Za-z_]\w*)|(?P<mark>[(),.\[\]]))"
)
_PLACE = re.compile(r"\{(\d+)(?::[^}]*)?\}")
DEPTH_MAX = 32


class CannotEvaluate(ValueError):
    """The text says why."""


class ArmExpressions:
    """The expressions of one template."""

    def __init__(self, parameters: Mapping[str, Node], variables: Mapping[str, Node]) -> None:
        self._parameters = {name.casefold(): (name, node) for name, node in parameters.items()}
        self._variables = {name.casefold(): node for name, node in variables.items()}
        self.without_default: dict[str, Node] = {}
        """Parameters that were used and have no default value, by name. Their names are their values."""
        self._functions: Mapping[str, Callable[..., Any]] = {
            "parameters": self._parameter,
            "variables": self._variable,
            "concat": lambda *parts: "".join(map(_text, parts)),
            "format": _format,
            "tolower": lambda text: _text(text).lower(),
            "toupper": lambda text: _text(text).upper(),
            "string": _text,
            "int": int,
            "bool": lambda value: value is True or str(value).lower() in {"true", "1"},
            "true": lambda: True,
            "false": lambda: False,
            "null": lambda: None,
            "if": lambda condition, one, other: one if condition else other,
            "equals": lambda one, other: one == other,
            "not": lambda value: not value,
            "and": lambda *values: all(values),
            "or": lambda *values: any(values),
            "add": lambda one, other: int(one) + int(other),
            "sub": lambda one, other: int(one) - int(other),
            "mul": lambda one, other: int(one) * int(other),
            "length": len,
            "createarray": lambda *values: list(values),
            "copyindex": self._copy_index,
            # Part of the names of namespaces. The value does not matter here.
            "uniquestring": lambda *_: "unique",
            "resourcegroup": lambda: {"id": "", "name": "", "location": ""},
        }
        self._depth = 0
        self._copies: list[tuple[str, int]] = []
        """The name of each loop around a resource, and the number of the copy that is read."""

    @contextmanager
    def copy_of(self, loop: str, number: int) -> Iterator[None]:
        """Sets what `copyIndex()` returns in a `with` block."""
        self._copies.append((loop.casefold(), number))
        try:
            yield
        finally:
            self._copies.pop()

    def value(self, node: Node) -> Value:
        """Returns the value of a node: of an expression, or as it is written. Raises `CannotEvaluate`."""
        text = node.value
        if not isinstance(text, str) or not text.startswith("[") or not text.endswith("]"):
            return text
        if text.startswith("[["):  # an escaped bracket
            return text[1:]
        self._depth += 1
        try:
            if self._depth > DEPTH_MAX:
                raise CannotEvaluate("it refers to itself")
            found: Value = _Parser(text[1:-1], self._call).whole()
            return found
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            if isinstance(error, CannotEvaluate):
                raise
            raise CannotEvaluate(f"{text!r} is not understood") from error
        finally:
            self._depth -= 1

    def _call(self, name: str, arguments: list[Any]) -> Any:
        function = self._functions.get(name.casefold())
        if function is None:
            raise CannotEvaluate(f"the function {name}() is not known")
        return function(*arguments)

    def _copy_index(self, *arguments: Any) -> int:
        """Returns the number of the copy, of the innermost loop or of a named one, and an offset."""
        names = [one.casefold() for one in arguments if isinstance(one, str)]
        offsets = [one for one in arguments if isinstance(one, int)]
        numbers = [number for loop, number in self._copies if not names or loop == names[0]]
        if not numbers:
            raise CannotEvaluate("there is no such loop")
        return numbers[-1] + sum(offsets)

    def _parameter(self, name: str) -> Any:
        if name.casefold() not in self._parameters:
            raise CannotEvaluate(f"there is no parameter {name!r}")
        spelling, node = self._parameters[name.casefold()]
        members = node.value if isinstance(node.value, dict) else {}
        if "defaultValue" in members:
            return self._plain(members["defaultValue"])
        kind = str(members["type"].value if "type" in members else "").casefold()
        if kind not in {"string", "securestring"}:
            raise CannotEvaluate(f"the parameter {spelling!r} has no default value")
        self.without_default[spelling] = node
        return spelling

    def _variable(self, name: str) -> Any:
        if name.casefold() not in self._variables:
            raise CannotEvaluate(f"there is no variable {name!r}")
        return self._plain(self._variables[name.casefold()])

    def _plain(self, node: Any) -> Any:
        """Returns the value of a node with everything in it. What an expression has returned is plain already."""
        value = self.value(node) if isinstance(node, Node) else node
        if isinstance(value, dict):
            return {name: self._plain(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if not isinstance(value, str | int):
        raise CannotEvaluate("a text is expected")
    return str(value)


def _format(pattern: str, *values: Any) -> str:
    return _PLACE.sub(lambda place: _text(values[int(place[1])]), pattern)


class _Parser:
    """Evaluates while it parses. The arguments of `if` are all evaluated."""

    def __init__(self, text: str, call: Callable[[str, list[Any]], Any]) -> None:
        self._text = text
        self._at = 0
        self._call = call
        self._depth = 0

    def whole(self) -> Any:
        value = self._value()
        if self._text[self._at :].strip():
            raise CannotEvaluate(f"{self._text!r} is not understood")
        return value

    def _next(self) -> re.Match[str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise CannotEvaluate(f"{self._text!r} is not understood")
        self._at = found.end()
        return found

    def _takes(self, mark: str) -> bool:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found["mark"] != mark:
            return False
        self._at = found.end()
        return True

    def _value(self) -> Any:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise CannotEvaluate("it is nested too deeply")
        token = self._next()
        value: Any
        if token["text"] is not None:
            value = token["text"].replace("''", "'")
        elif token["number"] is not None:
            value = int(token["number"])
        elif token["name"] is not None and self._takes("("):
            arguments: list[Any] = []
            while not self._takes(")"):
                arguments.append(self._value())
                self._takes(",")
            value = self._call(token["name"], arguments)
        else:
            raise CannotEvaluate(f"{self._text!r} is not understood")
        while True:
            if self._takes("."):
                value = value[self._next()["name"]]
            elif self._takes("["):
                value = value[self._value()]
                self._takes("]")
            else:
                break
        self._depth -= 1
        return value
