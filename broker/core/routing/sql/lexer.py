"""Splits SQL text into tokens, and steps through them.

Every token has its offset, for the position in error messages.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from broker.core.routing.sql.sql_errors import SqlSyntaxError

KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"}
)

INT64_MAX = 2**63 - 1


class TokenKind(Enum):
    NAME = "name"
    DELIMITED_NAME = "delimited name"
    KEYWORD = "keyword"
    PARAMETER = "parameter"
    INTEGER = "integer"
    DECIMAL = "decimal"
    TEXT = "text"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    kind: TokenKind
    value: str
    """A name or text without quotes, a keyword in capitals, or anything else as written."""
    position: int
    source: str

    @property
    def is_word(self) -> bool:
        """Whether it is a keyword or a symbol. A quoted name or text can look like one."""
        return self.kind is TokenKind.SYMBOL or self.kind is TokenKind.KEYWORD

    @property
    def description(self) -> str:
        """Returns its description in error messages."""
        if self.kind is TokenKind.END:
            return "the end of the text"
        shown = self.source if len(self.source) <= 40 else f"{self.source[:37]}..."
        return shown if self.kind is TokenKind.TEXT else f"'{shown}'"


# Letters after a number belong to the token, so that it is refused as a whole. Quotes match
# possessively, so that a doubled quote never ends the text.
_TOKEN = re.compile(
    r"""
      (?P<space>      \s+ )
    | (?P<name>       [^\W\d_]\w* )
    | (?P<number>     (?: [0-9]+ (?: \.[0-9]* )? | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? (?P<tail> \w* ) )
    | (?P<text>       ' (?: [^'] | '' )*+ ' )
    | (?P<bracketed>  \[ (?: [^\]] | \]\] )++ \] )
    | (?P<quoted>     " (?: [^"] | "" )++ " )
    | (?P<parameter>  @ \w+ )
    | (?P<symbol>     <> | != | >= | <= | [=<>+\-*/%(),.;] )
    """,
    re.VERBOSE,
)

_UNCLOSED = {"'": "a closing '", "[": "a name and a closing ]", '"': 'a name and a closing "'}


def tokenize(text: str) -> list[Token]:
    """Returns all tokens. The last is END. Raises `SqlSyntaxError`."""
    tokens: list[Token] = []
    position = 0
    end = len(text)
    match_token = _TOKEN.match
    while position < end:
        match = match_token(text, position)
        if match is None:
            raise _unreadable(text, position)
        group = match.lastgroup
        if group == "symbol":  # the most frequent kind
            symbol = match.group()
            tokens.append(Token(TokenKind.SYMBOL, symbol, position, symbol))
        elif group != "space":
            kind, value = _classify(match)
            tokens.append(Token(kind, value, position, match.group()))
        position = match.end()
    tokens.append(Token(TokenKind.END, "", len(text), ""))
    return tokens


class TokenReader:
    """Steps through the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._index = 0
        self.token = self._tokens[0]
        """The current token."""

    def advance(self) -> Token:
        """Returns the current token and steps over it, unless it is END."""
        token = self.token
        self._index += 1
        self.token = self._tokens[self._index]
        return token

    def at_end(self) -> bool:
        return self.token.kind is TokenKind.END

    def at(self, *words: str) -> bool:
        """Returns whether the current token is one of these keywords or symbols."""
        token = self.token
        return token.value in words and token.is_word

    def followed_by(self, symbol: str) -> bool:
        """Returns whether the token after the current one is this keyword or symbol."""
        token = self._tokens[self._index + 1]
        return token.kind is TokenKind.SYMBOL and token.value == symbol

    def take(self, word: str) -> bool:
        """Steps over the current token if it is this keyword or symbol. Returns whether it was."""
        token = self.token
        if token.value != word or not token.is_word:
            return False
        self._index += 1
        self.token = self._tokens[self._index]
        return True

    def expect(self, word: str, expected: str | None = None) -> None:
        """Steps over this keyword or symbol. Raises `SqlSyntaxError` for any other token."""
        if not self.take(word):
            raise self.refusal(expected or f"'{word}'")

    def refusal(
        self, expected: str, token: Token | None = None, found: str | None = None
    ) -> SqlSyntaxError:
        """Returns the error for a token, by default the current one."""
        token = token or self.token
        return SqlSyntaxError(self._text, token.position, found or token.description, expected)


def _classify(match: re.Match[str]) -> tuple[TokenKind, str]:
    source = match.group()
    match match.lastgroup:
        case "name":
            capitals = source.upper()
            if capitals in KEYWORDS:
                return TokenKind.KEYWORD, capitals
            return TokenKind.NAME, source
        case "number":
            if match["tail"]:
                raise SqlSyntaxError(match.string, match.start(), f"'{source}'", "a number")
            return (TokenKind.INTEGER if source.isdecimal() else TokenKind.DECIMAL), source
        case "text":
            return TokenKind.TEXT, source[1:-1].replace("''", "'")
        case "bracketed":
            return TokenKind.DELIMITED_NAME, source[1:-1].replace("]]", "]")
        case "quoted":
            return TokenKind.DELIMITED_NAME, source[1:-1].replace('""', '"')
        case "parameter":
            return TokenKind.PARAMETER, source
        case _:
            return TokenKind.SYMBOL, source


def _unreadable(text: str, position: int) -> SqlSyntaxError:
    character = text[position]
    closing = _UNCLOSED.get(character)
    if closing is not None:
        return SqlSyntaxError(text, position, f"an unmatched {character}", closing)
    expected = "a value, a name or an operator (names with other characters go in [brackets])"
    return SqlSyntaxError(text, position, f"'{character}'", expected)
