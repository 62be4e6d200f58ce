"""Tokens that the broker issues to clients which use a managed identity.

Owns the secret that such a client shows, the token it gets, and the verification of that token. All
keys are derived from the broker's shared access key. So nothing is stored, tokens stay valid after
a restart, and a new shared access key invalidates all tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from protocol.identity.bearer_tokens import Key, Verifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.identity.grants import Grant

LIFETIME_S = 24 * 3600
"""As long as Azure's. Client libraries ask for the next token after half of it."""

ISSUER = "urn:peeklock:managed-identity"
KEY_ID = "peeklock-managed-identity"
ROLE = "Azure Service Bus Data Owner"
CLIENT_ID = "00000000-0000-0000-0000-000000000000"

_HOSTS = ("servicebus.azure.net", "eventhubs.azure.net")
_CLOUD_HOSTS = (".servicebus.windows.net",)


def is_for_service_bus(resource: str) -> bool:
    """Whether the resource for which a token is requested is Service Bus, as the SDKs name it."""
    try:
        host = (urlsplit(resource).hostname or "").lower()
    except ValueError:  # brackets without an IPv6 address
        return False
    return host in _HOSTS or host.endswith(_CLOUD_HOSTS)


class TokenRequest(NamedTuple):
    """The fields of a client's request for a token."""

    secret: str | None
    resource: str | None
    is_local: bool
    """Whether the client runs on the machine of the broker."""


class ManagedIdentity:
    """Issues and verifies the tokens of this broker."""

    def __init__(self, shared_access_key: str) -> None:
        self._signing_key = _derived(shared_access_key, "token signature")
        self.secret = _derived(shared_access_key, "identity header").hex()
        """The value of `IDENTITY_HEADER`."""
        self._verifier = Verifier([Key(self._signing_key, ("HS256",), KEY_ID)], ISSUER)

    def is_secret(self, secret: str) -> bool:
        """Whether a secret is the right one."""
        # A header may contain any bytes. Those that are not UTF-8 arrive as surrogates.
        shown = secret.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(shown, self.secret.encode())

    def token(self, resource: str, now_ms: int) -> str:
        """Returns a new token, which the broker accepts in strict mode too."""
        now_s = now_ms // 1000
        header = {"alg": "HS256", "typ": "JWT", "kid": KEY_ID}
        claims = {
            "iss": ISSUER,
            "aud": resource,
            "iat": now_s,
            "nbf": now_s,
            "exp": now_s + LIFETIME_S,
            "appid": CLIENT_ID,
            "roles": [ROLE],
        }
        signed = f"{_encoded(header)}.{_encoded(claims)}"
        signature = hmac.digest(self._signing_key, signed.encode(), hashlib.sha256)
        return f"{signed}.{_base64(signature)}"

    def issued(self, token: str) -> bool:
        """Whether a token names this broker as issuer. `verify` checks that."""
        part = token.partition(".")[0]
        try:
            header = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        except (ValueError, RecursionError):
            return False
        return isinstance(header, dict) and header.get("kid") == KEY_ID

    def verify(self, token: str, now_ms: int) -> Grant:
        """Returns the grant of a token of this broker. Raises `TokenRefused`."""
        return self._verifier.verify(token, now_ms)


def _derived(key: str, purpose: str) -> bytes:
    return hmac.digest(key.encode(), f"peeklock managed identity: {purpose}".encode(), "sha256")


def _encoded(part: Mapping[str, object]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
