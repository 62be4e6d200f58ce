"""SQL text → tree: the grammar of subscription filters and rule actions.

One method for each rule of the grammar, by hand rather than through a parser generator: it says in
plain words what was expected where, and costs nothing at start-up. Knows no messages.
A text is either read whole or refused with a position; nothing here recurses deeper than a bound.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from broker.core.errors import ArgumentError
from broker.core.sql import system
from broker.core.sql.errors import SqlSyntaxError
from broker.core.sql.lexer import INT64_MAX, Token, TokenKind, tokenize
from broker.core.sql.tree import (
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
    Property,
    PropertyCall,
    Remove,
    Sign,
    Statement,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from broker.core.message import PropertyValue

NESTING_MAX = 32
"""Parentheses, NOTs and signs inside each other. Keeps every recursion over a tree shallow."""

_COMPARISONS = ("=", "<>", "!=", ">", ">=", "<", "<=")
_CONSTANT_KEYWORDS: dict[str, PropertyValue] = {"TRUE": True, "FALSE": False, "NULL": None}
_PARAMETER_TYPES = (str, bool, int, float, bytes, UUID, datetime, timedelta, type(None))
_INT64_DIGITS = 19
_UINT64_MAX = 2**64 - 1


def parse_filter(text: str, parameters: Mapping[str, PropertyValue], max_characters: int) -> Node:
    """The condition a filter states."""
    return _Parser(text, parameters, max_characters).filter()


def parse_action(
    text: str, parameters: Mapping[str, PropertyValue], max_characters: int, max_statements: int
) -> list[Statement]:
    """The statements of an action, in order."""
    return _Parser(text, parameters, max_characters).action(max_statements)


class _Parser:
    """Recursive descent with one token of lookahead, two where a name may be a function."""

    def __init__(
        self, text: str, parameters: Mapping[str, PropertyValue], max_characters: int
    ) -> None:
        if len(text) > max_characters:
            raise ArgumentError(
                f"The SQL expression is {len(text)} characters long; the limit is {max_characters}."
            )
        self._text = text
        self._parameters = _by_name(parameters)
        self._tokens = tokenize(text)
        self._index = 0
        self._nesting = 0

    # --- filters ------------------------------------------------------------------------------

    def filter(self) -> Node:
        start = self._token
        node = self._or()
        self._require_condition(node, start)
        if not self._at_end():
            raise self._refusal(_what_may_follow(node))
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
        start = self._token
        node = operand()
        if not self._at_keyword(keyword):
            return node
        self._require_condition(node, start)
        operands = [node]
        while self._take_keyword(keyword):
            start = self._token
            node = operand()
            self._require_condition(node, start)
            operands.append(node)
        return join(tuple(operands))

    def _not(self) -> Node:
        """`NOT not | comparison`."""
        if not self._take_keyword("NOT"):
            return self._comparison()
        with self._nested():
            start = self._token
            operand = self._not()
            self._require_condition(operand, start)
            return Not(operand)

    def _comparison(self) -> Node:
        """`value [ cmp value | IS [NOT] NULL | [NOT] IN (…) | [NOT] LIKE value [ESCAPE value] ]`."""
        start = self._token
        left = self._additive()
        if self._at_symbol(*_COMPARISONS):
            operand = self._value(left, start)
            operator = self._next().value
            return Comparison("<>" if operator == "!=" else operator, operand, self._operand())
        if self._take_keyword("IS"):
            if not isinstance(left, Property | PropertyCall):
                raise self._refusal("a property to the left of IS", start)
            negated = self._take_keyword("NOT")
            self._expect_keyword("NULL", "NULL" if negated else "NULL or NOT NULL")
            return Not(IsNull(left)) if negated else IsNull(left)
        if not self._at_keyword("NOT", "IN", "LIKE"):
            return left
        operand = self._value(left, start)
        negated = self._take_keyword("NOT")
        if self._take_keyword("IN"):
            node: Node = In(operand, self._in_items())
        else:
            self._expect_keyword("LIKE", "IN or LIKE")
            pattern = self._operand()
            node = Like(operand, pattern, self._escape() if self._take_keyword("ESCAPE") else None)
        return Not(node) if negated else node

    def _in_items(self) -> tuple[Value, ...]:
        self._expect_symbol("(")
        items = [self._operand()]
        while self._take_symbol(","):
            items.append(self._operand())
        self._expect_symbol(")", "',' or ')'")
        return tuple(items)

    def _escape(self) -> Value:
        start = self._token
        escape = self._operand()
        if isinstance(escape, Constant) and not (
            escape.value is None or (isinstance(escape.value, str) and len(escape.value) == 1)
        ):
            raise self._refusal("one character to the right of ESCAPE", start)
        return escape

    # --- values -------------------------------------------------------------------------------

    def _operand(self) -> Value:
        """A value where nothing else will do."""
        start = self._token
        return self._value(self._additive(), start)

    def _additive(self) -> Node:
        """`multiplicative { (+|-) multiplicative }`."""
        return self._arithmetic(("+", "-"), self._multiplicative)

    def _multiplicative(self) -> Node:
        """`sign { (*|/|%) sign }`."""
        return self._arithmetic(("*", "/", "%"), self._sign)

    def _arithmetic(self, operators: tuple[str, ...], operand: Callable[[], Node]) -> Node:
        start = self._token
        first = operand()
        if not self._at_symbol(*operators):
            return first
        value = self._value(first, start)
        rest = []
        while self._at_symbol(*operators):
            operator = self._next().value
            start = self._token
            rest.append((operator, self._value(operand(), start)))
        return Arithmetic(value, tuple(rest))

    def _sign(self) -> Node:
        """`(+|-) sign | atom`. The sign of an integer belongs to it: -2^63 has no positive."""
        if not self._at_symbol("+", "-"):
            return self._atom()
        operator = self._next().value
        if self._token.kind is TokenKind.INTEGER:
            return self._integer(self._next(), operator)
        with self._nested():
            start = self._token
            return Sign(operator, self._value(self._sign(), start))

    def _atom(self) -> Node:
        """`constant | @parameter | property | function | EXISTS (property) | (condition)`."""
        token = self._token
        match token.kind:
            case TokenKind.INTEGER:
                return self._integer(self._next())
            case TokenKind.DECIMAL:
                return self._decimal(self._next())
            case TokenKind.TEXT:
                return Constant(self._next().value)
            case TokenKind.PARAMETER:
                return self._parameter(self._next())
            case TokenKind.KEYWORD if token.value in _CONSTANT_KEYWORDS:
                return Constant(_CONSTANT_KEYWORDS[self._next().value])
            case TokenKind.KEYWORD if token.value == "EXISTS":
                return self._exists()
            case TokenKind.NAME | TokenKind.DELIMITED_NAME:
                return self._property_or_function()
        if not self._take_symbol("("):
            raise self._refusal("a value")
        with self._nested():
            node = self._or()
            self._expect_symbol(")", "an operator or ')'")
            return node

    def _integer(self, token: Token, sign: str = "") -> Constant:
        digits = token.value.lstrip("0") or "0"
        value = int(sign + digits) if len(digits) <= _INT64_DIGITS else INT64_MAX + 1
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise self._refusal("an integer of at most 64 bits", token)
        return Constant(value)

    def _decimal(self, token: Token) -> Constant:
        value = float(token.value)
        if value == float("inf"):
            raise self._refusal("a number in the range of a double", token)
        return Constant(value)

    def _parameter(self, token: Token) -> Constant:
        name = token.value[1:].lower()
        if name not in self._parameters:
            raise self._refusal("a parameter that has been given a value", token)
        return Constant(self._parameters[name])

    def _exists(self) -> Exists:
        self._next()
        self._expect_symbol("(")
        start = self._token
        operand = self._additive()
        if not isinstance(operand, Property | PropertyCall):
            raise self._refusal("a property", start)
        self._expect_symbol(")")
        return Exists(operand)

    def _property_or_function(self) -> Node:
        token = self._token
        if token.kind is TokenKind.NAME and self._tokens[self._index + 1].source == "(":
            return self._function()
        return self._property()

    def _function(self) -> Node:
        """`newid() | property(value) | p(value)`."""
        token = self._next()
        name = token.value.lower()
        if name not in {"newid", "property", "p"}:
            raise self._refusal("the function newid, property or p", token)
        self._expect_symbol("(")
        with self._nested():
            node: Node = NewId() if name == "newid" else PropertyCall(self._operand())
            self._expect_symbol(")")
            return node

    def _property(self) -> Property:
        """`[ (sys|user) . ] name`."""
        token = self._name()
        if not self._take_symbol("."):
            return Property(token.value)
        scope = token.source.lower()
        if scope not in {"sys", "user"}:
            raise self._refusal(
                "the scope sys or user (a name with a dot goes in [brackets])", token
            )
        return Property(self._name().value, is_system=scope == "sys")

    def _name(self) -> Token:
        if self._token.kind is TokenKind.KEYWORD:
            raise self._refusal(
                f"a property name (write [{self._token.source}] to use this word as one)"
            )
        if self._token.kind not in {TokenKind.NAME, TokenKind.DELIMITED_NAME}:
            raise self._refusal("a property name")
        return self._next()

    # --- actions ------------------------------------------------------------------------------

    def action(self, max_statements: int) -> list[Statement]:
        """`statement { (; | , | ;,) statement } [;]`."""
        statements = [self._statement()]
        while not self._at_end():
            semicolon = self._take_symbol(";")
            if semicolon and self._at_end():
                break
            if not (self._take_symbol(",") or semicolon):
                raise self._refusal("an operator, ';', ',' or the end of the text")
            if len(statements) == max_statements:
                raise ArgumentError(
                    f"The SQL action has more than {max_statements} statements, the limit."
                )
            statements.append(self._statement())
        return statements

    def _statement(self) -> Statement:
        """`SET property = value | REMOVE property`."""
        verb = self._token
        if verb.source.upper() == "SET":
            self._next()
            target = self._target()
            self._expect_symbol("=")
            return Assign(target, self._operand())
        if verb.source.upper() == "REMOVE":
            self._next()
            return Remove(self._target())
        raise self._refusal("SET or REMOVE")

    def _target(self) -> Property:
        start = self._token
        target = self._property()
        if target.is_system and system.canonical(target.name) in system.READ_ONLY:
            raise self._refusal("a property that may be changed", start, f"sys.{target.name}")
        return target

    # --- tokens -------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _next(self) -> Token:
        token = self._tokens[self._index]
        self._index += 1
        return token

    def _at_end(self) -> bool:
        return self._token.kind is TokenKind.END

    def _at_keyword(self, *keywords: str) -> bool:
        token = self._token
        return token.kind is TokenKind.KEYWORD and token.value in keywords

    def _at_symbol(self, *symbols: str) -> bool:
        token = self._token
        return token.kind is TokenKind.SYMBOL and token.value in symbols

    def _take_keyword(self, keyword: str) -> bool:
        taken = self._at_keyword(keyword)
        self._index += taken
        return taken

    def _take_symbol(self, symbol: str) -> bool:
        taken = self._at_symbol(symbol)
        self._index += taken
        return taken

    def _expect_keyword(self, keyword: str, expected: str) -> None:
        if not self._take_keyword(keyword):
            raise self._refusal(expected)

    def _expect_symbol(self, symbol: str, expected: str | None = None) -> None:
        if not self._take_symbol(symbol):
            raise self._refusal(expected or f"'{symbol}'")

    # --- refusals -----------------------------------------------------------------------------

    def _require_condition(self, node: Node, start: Token) -> None:
        """A bare property, parameter or constant will do if it can be true."""
        if isinstance(node, Sign | Arithmetic | NewId):
            raise self._refusal("a condition", start, "a value")
        if isinstance(node, Constant) and not isinstance(node.value, bool | None):
            raise self._refusal("a condition", start)

    def _value(self, node: Node, start: Token) -> Value:
        """The node, if it can be compared or calculated with."""
        if isinstance(node, Condition):
            raise self._refusal("a value", start, "a condition")
        return node

    def _refusal(
        self, expected: str, token: Token | None = None, found: str | None = None
    ) -> SqlSyntaxError:
        token = token or self._token
        return SqlSyntaxError(self._text, token.position, found or token.description, expected)

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self._refusal(f"at most {NESTING_MAX} levels of nesting")
        yield
        self._nesting -= 1


def _what_may_follow(node: Node) -> str:
    if isinstance(node, Condition):
        return "AND, OR or the end of the text"
    return "an operator or the end of the text"


def _by_name(parameters: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """By lower-case name without the @, which some clients leave out."""
    named: dict[str, PropertyValue] = {}
    for name, value in parameters.items():
        in_range = not isinstance(value, int) or -INT64_MAX - 1 <= value <= _UINT64_MAX
        if not (isinstance(value, _PARAMETER_TYPES) and in_range):
            raise ArgumentError(
                f"The parameter '{name}' has a value that SQL expressions do not know."
            )
        if isinstance(value, datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        named[name.removeprefix("@").lower()] = value
    return named
