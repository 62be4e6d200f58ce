"""Who a client is and what it may do: SAS tokens, PLAIN credentials, bearer tokens.

Pure checks over declared keys; the wire forms are AMQP's (`amqp/cbs.py`) and HTTP's. A grant covers
a path and everything below it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus

from broker.core.errors import Unauthorized

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from config.entities import AuthorizationRule

SAS_PREFIX = "sharedaccesssignature "
NEVER_MS = 1 << 62
ALL_CLAIMS = frozenset({"Send", "Listen", "Manage"})


class TokenRefused(Unauthorized):
    """The token itself is no good: its text starts with the code the service uses."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a verified token allows, on a path and below, until it runs out."""

    claims: frozenset[str]
    path: str = ""
    """Lower-case entity path; empty for the whole namespace."""
    expires_at_ms: int = NEVER_MS
    key_name: str = ""

    def allows(self, claim: str, path: str) -> bool:
        """True if this grant covers a claim on an entity. Manage includes the other two."""
        return (claim in self.claims or "Manage" in self.claims) and covers(self.path, path)


@dataclass(frozen=True, slots=True)
class KeyRule:
    """An authorization rule at the path it was declared on."""

    rule: AuthorizationRule
    path: str = ""


class Identity:
    """Verifies credentials against the declared authorization rules."""

    def __init__(self, rules: Iterable[KeyRule], *, strict: bool) -> None:
        self.strict = strict
        """False: bearer tokens are believed and a connection without any token may work."""
        self._rules: dict[str, list[KeyRule]] = {}
        for key_rule in rules:
            self._rules.setdefault(key_rule.rule.name.lower(), []).append(key_rule)

    def verify_token(self, token: str, audience: str, now_ms: int) -> Grant:
        """The grant a token gives for an audience; raises `TokenRefused`."""
        if token[: len(SAS_PREFIX)].lower() == SAS_PREFIX:
            return self._verify_sas(token[len(SAS_PREFIX) :], audience, now_ms)
        return self._verify_bearer(token, now_ms)

    def verify_plain(self, user: str, password: str) -> Grant | None:
        """The grant of a rule name and key, as SASL PLAIN carries them; None if wrong."""
        for key_rule in self._rules.get(user.lower(), ()):
            if any(hmac.compare_digest(password.encode(), key) for key in _keys(key_rule)):
                return Grant(key_rule.rule.rights, key_rule.path, key_name=key_rule.rule.name)
        return None

    def _verify_sas(self, fields_text: str, audience: str, now_ms: int) -> Grant:
        fields = _fields(fields_text)
        try:
            resource, signature, expiry = fields["sr"], fields["sig"], fields["se"]
            expires_at_ms = int(unquote(expiry)) * 1000
            given = base64.b64decode(unquote(signature), validate=True)
        except (KeyError, ValueError):
            raise TokenRefused(
                "MalformedToken: The token is not a shared access signature: it must carry sr, "
                "sig (base64), se (seconds since 1970) and skn."
            ) from None
        key_name = _unquote_fully(fields.get("skn", ""))
        signed = f"{resource}\n{expiry}".encode()
        for key_rule in self._rules.get(key_name.lower(), ()):
            for key in _keys(key_rule):
                if hmac.compare_digest(given, hmac.digest(key, signed, hashlib.sha256)):
                    if expires_at_ms <= now_ms:
                        raise TokenRefused("ExpiredToken: The token is expired.")
                    path = _path_of(_unquote_fully(resource))
                    if not covers(path, _path_of(audience)):
                        raise TokenRefused(
                            f"InvalidAudience: The token is for '{path}', not for '{audience}'."
                        )
                    narrower = key_rule.path if len(key_rule.path) > len(path) else path
                    return Grant(key_rule.rule.rights, narrower, expires_at_ms, key_name)
        raise TokenRefused(
            f"InvalidSignature: The token has an invalid signature. No key of rule '{key_name}' "
            "made it; check SharedAccessKeyName and SharedAccessKey of the connection string."
        )

    def _verify_bearer(self, token: str, now_ms: int) -> Grant:
        parts = token.split(".")
        try:
            header, claims = (_json_part(part) for part in parts[:2])
        except (ValueError, TypeError):
            raise TokenRefused(
                "MalformedToken: The token is neither a shared access signature nor a JWT."
            ) from None
        if len(parts) != 3 or "alg" not in header:
            raise TokenRefused("MalformedToken: The JWT must have three parts and name its alg.")
        if self.strict:
            raise TokenRefused(
                "InvalidToken: Bearer tokens are taken in development mode only; "
                "use a shared access key."
            )
        expiry = claims.get("exp")
        expires_at_ms = int(expiry) * 1000 if isinstance(expiry, int | float) else NEVER_MS
        if expires_at_ms <= now_ms:
            raise TokenRefused("ExpiredToken: The token is expired.")
        return Grant(ALL_CLAIMS, "", expires_at_ms)


def covers(granted: str, path: str) -> bool:
    """True if a grant on one path reaches another: the same, below it, or the whole namespace."""
    path = path.lower()
    return not granted or path == granted or path.startswith(granted + "/")


def _keys(key_rule: KeyRule) -> list[bytes]:
    rule = key_rule.rule
    return [key.encode() for key in (rule.primary_key, rule.secondary_key) if key]


def _fields(text: str) -> Mapping[str, str]:
    """Fields still encoded: the signature is over `sr` exactly as the client spelled it."""
    fields = {}
    for part in text.strip().split("&"):
        name, _, value = part.partition("=")
        fields[name] = value
    return fields


def _unquote_fully(text: str) -> str:
    """Some clients encode twice."""
    while True:
        plain = unquote_plus(text) if "%" in text else text
        if plain == text:
            return plain
        text = plain


def _path_of(resource: str) -> str:
    """`sb://host:port/Some/Path/` → `some/path`; a bare host is the whole namespace."""
    rest = (resource.partition("://")[2] or resource).partition("?")[0]
    return unquote(rest.partition("/")[2]).strip("/").lower()


def _json_part(part: str) -> dict[str, object]:
    decoded = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    if not isinstance(decoded, dict):
        raise TypeError
    return decoded
