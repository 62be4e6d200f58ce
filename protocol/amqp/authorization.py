"""What one AMQP connection may do: its namespace, its grants, and the claims that each link requires.

`protocol.identity` verifies credentials. In strict mode a link to an entity requires claims: it is not attached
without them, and `links_without_claims` returns it when they are gone. In development mode nothing is required.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import Unauthorized
from protocol.identity import NEVER_MS, Grants, TokenRefused, missing_claim, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.amqp.engine.interface import EngineLink
    from protocol.identity import Grant, Identity

    Need = tuple[str | None, str]
    """A claim on a path; None stands for any claim."""


class ConnectionAuthorization:
    """The authorization of one connection."""

    def __init__(
        self,
        identity: Identity,
        now_ms: Callable[[], int],
        *,
        tokens_max: int,
        authorization_timeout_ms: int,
    ) -> None:
        self._identity = identity
        self._now_ms = now_ms
        self._authorization_timeout_ms = authorization_timeout_ms
        self._grants = Grants(tokens_max)
        self._needs: dict[EngineLink, tuple[Need, ...]] = {}
        self._credentials: tuple[str, str] | None = None
        self.hostname = ""
        self._token_due_ms = NEVER_MS
        self.is_authenticated = False
        """The client has shown a valid key or token."""
        self.key_name: str | None = None
        """The name of the key that was used last. None for a bearer token."""
        self.namespace: str | None = None
        """The namespace that the host name or a key selected. None if none is selected yet."""

    # --- credentials ---------------------------------------------------------------------------

    def authenticate(self, user: str, password: str) -> bool:
        """Keeps the name and key of a rule as credentials of the connection. Returns False if they are wrong."""
        if not self._identity.is_key_of_rule(user, password):
            return False
        self._credentials = (user, password)
        return True

    def open(self, hostname: str) -> None:
        """Selects the namespace of a host. Raises `TokenRefused` if the credentials are of another namespace."""
        self.hostname = hostname
        self.namespace = self._identity.namespace_of_host(hostname)
        if self._credentials is not None:
            grants = self._identity.verify_plain(*self._credentials, self.namespace)
            self._credentials = None
            if not grants:
                raise TokenRefused(
                    f"InvalidSignature: The key is not one of the namespace '{self.namespace}'."
                )
            self.is_authenticated = True
            self._grants.set_connection_grants(grants)
            self._select(grants[0])
        elif self._identity.strict:
            self._token_due_ms = self._now_ms() + self._authorization_timeout_ms

    def put_token(self, audience: str, token: str) -> bool:
        """Verifies a token and replaces the grant of an earlier token for the same path.

        Returns True if fewer claims are granted than before. Raises `TokenRefused`.
        """
        grant = self._identity.verify_token(
            token, audience, self._now_ms(), self.namespace, host=self.hostname
        )
        replaced = self._grants.put(grant)
        self._select(grant)
        self._token_due_ms = NEVER_MS
        self.is_authenticated = True
        return replaced is not None and not replaced.claims <= grant.claims

    def delete_token(self, audience: str) -> None:
        """Removes the grant of a token."""
        self._grants.drop(path_of(audience))

    def expire_tokens(self) -> None:
        """Removes the grants of all tokens."""
        self._grants.drop_tokens()

    @property
    def key_names(self) -> set[str]:
        """The names of the rules whose keys the client has used."""
        return self._grants.key_names

    def namespace_and_key_of(self, token: str, audience: str) -> tuple[str, str | None] | None:
        """Returns the namespace that the connection would be in with a token, and the name of the token's key. None if
        the token would be refused."""
        try:
            grant = self._identity.verify_token(
                token, audience, self._now_ms(), self.namespace, host=self.hostname
            )
        except TokenRefused:
            return None
        namespace = self.namespace or grant.namespace or self._identity.default_namespace
        return namespace, None if grant.key_rule is None else grant.key_rule.rule.name

    @property
    def is_namespace_known(self) -> bool:
        """Whether the namespace is selected, or there is only one."""
        return self.namespace is not None or self._identity.has_one_namespace

    @property
    def default_namespace(self) -> str:
        """The namespace of clients that select no other."""
        return self._identity.default_namespace

    @property
    def expected_namespace(self) -> str:
        """The namespace that is used if nothing else selects one."""
        return self.namespace or self._identity.default_namespace

    def fix_namespace(self) -> str:
        """Returns the namespace that is used from now on. A later key cannot select another."""
        if self.namespace is None:
            self.namespace = self._identity.default_namespace
        return self.namespace

    def _select(self, grant: Grant) -> None:
        self.key_name = None if grant.key_rule is None else grant.key_rule.rule.name
        if self.namespace is None:
            self.namespace = grant.namespace

    # --- claims -------------------------------------------------------------------------------

    def has(self, claim: str, path: str) -> bool:
        """Whether the claim is granted on this path."""
        return self._has((claim, path))

    def authorize(self, claim: str, path: str) -> None:
        """Raises `Unauthorized` unless the claim is granted on this path."""
        if not self._has((claim, path)):
            raise self._refusal((claim, path))

    def authorize_transaction(self) -> None:
        """Raises `Unauthorized` unless the client has a valid token or key for anything."""
        if not self.has_any:
            raise Unauthorized(
                "Unauthorized access. A transaction can be used once a token has been put. "
                f"Resource: '{self._resource('')}'."
            )

    def require(self, link: EngineLink, *needs: Need) -> None:
        """Records the claims that a link requires. Raises `Unauthorized` if one is not granted."""
        for need in needs:
            if not self._has(need):
                raise self._refusal(need)
        if self._identity.strict:
            self._needs[link] = needs

    def forget(self, link: EngineLink) -> None:
        """Forgets the claims of a link."""
        self._needs.pop(link, None)

    def _has(self, need: Need) -> bool:
        return not self._identity.strict or self._grants.allow(*need, self._now_ms())

    def _refusal(self, need: Need) -> Unauthorized:
        claim, path = need
        return missing_claim(claim or "Send,Listen,Manage", self._resource(path))

    def _resource(self, path: str) -> str:
        return f"sb://{self.hostname}/{path}"

    @property
    def has_any(self) -> bool:
        """Whether the client has a valid token or key, or none is required."""
        return not self._identity.strict or self._grants.has_valid(self._now_ms())

    # --- expiry -------------------------------------------------------------------------------

    @property
    def is_overdue(self) -> bool:
        """Whether the client should have put a token by now."""
        return self._now_ms() >= self._token_due_ms

    def next_check_ms(self) -> int:
        """Returns when a grant expires or a token is overdue. `NEVER_MS` if there is no such time."""
        if not self._identity.strict:
            return NEVER_MS
        return min(self._token_due_ms, self._grants.next_expiry_ms())

    def links_without_claims(self) -> list[tuple[EngineLink, Unauthorized]]:
        """Removes grants that have expired or whose key was withdrawn. Returns the links whose claims are gone."""
        if not self._identity.strict:
            return []
        now_ms = self._now_ms()
        withdrawn = self._grants.keep(self._identity.is_still_valid)
        self._grants.keep(lambda grant: grant.expires_at_ms > now_ms)
        reason = "ExpiredToken: The token is expired, and no other was put in its place."
        if withdrawn:
            reason = "InvalidSignature: The key that signed the token was withdrawn."
        return [
            (link, Unauthorized(f"{reason} Resource: '{self._resource(need[1])}'."))
            for link, needs in self._needs.items()
            if (need := next((one for one in needs if not self._has(one)), None)) is not None
        ]
