"""Verifies credentials with the present authorization rules, and returns grants.

Finds the rule of a credential and the namespace that it selects. A key is valid only within the entity on which its rule
is declared.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from protocol.identity import bearer_tokens, sas
from protocol.identity.grants import (
    RESOURCE_MAX_CHARACTERS,
    TOKEN_MAX_CHARACTERS,
    Grant,
    KeyRule,
    TokenRefused,
    covers,
    expired,
    host_of,
    path_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


class KeyRuleSource(Protocol):
    """The present authorization rules."""

    def named(self, key_name: str, namespace: str | None) -> Iterable[KeyRule]:
        """Returns the rules of a name that are valid in a namespace, or in any namespace for None."""


class Identity:
    """Verifies credentials against the declared authorization rules."""

    def __init__(
        self,
        key_rules: KeyRuleSource,
        *,
        strict: bool,
        namespaces: Collection[str] = (),
        default_namespace: str = "",
        own_hosts: Collection[str] = (),
        verify_bearer: bearer_tokens.Verify | None = None,
    ) -> None:
        self.strict = strict
        """False: bearer tokens are not verified, and a client without token may do everything."""
        self._key_rules = key_rules
        self._namespaces = namespaces
        self.default_namespace = default_namespace
        """The namespace of host names that name no other."""
        self._own_hosts = {*LOOPBACK_HOSTS, *(host.lower() for host in own_hosts)}
        """Host names of this broker. A token for one of them is valid for all of them."""
        self._verify_bearer = verify_bearer or (
            bearer_tokens.refuse_bearer if strict else bearer_tokens.accept_unverified
        )

    @property
    def has_one_namespace(self) -> bool:
        """Whether every client is in the same namespace."""
        return len(self._namespaces) <= 1

    def namespace_of_host(self, hostname: str) -> str | None:
        """Returns the namespace with the name of a host or of its first label, or None."""
        host = hostname.partition(":")[0].lower()
        if host in self._namespaces:
            return host
        label = host.partition(".")[0]
        is_address = host.replace(".", "").isdigit()
        return label if label in self._namespaces and not is_address else None

    def verify_token(
        self,
        token: str,
        audience: str,
        now_ms: int,
        namespace: str | None = None,
        *,
        host: str = "",
    ) -> Grant:
        """Returns the grant of a token on an audience, which is a URL or empty: then it is that of the token. Raises
        `TokenRefused`.

        Without a namespace the key selects one, which the grant names. `host` is the host name that the client uses
        for this broker.
        """
        if len(audience) > RESOURCE_MAX_CHARACTERS:
            raise _too_long_audience()
        path = path_of(audience) if audience else None
        return self.verify_token_on_path(token, path, now_ms, namespace, host=host)

    def verify_token_on_path(
        self,
        token: str,
        path: str | None,
        now_ms: int,
        namespace: str | None = None,
        *,
        host: str = "",
        entity: str | None = None,
    ) -> Grant:
        """Returns the grant of a token on a path as it is, without decoding it. Raises `TokenRefused`.

        A request over HTTP has host and path apart. A URL made of both would let one of them change the other.
        Without a path it is that of the token. `entity` is the path of the entity, if the path is longer.
        """
        if len(token) > TOKEN_MAX_CHARACTERS:
            raise TokenRefused(
                f"MalformedToken: The token has more than {TOKEN_MAX_CHARACTERS} characters."
            )
        if path is not None and len(path) > RESOURCE_MAX_CHARACTERS:
            raise _too_long_audience()
        if not sas.is_sas(token):
            return replace(self._verify_bearer(token, now_ms), path=(path or "").lower())
        read = sas.read(token)
        path = read.path if path is None else path.lower()
        about = path if entity is None else entity.lower()
        fitting = [
            (rule, key)
            for rule in self._key_rules.named(read.key_name, namespace)
            for key in rule.keys
            if rule.is_valid_on(about) and read.is_signed_with(key)
        ]
        if not fitting:
            self._refuse_key_of_another_namespace(read, about, namespace)
            raise TokenRefused(
                "InvalidSignature: The token has an invalid signature. No key of a rule "
                f"'{read.key_name}' that is valid here made it; check SharedAccessKeyName and "
                "SharedAccessKey of the connection string."
            )
        if read.expires_at_ms <= now_ms:
            raise expired(read.expires_at_ms)
        if not covers(read.path, path) or not self._is_own_host(read.host, host):
            raise TokenRefused(
                "InvalidAudience: The authorization header contains a token with a wrong audience: "
                f"it is for '{read.host}/{read.path}', not for '{host_of(host)}/{path}'."
            )
        rule, key = self._selected(fitting)[0]
        return Grant(rule.claims, path, read.expires_at_ms, rule, key)

    def _refuse_key_of_another_namespace(
        self, read: sas.SasToken, path: str, namespace: str | None
    ) -> None:
        """Raises `TokenRefused` if a key of another namespace has signed a token. The namespace of a connection is
        that of its host name, of its first token, or of its first link."""
        for rule in () if namespace is None else self._key_rules.named(read.key_name, None):
            if rule.is_valid_on(path) and any(map(read.is_signed_with, rule.keys)):
                raise TokenRefused(
                    f"InvalidSignature: This is a key of the namespace '{rule.namespace}', and the connection is in "
                    f"the namespace '{namespace}', by its host name, its first token or its first link. Use another "
                    "connection."
                )

    def _is_own_host(self, named: str, called: str) -> bool:
        """Whether a token for host `named` is valid if the client uses host `called`: both are the same, or two names
        of this broker, or two names of one namespace."""
        called = host_of(called)
        if not self.strict or not called or named == called:
            return True
        if named in self._own_hosts and called in self._own_hosts:
            return True
        namespace = self.namespace_of_host(named)
        return namespace is not None and namespace == self.namespace_of_host(called)

    def is_key_of_rule(self, user: str, password: str) -> bool:
        """Whether these are the name and a key of a rule in any namespace."""
        return bool(self._matching_rules(user, password, None))

    def verify_plain(self, user: str, password: str, namespace: str | None = None) -> list[Grant]:
        """Returns the grants of the name and key of a rule, as in SASL PLAIN. Empty if they are wrong.

        Without a namespace the key selects one. Raises `TokenRefused` if there are several.
        """
        return [
            Grant(rule.claims, rule.path, key_rule=rule, key=key)
            for rule, key in self._selected(self._matching_rules(user, password, namespace))
        ]

    def _matching_rules(
        self, user: str, password: str, namespace: str | None
    ) -> list[tuple[KeyRule, bytes]]:
        given = password.encode()
        return [
            (rule, key)
            for rule in self._key_rules.named(user, namespace)
            for key in rule.keys
            if hmac.compare_digest(given, key)
        ]

    def is_still_valid(self, grant: Grant) -> bool:
        """Whether the rule of a grant still has the key and all claims of the grant."""
        used = grant.key_rule
        return used is None or any(
            rule.path == used.path
            and rule.namespace == used.namespace
            and grant.key in rule.keys
            and grant.claims <= rule.claims
            for rule in self._key_rules.named(used.rule.name, used.namespace)
        )

    def _selected(
        self, fitting: Sequence[tuple[KeyRule, bytes]]
    ) -> Sequence[tuple[KeyRule, bytes]]:
        """Returns the matching rules of one namespace, those of the whole namespace first.

        A key that is valid everywhere selects no namespace. A key of several namespaces selects the default
        namespace. Raises `TokenRefused` if that is not one of them.
        """
        namespaces = {rule.namespace for rule, _ in fitting}
        if len(namespaces) > 1:
            chosen = None if None in namespaces else self.default_namespace
            if chosen not in namespaces:
                known = ", ".join(sorted(name for name in namespaces if name))
                raise TokenRefused(
                    f"InvalidSignature: This is a key of the namespaces {known}; "
                    "use one of them as host name."
                )
            fitting = [(rule, key) for rule, key in fitting if rule.namespace == chosen]
        return sorted(fitting, key=lambda one: len(one[0].path))


def _too_long_audience() -> TokenRefused:
    return TokenRefused(
        f"InvalidAudience: The audience has more than {RESOURCE_MAX_CHARACTERS} characters."
    )
