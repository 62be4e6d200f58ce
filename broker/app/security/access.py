"""Finds the authorization rules that apply, and authorizes HTTP requests.

Rules are those of the settings, of namespaces in the config file, and of entities. `protocol/identity` verifies
tokens. A change of a rule applies from the next check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import ArgumentError, Unauthorized
from config.model.definitions import AuthorizationRule
from config.settings.settings import Authorization, IdentityClients
from protocol.identity import (
    LISTEN,
    MANAGE,
    Grant,
    Identity,
    KeyRule,
    TokenRefused,
    bearer_tokens,
    missing_claim,
)
from protocol.identity.managed_identity import ManagedIdentity, is_for_service_bus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from broker.app.runtime.clock import Clock
    from broker.core.namespace import Namespace
    from config.files.topology import Topology
    from config.settings.settings import Settings
    from protocol.identity.managed_identity import TokenRequest

BEARER = "bearer "
NOT_IN_HOSTS = frozenset("/?#@\\ \t")
"""Characters that end the host of a URL, or cannot be in it."""


class AuthorizationRules:
    """All authorization rules: of the broker, of its namespaces and of their entities."""

    def __init__(
        self,
        everywhere: AuthorizationRule,
        of_namespaces: Mapping[str, Sequence[AuthorizationRule]],
        namespaces: Mapping[str, Namespace],
    ) -> None:
        self._everywhere = everywhere
        self._of_namespaces = of_namespaces
        self._namespaces = namespaces

    def named(self, key_name: str, namespace: str | None) -> Iterator[KeyRule]:
        """Yields the rules with a name that are valid in a namespace, or in any namespace if it is None."""
        name = key_name.lower()
        if name == self._everywhere.name.lower():
            yield KeyRule(self._everywhere)
        namespaces = list(self._namespaces) if namespace is None else [namespace]
        for one in namespaces:
            found = self._namespaces.get(one)
            if found is None:
                continue  # it was deleted
            for rule in self._of_namespaces.get(one, ()):
                if rule.name.lower() == name:
                    yield KeyRule(rule, "", one)
            if found.keys:
                for path, rule in found.keys.named(name):
                    yield KeyRule(rule, path.lower(), one)


class Access:
    """Authorizes clients."""

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        namespaces: Mapping[str, Namespace],
        clock: Clock,
        rules_of_namespaces: Mapping[str, Sequence[AuthorizationRule]] | None = None,
    ) -> None:
        """`rules_of_namespaces` has the present rules of whole namespaces; without it, they are those of the
        topology."""
        self._namespaces = namespaces
        self._revisions: dict[str, int] = {}
        strict = settings.authorization is Authorization.STRICT
        self.now_ms = clock.now_ms if strict else clock.real_ms
        """The time by which tokens expire. Clients date their tokens in real time, so a test that moves the
        clock by days must not make them expire, except in strict mode, which such tests check."""
        self.managed_identity = ManagedIdentity(settings.shared_access_key)
        self._identity_clients = settings.identity_clients or (
            IdentityClients.LOOPBACK if strict else IdentityClients.ANY
        )
        self._verify_other_bearer: bearer_tokens.Verify = bearer_tokens.refuse_bearer
        if strict and settings.jwt_keys is not None:
            keys = _read_keys(settings.jwt_keys)
            verifier = bearer_tokens.Verifier(keys, settings.jwt_issuer, settings.jwt_audience)
            self._verify_other_bearer = verifier.verify
        self.identity = Identity(
            AuthorizationRules(
                AuthorizationRule(settings.shared_access_key_name, settings.shared_access_key),
                topology.authorization_rules
                if rules_of_namespaces is None
                else rules_of_namespaces,
                namespaces,
            ),
            strict=strict,
            namespaces=namespaces.keys(),
            default_namespace=next(iter(topology.namespaces)),
            own_hosts=[settings.host, *(name for name in settings.tls_names if "*" not in name)],
            verify_bearer=self._verify_bearer if strict else bearer_tokens.accept_unverified,
        )

    def authorize_http(
        self, header: str | None, path: str, claim: str, host: str = "", entity: str | None = None
    ) -> str:
        """Returns the namespace of a request. Raises `Unauthorized`.

        The token must be valid for the path, which is decoded. The key of a rule must be valid on the entity.
        """
        identity = self.identity
        _check_host(host)
        namespace = identity.namespace_of_host(host)
        if header is None:
            if identity.strict:
                raise TokenRefused("MissingToken: The request has no Authorization header.")
            return namespace or identity.default_namespace
        grant = self._grant(header, path, namespace, host, entity)
        if identity.strict and claim not in grant.claims:
            raise missing_claim(claim, f"sb://{host}/{path}")
        return namespace or grant.namespace or identity.default_namespace

    def authorize_everything(self, header: str | None, host: str = "") -> None:
        """Raises `Unauthorized` unless the token is made with the key of the whole broker."""
        self.authorize_http(header, "", MANAGE, host, "")
        if header is None:
            return
        if self._grant(header, "", None, host, "").namespace is not None:
            raise Unauthorized("This request needs the shared access key of the whole broker.")

    def authorize_metrics(self, header: str | None, host: str = "") -> None:
        """Raises `Unauthorized` unless the token allows to read the metrics of all entities. A scraper needs no
        key that allows more than Listen, if there is one namespace."""
        if not self.identity.strict:
            return
        self.authorize_http(header, "", LISTEN, host, "")
        if len(self._namespaces) > 1:
            self.authorize_everything(header, host)

    def authorize_clock(self, header: str | None, host: str = "") -> None:
        """Raises `Unauthorized` unless the token allows to move the clock, which all clients share."""
        if self.identity.strict:
            self.authorize_everything(header, host)

    def authorize_control(
        self, header: str | None, path: str, host: str, namespace: str | None
    ) -> str | None:
        """Returns the namespace of a request to the control API, or None if there is none of this name. Raises
        `Unauthorized`. In strict mode the token must grant Manage in the whole namespace."""
        identity = self.identity
        if header is None or namespace is None:
            found = self.authorize_http(header, path, MANAGE, host, "")
            if namespace is None:
                return found
        else:
            _check_host(host)
            grant = self._grant(header, path, None, host, "")
            if identity.strict and MANAGE not in grant.claims:
                raise missing_claim(MANAGE, f"sb://{host}/{path}")
            if identity.strict and grant.namespace not in {None, namespace.lower()}:
                raise Unauthorized(f"This key is not valid in the namespace '{namespace}'.")
        return next((name for name in self._namespaces if name.lower() == namespace.lower()), None)

    def _grant(
        self, header: str, path: str, namespace: str | None, host: str, entity: str | None
    ) -> Grant:
        token = header[len(BEARER) :] if header[: len(BEARER)].lower() == BEARER else header
        return self.identity.verify_token_on_path(
            token.strip(), path.strip("/"), self.now_ms(), namespace, host=host, entity=entity
        )

    # --- managed identity ----------------------------------------------------------------------

    @property
    def issues_identity_tokens(self) -> bool:
        """Whether the managed identity endpoint issues tokens."""
        return self._identity_clients is not IdentityClients.NONE

    def identity_token(self, request: TokenRequest) -> str:
        """Returns a token if the request has the right secret. Raises `Unauthorized` or `ArgumentError`.

        The token allows everything, as the key from which the secret is derived.
        """
        if not request.is_local and self._identity_clients is not IdentityClients.ANY:
            raise Unauthorized(
                "Tokens are issued to clients on the broker's own machine; "
                "identity_clients=any lets others fetch them."
            )
        if request.secret is None or not self.managed_identity.is_secret(request.secret):
            raise Unauthorized(
                "The X-IDENTITY-HEADER is not this broker's; `peeklock env` prints IDENTITY_HEADER."
            )
        if not request.resource or not is_for_service_bus(request.resource):
            raise ArgumentError(
                "Tokens are issued for https://servicebus.azure.net, which the parameter "
                "'resource' must name."
            )
        return self.managed_identity.token(request.resource, self.now_ms())

    def _verify_bearer(self, token: str, now_ms: int) -> Grant:
        if self.managed_identity.issued(token):
            return self.managed_identity.verify(token, now_ms)
        return self._verify_other_bearer(token, now_ms)

    def rules_changed(self) -> bool:
        """Returns whether any rule was added, changed or removed since the last call."""
        # One for each namespace: a sum would not change if a namespace is deleted beside a change.
        revisions = {name: one.keys.revision for name, one in self._namespaces.items()}
        changed = revisions != self._revisions
        self._revisions = revisions
        return changed


def _check_host(host: str) -> None:
    """Raises `TokenRefused` if a `Host` header contains more than a host and a port."""
    if not NOT_IN_HOSTS.isdisjoint(host):
        raise TokenRefused("InvalidAudience: The Host header is not a host name with a port.")


def _read_keys(path: Path) -> list[bearer_tokens.Key]:
    try:
        return bearer_tokens.read_keys(path.read_bytes())
    except ValueError as error:
        raise OSError(0, f"the keys for bearer tokens in {path} are unusable: {error}") from error
