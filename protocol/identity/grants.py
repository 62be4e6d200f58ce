"""What verified credentials allow: claims on a path and below it, until they run out.

Owns how paths cover each other and what a connection holds at a moment; not how a credential is
verified. Manage includes the other claims, and a grant never reaches above its path.
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
"""Of an audience: no entity has so long a path."""


class TokenRefused(Unauthorized):
    """The token itself is no good: its text starts with the code the service uses."""


class KeyRule(NamedTuple):
    """An authorization rule and where it holds."""

    rule: AuthorizationRule
    path: str = ""
    """Lower-case path of the entity that declares it; empty for the whole namespace."""
    namespace: str | None = None
    """None: every namespace."""

    @property
    def claims(self) -> frozenset[str]:
        """What its keys allow."""
        return ALL_CLAIMS if MANAGE in self.rule.rights else self.rule.rights

    def holds_on(self, path: str) -> bool:
        """Whether it holds on what has this path in lower case: the entity that declares it, its
        sub-queues and nodes, and the subscriptions of a topic. `orders/eu` is another entity."""
        if not self.path or path == self.path:
            return True
        below = path[len(self.path) :] if path.startswith(self.path) else ""
        return below.startswith(("/$", "/subscriptions/"))

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Its keys as they sign: the text itself, whatever it would decode to."""
        return tuple(
            key.encode() for key in (self.rule.primary_key, self.rule.secondary_key) if key
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """What a verified credential allows, on a path and below."""

    claims: frozenset[str]
    path: str = ""
    """Lower-case entity path; empty for the whole namespace."""
    expires_at_ms: int = NEVER_MS
    key_rule: KeyRule | None = None
    """The rule whose key was used; None for a bearer token."""
    key: bytes = b""

    @property
    def namespace(self) -> str | None:
        """The only namespace it is good for; None: any."""
        return None if self.key_rule is None else self.key_rule.namespace

    def reaches(self, path: str) -> bool:
        """Whether it is good for what has this path in lower case: its own path or one below it,
        and of a rule's key no more than the entity that declares the rule."""
        return covers(self.path, path) and (self.key_rule is None or self.key_rule.holds_on(path))


class Grants:
    """What one connection has been granted: by its own credentials, and by tokens, one a path."""

    def __init__(self, tokens_max: int) -> None:
        self._tokens_max = tokens_max
        self._connection_grants: tuple[Grant, ...] = ()
        self._tokens: dict[str, Grant] = {}

    def set_connection_grants(self, grants: Iterable[Grant]) -> None:
        """Have these for as long as the connection lasts."""
        self._connection_grants = tuple(grants)

    def put(self, grant: Grant) -> Grant | None:
        """Have the grant of a token, in place of what an earlier one gave for the same path."""
        replaced = self._tokens.get(grant.path)
        if replaced is None and len(self._tokens) >= self._tokens_max:
            raise QuotaExceeded("Too many tokens were put on this connection.")
        self._tokens[grant.path] = grant
        return replaced

    def drop(self, path: str) -> None:
        """Forget the token for this path."""
        self._tokens.pop(path, None)

    def allow(self, claim: str | None, path: str, now_ms: int) -> bool:
        """Whether any of them covers a claim on a path now; None stands for any claim."""
        return any(
            grant.expires_at_ms > now_ms and (claim is None or claim in grant.claims)
            for grant in self._covering(path)
        )

    def any_holds(self, now_ms: int) -> bool:
        """Whether any of them has not run out."""
        grants = (*self._connection_grants, *self._tokens.values())
        return any(grant.expires_at_ms > now_ms for grant in grants)

    def keep(self, good: Callable[[Grant], bool]) -> bool:
        """Forget all that are not good any more; whether there were any."""
        before = len(self._connection_grants) + len(self._tokens)
        self._connection_grants = tuple(filter(good, self._connection_grants))
        self._tokens = {path: grant for path, grant in self._tokens.items() if good(grant)}
        return len(self._connection_grants) + len(self._tokens) < before

    def next_expiry_ms(self) -> int:
        """When the first of them runs out; `NEVER_MS` if none does."""
        return min((grant.expires_at_ms for grant in self._tokens.values()), default=NEVER_MS)

    def _covering(self, path: str) -> Iterator[Grant]:
        path = path.lower()
        yield from (grant for grant in self._connection_grants if grant.reaches(path))
        above = path if len(path) <= RESOURCE_MAX_CHARACTERS else ""
        while True:
            grant = self._tokens.get(above)
            if grant is not None and grant.reaches(path):
                yield grant
            if not above:
                return
            above = above.rpartition("/")[0]


def covers(granted: str, path: str) -> bool:
    """Whether a grant on one path reaches another: the same, below it, or the whole namespace."""
    path = path.lower()
    return not granted or path == granted or path.startswith(granted + "/")


def path_of(resource: str) -> str:
    """`sb://host:port/Some/Path/` → `some/path`; a bare host is the whole namespace."""
    return spelled_path_of(resource).lower()


def host_of(resource: str) -> str:
    """`sb://Host:5672/path` → `host`; without a scheme what stands first is the host."""
    rest = resource.partition("://")[2] or resource
    host = rest.partition("/")[0].partition("?")[0].lower()
    if host.startswith("["):  # IPv6
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def spelled_path_of(resource: str) -> str:
    """`sb://host:port/Some/Path/` → `Some/Path`."""
    rest = (resource.partition("://")[2] or resource).partition("?")[0]
    return unquote(rest.partition("/")[2]).strip("/")


def expired(expires_at_ms: int) -> TokenRefused:
    """The refusal of a token whose time is over, in the service's words."""
    try:
        at = datetime.fromtimestamp(expires_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return TokenRefused("ExpiredToken: The token is expired.")
    return TokenRefused(f"ExpiredToken: The token is expired. Expiration time: '{at}'.")


def missing_claim(claim: str, resource: str) -> Unauthorized:
    """The refusal of a client whose credentials do not go far enough."""
    return Unauthorized(
        f"Unauthorized access. '{claim}' claim(s) are required to perform this operation. "
        f"Resource: '{resource}'."
    )
