"""Parses SQL text to a tree: the grammar of subscription filters and rule actions.

There is one method for each rule of the grammar. A text is parsed completely or refused with a
position. The depth of recursion is limited.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from broker.core.contract.errors import ArgumentError
from broker.core.routing.sql import system_properties
from broker.core.routing.sql.lexer import INT64_MAX, Token, TokenKind, TokenReader
from broker.core.routing.sql.tree import (
    And,
    Arithmetic,
    Assign,
    Comparison,
    Condition,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    NewId,
    Node,
    Not,
    Or,
    PropertyCall,
    PropertyReference,
    Remove,
    Sign,
    Statement,
    Value,
)
from config.model.definitions import LongInteger
from config.model.ticks import DateTimeTicks, TimeSpanTicks, in_utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from broker.core.contract.message import PropertyValue

NESTING_MAX = 50
"""The limit for nested parentheses, NOTs and signs. It limits every recursion over a tree."""

_COMPARISONS = ("=", "<>", "!=", ">", ">=", "<", "<=")
_CONSTANT_KEYWORDS: dict[str, PropertyValue] = {"TRUE": True, "FALSE": False, "NULL": None}
_PARAMETER_TYPES = (
    *(str, bool, int, float, bytes, UUID, type(None)),
    *(datetime, DateTimeTicks, timedelta, TimeSpanTicks),
)
_INT64_DIGITS = 19
_UINT64_MAX = 2**64 - 1


def parse_filter(text: str, parameters: Mapping[str, PropertyValue], max_characters: int) -> Node:
    """Returns the tree of a filter."""
    return _Parser(text, parameters, max_characters).filter()


def parse_action(
    text: str, parameters: Mapping[str, PropertyValue], max_characters: int, max_statements: int
) -> list[Statement]:
    """Returns the statements of an action, in order."""
    return _Parser(text, parameters, max_characters).action(max_statements)


class _Parser(TokenReader):
    """Recursive descent with one token of lookahead, two where a name may be a function."""

    def __init__(
        self, text: str, parameters: Mapping[str, PropertyValue], max_characters: int
    ) -> None:
        if len(text) > max_characters:
            raise ArgumentError(
                f"The SQL expression is {len(text)} characters long; the limit is {max_characters}."
            )
        super().__init__(text)
        self._parameters = _by_name(parameters)
        self._nesting = 0

    # --- filters ------------------------------------------------------------------------------

    def filter(self) -> Node:
        start = self.token
        node = self._or()
        self._require_condition(node, start)
        if not self.at_end():
            raise self.refusal(_expected_after(node))
        return node

    def _or(self) -> Node:
        """`and { OR and }`."""
        return self._chain("OR", self._and, Or)

    def _and(self) -> Node:
        """`not { AND not }`."""
        return self._chain("AND", self._not, And)

    def _chain(
        self, keyword: str, operand: Callable[[], Node], join: Callable[[tuple[Node, ...]], Node]
    ) -> Node:
        start = self.token
        node = operand()
        if not self.at(keyword):
            return node
        self._require_condition(node, start)
        operands = [node]
        while self.take(keyword):
            start = self.token
            node = operand()
            self._require_condition(node, start)
            operands.append(node)
        return join(tuple(operands))

    def _not(self) -> Node:
        """`NOT not | comparison`."""
        if not self.take("NOT"):
            return self._comparison()
        with self._nested():
            start = self.token
            operand = self._not()
            self._require_condition(operand, start)
            return Not(operand)

    def _comparison(self) -> Node:
        """`value [ cmp value | IS [NOT] NULL | [NOT] IN (…) | [NOT] LIKE value [ESCAPE value] ]`."""
        start = self.token
        left = self._additive()
        if self.at(*_COMPARISONS):
            operand = self._value(left, start)
            operator = self.advance().value
            return Comparison("<>" if operator == "!=" else operator, operand, self._operand())
        if self.take("IS"):
            if not isinstance(left, PropertyReference | PropertyCall):
                raise self.refusal("a property to the left of IS", start)
            negated = self.take("NOT")
            self.expect("NULL", "NULL" if negated else "NULL or NOT NULL")
            return Not(IsNull(left)) if negated else IsNull(left)
        if not self.at("NOT", "IN", "LIKE"):
            return left
        operand = self._value(left, start)
        negated = self.take("NOT")
        if self.take("IN"):
            node: Node = In(operand, self._in_items())
        else:
            self.expect("LIKE", "IN or LIKE")
            pattern = self._operand()
            node = Like(operand, pattern, self._escape() if self.take("ESCAPE") else None)
        return Not(node) if negated else node

    def _in_items(self) -> tuple[Value, ...]:
        self.expect("(")
        items = [self._operand()]
        while self.take(","):
            items.append(self._operand())
        self.expect(")", "',' or ')'")
        return tuple(items)

    def _escape(self) -> Value:
        start = self.token
        escape = self._operand()
        if isinstance(escape, Constant) and not (
            escape.value is None or (isinstance(escape.value, str) and len(escape.value) == 1)
        ):
            raise self.refusal("one character to the right of ESCAPE", start)
        return escape

    # --- values -------------------------------------------------------------------------------

    def _operand(self) -> Value:
        """Parses a value. Raises `SqlSyntaxError` for anything else."""
        start = self.token
        return self._value(self._additive(), start)

    def _additive(self) -> Node:
        """`multiplicative { (+|-) multiplicative }`."""
        start = self.token
        first = self._sign()
        if not self.at("+", "-", "*", "/", "%"):
            return first  # the most frequent case: one value without arithmetic
        first = self._arithmetic(("*", "/", "%"), self._sign, start, first)
        return self._arithmetic(("+", "-"), self._multiplicative, start, first)

    def _multiplicative(self) -> Node:
        """`sign { (*|/|%) sign }`."""
        start = self.token
        return self._arithmetic(("*", "/", "%"), self._sign, start, self._sign())

    def _arithmetic(
        self, operators: tuple[str, ...], operand: Callable[[], Node], start: Token, first: Node
    ) -> Node:
        """Parses the rest of a chain of these operators after the first operand."""
        if not self.at(*operators):
            return first
        value = self._value(first, start)
        rest = []
        while self.at(*operators):
            operator = self.advance().value
            start = self.token
            rest.append((operator, self._value(operand(), start)))
        return Arithmetic(value, tuple(rest))

    def _sign(self) -> Node:
        """`(+|-) sign | atom`. The sign of an integer belongs to it: -2^63 has no positive."""
        if not self.at("+", "-"):
            return self._atom()
        operator = self.advance().value
        if self.token.kind is TokenKind.INTEGER:
            return self._integer(self.advance(), operator)
        with self._nested():
            start = self.token
            return Sign(operator, self._value(self._sign(), start))

    def _atom(self) -> Node:
        """`constant | @parameter | property | function | EXISTS (property) | (condition)`."""
        token = self.token
        match token.kind:
            case TokenKind.INTEGER:
                return self._integer(self.advance())
            case TokenKind.DECIMAL:
                return self._decimal(self.advance())
            case TokenKind.TEXT:
                return Constant(self.advance().value)
            case TokenKind.PARAMETER:
                return self._parameter(self.advance())
            case TokenKind.KEYWORD if token.value in _CONSTANT_KEYWORDS:
                return Constant(_CONSTANT_KEYWORDS[self.advance().value])
            case TokenKind.KEYWORD if token.value == "EXISTS":
                return self._exists()
            case TokenKind.NAME | TokenKind.DELIMITED_NAME:
                return self._property_or_function()
        if not self.take("("):
            raise self.refusal("a value")
        with self._nested():
            node = self._or()
            self.expect(")", "an operator or ')'")
            return node

    def _integer(self, token: Token, sign: str = "") -> Constant:
        digits = token.value.lstrip("0") or "0"
        value = int(sign + digits) if len(digits) <= _INT64_DIGITS else INT64_MAX + 1
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise self.refusal("an integer of at most 64 bits", token)
        return Constant(value)

    def _decimal(self, token: Token) -> Constant:
        value = float(token.value)
        if value == float("inf"):
            raise self.refusal("a number in the range of a double", token)
        return Constant(value)

    def _parameter(self, token: Token) -> Constant:
        name = token.value[1:].lower()
        if name not in self._parameters:
            raise self.refusal("a parameter that has been given a value", token)
        return Constant(self._parameters[name])

    def _exists(self) -> Exists:
        self.advance()
        self.expect("(")
        start = self.token
        operand = self._additive()
        if not isinstance(operand, PropertyReference | PropertyCall):
            raise self.refusal("a property", start)
        self.expect(")")
        return Exists(operand)

    def _property_or_function(self) -> Node:
        token = self.token
        if token.kind is TokenKind.NAME and self.followed_by("("):
            return self._function()
        return self._property()

    def _function(self) -> Node:
        """`newid() | property(value) | p(value)`."""
        token = self.advance()
        name = token.value.lower()
        if name not in {"newid", "property", "p"}:
            raise self.refusal("the function newid, property or p", token)
        self.expect("(")
        with self._nested():
            node: Node = NewId() if name == "newid" else PropertyCall(self._operand())
            self.expect(")")
            return node

    def _property(self) -> PropertyReference:
        """`[ (sys|user) . ] name`."""
        token = self._name()
        if not self.take("."):
            return PropertyReference(token.value)
        scope = token.source.lower()
        if scope not in {"sys", "user"}:
            raise self.refusal(
                "the scope sys or user (a name with a dot goes in [brackets])", token
            )
        return PropertyReference(self._name().value, is_system=scope == "sys")

    def _name(self) -> Token:
        if self.token.kind is TokenKind.KEYWORD:
            raise self.refusal(
                f"a property name (write [{self.token.source}] to use this word as one)"
            )
        if self.token.kind not in {TokenKind.NAME, TokenKind.DELIMITED_NAME}:
            raise self.refusal("a property name")
        return self.advance()

    # --- actions ------------------------------------------------------------------------------

    def action(self, max_statements: int) -> list[Statement]:
        """`statement { [; | , | ;,] statement } [;]`."""
        statements = [self._statement()]
        while not self.at_end():
            semicolon = self.take(";")
            if semicolon and self.at_end():
                break
            if not (self.take(",") or semicolon or self._at_statement()):
                raise self.refusal("an operator, ';', ',', SET, REMOVE or the end of the text")
            if len(statements) == max_statements:
                raise ArgumentError(
                    f"The SQL action has more than {max_statements} statements, the limit."
                )
            statements.append(self._statement())
        return statements

    def _at_statement(self) -> bool:
        return self.token.source.upper() in {"SET", "REMOVE"}

    def _statement(self) -> Statement:
        """`SET property = value | REMOVE property`."""
        verb = self.token
        if verb.source.upper() == "SET":
            self.advance()
            target = self._target()
            self.expect("=")
            return Assign(target, self._operand())
        if verb.source.upper() == "REMOVE":
            self.advance()
            return Remove(self._target())
        raise self.refusal("SET or REMOVE")

    def _target(self) -> PropertyReference:
        start = self.token
        target = self._property()
        if (
            target.is_system
            and system_properties.canonical(target.name) in system_properties.READ_ONLY
        ):
            raise self.refusal("a property that may be changed", start, f"sys.{target.name}")
        return target

    # --- refusals -----------------------------------------------------------------------------

    def _require_condition(self, node: Node, start: Token) -> None:
        """Returns the node as a condition. A property, parameter or constant is one if it can be
        true."""
        if isinstance(node, Sign | Arithmetic | NewId):
            raise self.refusal("a condition", start, "a value")
        if isinstance(node, Constant) and not isinstance(node.value, bool | None):
            raise self.refusal("a condition", start)

    def _value(self, node: Node, start: Token) -> Value:
        """Returns the node if it is a value. Raises `SqlSyntaxError` otherwise."""
        if isinstance(node, Condition):
            raise self.refusal("a value", start, "a condition")
        return node

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self.refusal(f"at most {NESTING_MAX} levels of nesting")
        yield
        self._nesting -= 1


def _expected_after(node: Node) -> str:
    if isinstance(node, Condition):
        return "AND, OR or the end of the text"
    return "an operator or the end of the text"


def _by_name(parameters: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """Parameters by lower-case name without the @, which some clients leave out."""
    named: dict[str, PropertyValue] = {}
    for name, value in parameters.items():
        in_range = not isinstance(value, int) or -INT64_MAX - 1 <= value <= _UINT64_MAX
        if not (isinstance(value, _PARAMETER_TYPES) and in_range):
            raise ArgumentError(
                f"The parameter '{name}' has a value that SQL expressions do not know."
            )
        if isinstance(value, datetime | DateTimeTicks):
            value = in_utc(value)
        elif isinstance(value, LongInteger):
            value = int(value)
        named[name.removeprefix("@").lower()] = value
    return named
