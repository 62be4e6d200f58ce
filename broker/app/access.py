"""Who may do what on this broker: the keys it was started with and those its entities have now.

Owns finding rules and the HTTP side of authorization; verifying is `protocol.identity`'s. A rule that
administration adds, changes or removes counts from the next look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.errors import Unauthorized
from config.entities import AuthorizationRule
from config.settings import Authorization
from protocol.identity import (
    MANAGE,
    Grant,
    Identity,
    KeyRule,
    TokenRefused,
    bearer,
    missing_claim,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from broker.app.clock import Clock
    from broker.core.namespace import Namespace
    from config.settings import Settings
    from config.topology import Topology

BEARER = "bearer "


class Rules:
    """Every authorization rule: of the broker, of its namespaces, and of their entities."""

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
        """Every rule of a name that holds in a namespace, or, for None, in any of them."""
        name = key_name.lower()
        if name == self._everywhere.name.lower():
            yield KeyRule(self._everywhere)
        for one in list(self._namespaces) if namespace is None else [namespace]:
            for rule in self._of_namespaces.get(one, ()):
                if rule.name.lower() == name:
                    yield KeyRule(rule, "", one)
            for path, rule in self._namespaces[one].keys.named(name):
                yield KeyRule(rule, path.lower(), one)


class Access:
    """Decides who is let in, and where to."""

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        namespaces: Mapping[str, Namespace],
        clock: Clock,
    ) -> None:
        self._namespaces = namespaces
        self._revision = 0
        strict = settings.authorization is Authorization.STRICT
        self.now_ms = clock.now_ms if strict else clock.real_ms
        """By which tokens run out. A test that moves the clock by days must not lock out clients
        who date their tokens by their own, unless it is strictness that is tested."""
        verifier = None
        if strict and settings.jwt_keys is not None:
            keys = _read_keys(settings.jwt_keys)
            verifier = bearer.Verifier(keys, settings.jwt_issuer, settings.jwt_audience)
        self.identity = Identity(
            Rules(
                AuthorizationRule(settings.shared_access_key_name, settings.shared_access_key),
                topology.authorization_rules,
                namespaces,
            ),
            strict=strict,
            namespaces=namespaces.keys(),
            default_namespace=next(iter(topology.namespaces)),
            verify_bearer=None if verifier is None else verifier.verify,
        )

    def authorize_http(self, header: str | None, path: str, claim: str, host: str = "") -> str:
        """The namespace a request is for; raises `Unauthorized` if it may not do that there."""
        identity = self.identity
        namespace = identity.namespace_of_host(host)
        if header is None:
            if identity.strict:
                raise TokenRefused("MissingToken: The request has no Authorization header.")
            return namespace or identity.default_namespace
        audience = f"sb://{host}/{path}"
        grant = self._grant(header, audience, namespace)
        if identity.strict and claim not in grant.claims:
            raise missing_claim(claim, audience)
        return namespace or grant.namespace or identity.default_namespace

    def authorize_everything(self, header: str | None) -> None:
        """Raise `Unauthorized` unless this is a key to the whole broker."""
        self.authorize_http(header, "", MANAGE)
        if header is not None and self._grant(header, "sb:///", None).namespace is not None:
            raise Unauthorized("The whole broker is for the key that may do everything.")

    def _grant(self, header: str, audience: str, namespace: str | None) -> Grant:
        token = header[len(BEARER) :] if header[: len(BEARER)].lower() == BEARER else header
        return self.identity.verify_token(token.strip(), audience, self.now_ms(), namespace)

    def rules_changed(self) -> bool:
        """Whether any rule came, changed or went since this was last asked."""
        revision = sum(namespace.keys.revision for namespace in self._namespaces.values())
        changed = revision != self._revision
        self._revision = revision
        return changed


def _read_keys(path: Path) -> list[bearer.Key]:
    try:
        return bearer.read_keys(path.read_bytes())
    except ValueError as error:
        raise OSError(0, f"the keys for bearer tokens in {path} are unusable: {error}") from error
