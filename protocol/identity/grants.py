"""Grants of verified credentials: claims on a path and below it, until they expire.

Manage includes the other claims. A grant is not valid above its path.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from broker.core.contract.errors import QuotaExceeded, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from config.model.definitions import AuthorizationRule

SEND, LISTEN, MANAGE = "Send", "Listen", "Manage"
ALL_CLAIMS = frozenset({SEND, LISTEN, MANAGE})
NEVER_MS = 1 << 62


TOKEN_MAX_CHARACTERS = 32 * 1024
"""Tokens of Microsoft Entra ID with all their groups stay well below."""
RESOURCE_MAX_CHARACTERS = 2048
"""Maximum length of an audience. No entity has such a long path."""


class TokenRefused(Unauthorized):
    """The token is not valid. The text begins with the code that the service uses."""


class KeyRule(NamedTuple):
    """An authorization rule, and where it is valid."""

    rule: AuthorizationRule
    path: str = ""
    """Lower-case path of the entity that declares it; empty for the whole namespace."""
    namespace: str | None = None
    """None: it is valid in every namespace."""

    @property
    def claims(self) -> frozenset[str]:
        """The claims of its keys."""
        return ALL_CLAIMS if MANAGE in self.rule.rights else self.rule.rights

    def is_valid_on(self, path: str) -> bool:
        """Whether it is valid for a path in lower case: that of the entity that declares it, its sub-queues and nodes,
        and the subscriptions of a topic. `orders/eu` is another entity."""
        if not self.path or path == self.path:
            return True
        below = path[len(self.path) :] if path.startswith(self.path) else ""
        return below.startswith(("/$", "/subscriptions/"))

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Its keys as they sign: the text itself, not what it encodes."""
        return tuple(
            key.encode() for key in (self.rule.primary_key, self.rule.secondary_key) if key
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """The claims of a verified credential, on a path and below it."""

    claims: frozenset[str]
    path: str = ""
    """Lower-case entity path; empty for the whole namespace."""
    expires_at_ms: int = NEVER_MS
    key_rule: KeyRule | None = None
    """The rule whose key was used; None for a bearer token."""
    key: bytes = b""

    @property
    def namespace(self) -> str | None:
        """The namespace in which it is valid. None: any."""
        return None if self.key_rule is None else self.key_rule.namespace

    def is_valid_for(self, path: str) -> bool:
        """Whether it is valid for a path in lower case: its own path or one below it, and for a key only within the
        entity that declares the rule."""
        return covers(self.path, path) and (
            self.key_rule is None or self.key_rule.is_valid_on(path)
        )


class Grants:
    """The grants of one connection: by its own credentials, and by tokens, one for each path."""

    def __init__(self, tokens_max: int) -> None:
        self._tokens_max = tokens_max
        self._connection_grants: tuple[Grant, ...] = ()
        self._tokens: dict[str, Grant] = {}

    def set_connection_grants(self, grants: Iterable[Grant]) -> None:
        """Sets the grants that are valid until the connection ends."""
        self._connection_grants = tuple(grants)

    def put(self, grant: Grant) -> Grant | None:
        """Adds the grant of a token. Returns the grant of an earlier token for the same path, which it replaces."""
        replaced = self._tokens.get(grant.path)
        if replaced is None and len(self._tokens) >= self._tokens_max:
            raise QuotaExceeded("Too many tokens were put on this connection.")
        self._tokens[grant.path] = grant
        return replaced

    def drop_tokens(self) -> None:
        """Removes all tokens."""
        self._tokens.clear()

    @property
    def key_names(self) -> set[str]:
        """The names of the rules whose keys were used."""
        used = (*self._connection_grants, *self._tokens.values())
        return {grant.key_rule.rule.name for grant in used if grant.key_rule is not None}

    def drop(self, path: str) -> None:
        """Removes the token for this path."""
        self._tokens.pop(path, None)

    def allow(self, claim: str | None, path: str, now_ms: int) -> bool:
        """Whether a claim is granted on a path now. None means any claim."""
        return any(
            grant.expires_at_ms > now_ms and (claim is None or claim in grant.claims)
            for grant in self._grants_for(path)
        )

    def has_valid(self, now_ms: int) -> bool:
        """Whether any grant has not expired."""
        grants = (*self._connection_grants, *self._tokens.values())
        return any(grant.expires_at_ms > now_ms for grant in grants)

    def keep(self, good: Callable[[Grant], bool]) -> bool:
        """Removes all grants for which `good` returns False. Returns whether there were any."""
        before = len(self._connection_grants) + len(self._tokens)
        self._connection_grants = tuple(filter(good, self._connection_grants))
        self._tokens = {path: grant for path, grant in self._tokens.items() if good(grant)}
        return len(self._connection_grants) + len(self._tokens) < before

    def next_expiry_ms(self) -> int:
        """Returns when the first token expires. `NEVER_MS` if none does."""
        return min((grant.expires_at_ms for grant in self._tokens.values()), default=NEVER_MS)

    def _grants_for(self, path: str) -> Iterator[Grant]:
        path = path.lower()
        yield from (grant for grant in self._connection_grants if grant.is_valid_for(path))
        above = path if len(path) <= RESOURCE_MAX_CHARACTERS else ""
        while True:
            grant = self._tokens.get(above)
            if grant is not None and grant.is_valid_for(path):
                yield grant
            if not above:
                return
            above = above.rpartition("/")[0]


def covers(granted: str, path: str) -> bool:
    """Whether a grant on one path is valid for another: the same, one below it, or any if it is empty."""
    path = path.lower()
    return not granted or path == granted or path.startswith(granted + "/")


def path_of(resource: str) -> str:
    """`sb://host:port/Some/Path/` → `some/path`; a bare host is the whole namespace."""
    return case_preserving_path_of(resource).lower()


def host_of(resource: str) -> str:
    """`sb://Host:5672/path` → `host`; without a scheme the first segment is the host."""
    rest = resource.partition("://")[2] or resource
    host = rest.partition("/")[0].partition("?")[0].lower()
    if host.startswith("["):  # IPv6
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def case_preserving_path_of(resource: str) -> str:
    """`sb://host:port/Some/Path/` → `Some/Path`."""
    rest = (resource.partition("://")[2] or resource).partition("?")[0]
    return unquote(rest.partition("/")[2]).strip("/")


def expired(expires_at_ms: int) -> TokenRefused:
    """Returns the refusal of an expired token, worded as by the service."""
    try:
        at = datetime.fromtimestamp(expires_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return TokenRefused("ExpiredToken: The token is expired.")
    return TokenRefused(f"ExpiredToken: The token is expired. Expiration time: '{at}'.")


def missing_claim(claim: str, resource: str) -> Unauthorized:
    """Returns the refusal of a client that does not have a claim."""
    return Unauthorized(
        f"Unauthorized access. '{claim}' claim(s) are required to perform this operation. "
        f"Resource: '{resource}'."
    )
