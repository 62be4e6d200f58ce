"""Parses lenient JSON or YAML into a tree of `Node`s, which know their lines.

Knows the two syntaxes, but not the meaning of the file. A mistake that is found later names the line and the path of
its node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from config.files.mistakes import ConfigError, ConfigReport, Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Value: TypeAlias = "bool | int | float | str | list[Node] | dict[str, Node] | None"

_PLAIN_KEY = re.compile(r"[\w$-]+")


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the document and its position. The line of a value in a mapping is that of its key."""

    value: Value
    source: str
    line: int | None = None
    where: str = ""

    @property
    def kind(self) -> str:
        """The value, or its type, as error messages name it."""
        match self.value:
            case None:
                return "nothing"
            case dict():
                return "a mapping"
            case list():
                return "a list"
            case str():
                return repr(self.value)
            case bool():
                return str(self.value).lower()
            case _:
                return str(self.value)


def child_path(where: str, key: str | int) -> str:
    """Returns, for instance, `Queues[2].Properties` or `queues["queue.1"].lock_duration`."""
    if isinstance(key, int):
        return f"{where}[{key}]"
    if not _PLAIN_KEY.fullmatch(key):
        return f'{where}["{key}"]'
    return f"{where}.{key}" if where else key


def read_document(path: Path, report: ConfigReport) -> Node:
    """Reads a file: JSON if it begins like JSON, else YAML.

    Reports a name that is given twice, and continues. Raises `ConfigError` if the file cannot be parsed.
    """
    source = str(path)
    try:
        text = path.read_text("utf-8-sig")
    except IsADirectoryError as error:
        # Container engines create a folder if the file to be mounted does not exist.
        reason = "is a folder; a mounted file that does not exist becomes one"
        raise ConfigError([Mistake(source, None, "", reason)]) from error
    except OSError as error:
        raise ConfigError(
            [Mistake(source, None, "", f"cannot be read: {error.strerror}")]
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            [Mistake(source, None, "", "is not UTF-8 text; save it as UTF-8")]
        ) from error
    return parse_text(text, source, report, may_be_json=path.suffix not in {".yaml", ".yml"})


def parse_text(text: str, source: str, report: ConfigReport, *, may_be_json: bool = True) -> Node:
    """Parses JSON if the text begins like JSON, else YAML. Raises `ConfigError` if it cannot be parsed."""
    try:
        is_json = may_be_json and _JSON_BEGIN.match(text)
        return (parse_json if is_json else parse_yaml)(text, source, report)
    except RecursionError as error:
        raise ConfigError([Mistake(source, None, "", "is nested too deeply")]) from error


def node_of(value: object, source: str, where: str = "") -> Node:
    """Returns plain data, such as the value of a JSON text that has been parsed, as nodes without lines."""
    if isinstance(value, dict):
        members = {
            str(key): node_of(item, source, child_path(where, str(key)))
            for key, item in value.items()
        }
        return Node(members, source, None, where)
    if isinstance(value, list):
        items = [
            node_of(item, source, child_path(where, index)) for index, item in enumerate(value)
        ]
        return Node(items, source, None, where)
    assert isinstance(value, bool | int | float | str | None)
    return Node(value, source, None, where)


def _repeated(key: str, first: Node, second: Node, report: ConfigReport) -> Node:
    """Reports a name that is given twice. Returns both values merged, so that both are checked."""
    text = f"{key!r} is given twice, first in line {first.line}"
    report.mistakes.append(Mistake(second.source, second.line, second.where, text))
    if isinstance(first.value, dict) and isinstance(second.value, dict):
        return replace(first, value={**second.value, **first.value})
    if isinstance(first.value, list) and isinstance(second.value, list):
        return replace(first, value=[*first.value, *second.value])
    return first if first.value is not None else second


# --- JSON ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)"
    r'|(?P<string>"(?:[^"\\\n]|\\[^\n])*")'
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[A-Za-z_]+)"
    r"|(?P<mark>[\[\]{}:,])"
    r"|(?P<unknown>.)",
    re.DOTALL,
)
_JSON_BEGIN = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*\{", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}


def parse_json(text: str, source: str, report: ConfigReport | None = None) -> Node:
    """Parses JSON with `//` and `/* */` comments and trailing commas.

    Without a report, a name that is given twice raises `ConfigError`.
    """
    found = ConfigReport() if report is None else report
    root = _JsonReader(text, source, found).document()
    if report is None:
        found.raise_if_wrong()
    return root


class _JsonReader:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str, source: str, report: ConfigReport) -> None:
        self._source = source
        self._report = report
        self._tokens = self._tokenize(text)
        self._advance()

    def document(self) -> Node:
        root = self._value("")
        if self._kind != "end":
            self._fail(f"expected the end of the file, found {self._text!r}")
        return root

    def _tokenize(self, text: str) -> Iterator[tuple[str, str, int]]:
        line = 1
        for match in _TOKEN.finditer(text):
            if match.lastgroup != "space":
                yield str(match.lastgroup), match[0], line
            line += match[0].count("\n")
        yield "end", "the end of the file", line

    def _advance(self) -> None:
        self._kind, self._text, self._line = next(self._tokens)

    def _fail(self, text: str) -> NoReturn:
        raise ConfigError([Mistake(self._source, self._line, "", f"not valid JSON: {text}")])

    def _takes(self, mark: str) -> bool:
        if self._text != mark or self._kind != "mark":
            return False
        self._advance()
        return True

    def _value(self, where: str, key_line: int | None = None) -> Node:
        line = key_line or self._line
        kind, text = self._kind, self._text
        value: Value
        if self._takes("{"):
            value = self._mapping(where)
        elif self._takes("["):
            value = self._list(where)
        else:
            if kind == "string":
                value = self._string()
            elif kind == "number":
                value = self._number()
            elif kind == "word" and text in _WORDS:
                value = _WORDS[text]
            else:
                self._fail(f"expected a value, found {text!r}")
            self._advance()
        return Node(value, self._source, line, where)

    def _number(self) -> int | float:
        try:
            return int(self._text) if self._text.lstrip("-").isdigit() else float(self._text)
        except ValueError:  # Python converts no more than some thousand digits
            self._fail(f"a number has {len(self._text)} digits, which are too many")

    def _string(self) -> str:
        import json  # only for escapes

        try:
            value = str(json.loads(self._text, strict=False))
            value.encode()  # half of a surrogate pair is an escape, but no character
        except ValueError:
            self._fail(f"{self._text} has an escape that JSON does not know")
        return value

    def _mapping(self, where: str) -> dict[str, Node]:
        members: dict[str, Node] = {}
        while not self._takes("}"):
            if self._kind != "string":
                self._fail(f'expected a name in double quotes or "}}", found {self._text!r}')
            key, line = self._string(), self._line
            self._advance()
            if not self._takes(":"):
                self._fail(f'expected ":" after "{key}", found {self._text!r}')
            value = self._value(child_path(where, key), line)
            members[key] = (
                _repeated(key, members[key], value, self._report) if key in members else value
            )
            if not self._takes(",") and self._text != "}":
                self._fail(f'expected "," or "}}", found {self._text!r}')
        return members

    def _list(self, where: str) -> list[Node]:
        items: list[Node] = []
        while not self._takes("]"):
            items.append(self._value(child_path(where, len(items))))
            if not self._takes(",") and self._text != "]":
                self._fail(f'expected "," or "]", found {self._text!r}')
        return items


# --- YAML ------------------------------------------------------------------------------------


_TAB_INDENT = re.compile(r" *\t")

_REPEATED_MAX = 100_000
"""How many values the aliases of a document may repeat: a few short lines can stand for billions."""

_UNREADABLE = (ValueError, KeyError, AttributeError)
"""What the YAML library raises if the text of a value does not fit its type, such as `2026-02-30` or `!!bool x`."""


def parse_yaml(text: str, source: str, report: ConfigReport | None = None) -> Node:
    """Parses YAML: plain values, anchors and merge keys, no objects.

    Without a report, a name that is given twice raises `ConfigError`.
    """
    found = ConfigReport() if report is None else report
    root = _read_yaml(text, source, found)
    if report is None:
        found.raise_if_wrong()
    return root


def _read_yaml(text: str, source: str, report: ConfigReport) -> Node:
    import yaml  # not loaded for a JSON file

    loader_type: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = loader_type(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return Node(None, source, 1)
        _check_size(root, source, len(text) + _REPEATED_MAX)
        return _YamlReader(loader, source, report).node(root, "", None)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        problem = error.problem or error.context or "it cannot be read"
        # The mark may be after the last line.
        if line is not None and any(map(_TAB_INDENT.match, text.splitlines()[line - 1 : line])):
            problem += "; indent with spaces, not with tabs"
        raise ConfigError([Mistake(source, line, "", f"not valid YAML: {problem}")]) from error
    except yaml.YAMLError as error:
        raise ConfigError([Mistake(source, None, "", f"not valid YAML: {error}")]) from error
    finally:
        loader.dispose()


def _check_size(root: Any, source: str, most: int) -> None:
    """Raises `ConfigError` if the document has more values than `most`, once its aliases are replaced by values."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if node.id == "scalar":
            return 1
        if id(node) not in sizes:
            # A value that contains itself has no end: the depth of the recursion finds it.
            children = node.value if node.id == "sequence" else chain.from_iterable(node.value)
            sizes[id(node)] = 1 + sum(map(size, children))
        return sizes[id(node)]

    if size(root) > most:
        raise ConfigError([Mistake(source, None, "", "its aliases repeat too many values")])


class _YamlReader:
    """Converts the nodes of the YAML library to `Node`s."""

    def __init__(self, loader: Any, source: str, report: ConfigReport) -> None:
        self._loader = loader
        self._source = source
        self._report = report
        self._own_keys: dict[int, set[int]] = {}
        """For each mapping, the keys that are written in it, without the merged ones."""

    def node(self, node: Any, where: str, key_line: int | None) -> Node:
        line = key_line or node.start_mark.line + 1
        value: Value
        if node.id == "mapping":
            value = self._mapping(node, where)
        elif node.id == "sequence":
            value = [
                self.node(item, child_path(where, index), None)
                for index, item in enumerate(node.value)
            ]
        else:
            value = self._scalar(node)
        return Node(value, self._source, line, where)

    def _scalar(self, node: Any) -> bool | int | float | str | None:
        if node.tag == "tag:yaml.org,2002:timestamp":  # no value of a config file is a date
            return str(node.value)
        try:
            value = self._loader.construct_object(node)
        except _UNREADABLE as error:
            kind = node.tag.rsplit(":", 1)[-1]
            text = f"not valid YAML: {node.value[:40]!r} is not of the type {kind}"
            line = node.start_mark.line + 1
            raise ConfigError([Mistake(self._source, line, "", text)]) from error
        return value if isinstance(value, bool | int | float | None) else str(node.value)

    def _mapping(self, node: Any, where: str) -> dict[str, Node]:
        if (
            id(node) not in self._own_keys
        ):  # the mapping of an anchor is visited once for each alias
            self._check_keys(node)
            self._own_keys[id(node)] = {id(key) for key, _ in node.value}
            self._loader.flatten_mapping(node)
        # Keys are names, even if YAML would read them as numbers or booleans. Merged members come first,
        # so that those written in the mapping override them.
        own_keys = self._own_keys[id(node)]
        members: dict[str, Node] = {}
        written_here: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            member = self.node(value, child_path(where, name), key.start_mark.line + 1)
            if name in written_here:
                member = _repeated(name, members[name], member, self._report)
            if id(key) in own_keys:
                written_here.add(name)
            members[name] = member
        return members

    def _check_keys(self, node: Any) -> None:
        for key, _ in node.value:
            if key.id != "scalar":
                text = "not valid YAML here: a name is expected before the colon"
                line = key.start_mark.line + 1
                raise ConfigError([Mistake(self._source, line, "", text)])
