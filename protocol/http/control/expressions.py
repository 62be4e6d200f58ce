"""SQL filter expressions over messages: the language of subscription rules, in the requests of the control API.

Dead letters also have `reason` and `description`, unless the sender set a property of this name.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Protocol

from broker.core.contract.errors import ArgumentError, UndecodableMessage
from broker.core.routing.sql import FilterError, MessageProperties, SqlSyntaxError
from broker.core.routing.sql.compiler import compile_condition
from broker.core.routing.sql.grammar import parse_filter
from broker.core.routing.sql.system_properties import canonical
from broker.core.routing.sql.tree import PropertyReference
from protocol.codec import Reader
from protocol.http.control.control_errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from uuid import UUID

    from broker.core.contract.message import Message, PropertyValue

TEXT_MAX_CHARACTERS = 4_096


class MessageTest(Protocol):
    """Selects messages."""

    def matches(self, message: Message) -> bool:
        """Whether a message, which must have its body, is selected."""


class MessageFilter:
    """A compiled expression."""

    __slots__ = ("_condition", "_new_id", "_reader")

    def __init__(self, text: str, field: str, new_id: Callable[[], UUID]) -> None:
        """Raises `ControlError` with the position if the text cannot be parsed."""
        try:
            tree = parse_filter(text, {}, TEXT_MAX_CHARACTERS)
        except SqlSyntaxError as error:
            raise ControlError(400, "invalid_expression", str(error), field) from None
        except ArgumentError as error:
            raise ControlError(400, "invalid_expression", f"{error}", field) from None
        for name in _system_names(tree):
            if canonical(name) is None:
                position = text.lower().find(f"sys.{name}".lower())
                raise ControlError(
                    400,
                    "invalid_expression",
                    f"There is no system property 'sys.{name}', at column {position + 1}.",
                    field,
                )
        self._condition = compile_condition(tree)
        self._new_id = new_id
        self._reader = Reader()

    def matches(self, message: Message, further: Mapping[str, PropertyValue] | None = None) -> bool:
        """Whether the expression is true for a message, which must have its body. An expression that cannot be
        evaluated on a message does not match it. The expression can also name `further` values, unless the sender set
        properties of these names."""
        properties: MessageProperties = MessageProperties(message, self._reader, self._new_id)
        try:
            if message.changes is not None:
                _add_reason(properties, message)
            if further is not None:
                properties.user = {**further, **properties.user}
            return self._condition(properties) is True
        except (FilterError, UndecodableMessage):
            return False


class TextSearch:
    """Finds messages that contain a text: in the body, an id, a property or a reason. Case does not matter for
    ASCII letters."""

    __slots__ = ("_text", "_wanted")

    def __init__(self, text: str) -> None:
        self._text = text.lower()
        self._wanted = text.encode(errors="replace").lower()

    def matches(self, message: Message) -> bool:
        """Whether a message, which must have its body, contains the text."""
        if self._wanted in (message.body or b"").lower():  # texts are UTF-8 in AMQP
            return True
        changes = message.changes
        if changes is None:
            return False
        texts = (changes.dead_letter_reason, changes.dead_letter_description)
        return any(self._text in one.lower() for one in texts if one)


class AllOf:
    """Finds messages that all of several filters find."""

    __slots__ = ("_filters",)

    def __init__(self, *filters: MessageTest) -> None:
        self._filters = filters

    def matches(self, message: Message) -> bool:
        """Whether all filters match a message, which must have its body."""
        return all(one.matches(message) for one in self._filters)


def _add_reason(properties: MessageProperties, message: Message) -> None:
    changes = message.changes
    assert changes is not None
    added: Mapping[str, PropertyValue] = {
        "reason": changes.dead_letter_reason,
        "description": changes.dead_letter_description,
    }
    given = properties.user
    properties.user = {
        **{name: value for name, value in added.items() if value is not None},
        **given,
    }


def _system_names(node: Any) -> Iterator[str]:
    """Yields the names of all system properties of a tree."""
    if isinstance(node, PropertyReference):
        if node.is_system:
            yield node.name
    elif isinstance(node, tuple | list):
        for one in node:
            yield from _system_names(one)
    elif is_dataclass(node):
        for one in fields(node):
            yield from _system_names(getattr(node, one.name))
