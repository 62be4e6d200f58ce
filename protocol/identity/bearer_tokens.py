"""Bearer tokens (JWT): accepted unverified in development mode, verified with configured keys in strict mode.

Expiry is checked by the broker's clock, not by the library's. The library is imported only if keys are configured.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protocol.identity.grants import (
    ALL_CLAIMS,
    LISTEN,
    NEVER_MS,
    SEND,
    Grant,
    TokenRefused,
    expired,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Verify = Callable[[str, int], Grant]
    """Takes a token and the time, and returns the grant. Raises `TokenRefused`."""

RIGHTS: Mapping[str, frozenset[str]] = {
    "send": frozenset({SEND}),
    "listen": frozenset({LISTEN}),
    "manage": ALL_CLAIMS,
    "azure service bus data sender": frozenset({SEND}),
    "azure service bus data receiver": frozenset({LISTEN}),
    "azure service bus data owner": ALL_CLAIMS,
}
"""The claims that a value of `roles`, `scp` or `scope` grants on the whole namespace."""

# The key determines the algorithm, not the token: otherwise a public key could be used as a shared secret.
_HMAC = ("HS256", "HS384", "HS512")
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ELLIPTIC_CURVE = ("ES256", "ES384", "ES512", "ES256K")
_EDWARDS_CURVE = ("EdDSA",)

_PEM_BLOCK = re.compile(rb"-----BEGIN [^-]+-----.*?-----END [^-]+-----", re.DOTALL)


def accept_unverified(token: str, now_ms: int) -> Grant:
    """Returns a grant of all claims for a well-formed token that has not expired (development mode)."""
    parts = token.split(".")
    try:
        header, claims = (_json_part(part) for part in parts[:2])
    except (ValueError, TypeError, RecursionError):
        raise TokenRefused(
            "MalformedToken: The token is neither a shared access signature nor a JWT."
        ) from None
    if len(parts) != 3 or "alg" not in header:
        raise TokenRefused("MalformedToken: The JWT must have three parts and name its alg.")
    return Grant(ALL_CLAIMS, expires_at_ms=_expiry(claims, now_ms))


def refuse_bearer(token: str, now_ms: int) -> Grant:
    """Refuses every token, because no keys are configured (strict mode)."""
    del token, now_ms
    raise TokenRefused(
        "InvalidToken: Bearer tokens are not accepted, because no keys to verify them are "
        "configured (jwt_keys). Use a shared access key."
    )


@dataclass(frozen=True, slots=True)
class Key:
    """A key that may have signed a token."""

    value: Any
    algorithms: Sequence[str]
    id: str | None = None


class Verifier:
    """Verifies signature, issuer, audience and times (strict mode). The token has the claims."""

    def __init__(
        self, keys: Sequence[Key], issuer: str | None = None, audience: str | None = None
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience

    def verify(self, token: str, now_ms: int) -> Grant:
        """Returns the grant of a token. Raises `TokenRefused`."""
        claims = self._verified(token)
        expires_at_ms = _expiry(claims, now_ms)
        not_before = claims.get("nbf")
        if isinstance(not_before, int | float) and not_before * 1000 > now_ms:
            raise TokenRefused("InvalidToken: The token is not valid yet.")
        granted = frozenset[str]().union(*(RIGHTS.get(word, ()) for word in _scope_values(claims)))
        if not granted:
            raise TokenRefused(
                "InvalidToken: The token grants nothing: its roles, scp or scope must name "
                "Send, Listen or Manage, or a data role of Azure Service Bus."
            )
        return Grant(granted, expires_at_ms=expires_at_ms)

    def _verified(self, token: str) -> Mapping[str, Any]:
        import jwt

        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        # Bytes that are not UTF-8 arrive as surrogates, which cannot be encoded.
        except (jwt.InvalidTokenError, UnicodeEncodeError, RecursionError):
            raise TokenRefused(
                "MalformedToken: The token is neither a shared access signature nor a JWT."
            ) from None
        options = {
            "require": ["exp"],
            "verify_exp": False,  # checked by the broker's clock
            "verify_nbf": False,
            "verify_iat": False,
            "verify_aud": self._audience is not None,
        }
        for key in self._keys:
            if key_id is not None and key.id is not None and key.id != key_id:
                continue
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token,
                    key.value,
                    algorithms=list(key.algorithms),
                    audience=self._audience,
                    issuer=self._issuer,
                    options=options,  # type: ignore[arg-type]
                )
            except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
                continue  # another key may match
            except jwt.InvalidTokenError as error:
                raise TokenRefused(f"InvalidToken: {error}.") from None
            return claims
        raise TokenRefused(
            "InvalidSignature: The token has an invalid signature. None of the configured keys "
            "made it."
        )


def read_keys(content: bytes) -> list[Key]:
    """Returns the keys in a file: a JWK set, one or more PEM blocks, or a shared secret.

    Raises `ValueError` with the reason.
    """
    text = content.strip()
    if not text:
        raise ValueError("it is empty")
    if text.startswith(b"{"):
        return _read_key_set(text)
    if blocks := _PEM_BLOCK.findall(text):
        return [_pem_key(block) for block in blocks]
    return [Key(text, _HMAC)]


def _read_key_set(text: bytes) -> list[Key]:
    import jwt

    try:
        document = json.loads(text)
        members = document.get("keys", [document])
        keys = [jwt.PyJWK(member) for member in members]
    except (ValueError, TypeError, AttributeError, jwt.PyJWTError) as error:
        raise ValueError(f"it is no JWK set: {error}") from None
    if not keys:
        raise ValueError("it is a JWK set without keys")
    return [Key(key.key, (key.algorithm_name,), key.key_id) for key in keys]


def _pem_key(block: bytes) -> Key:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    try:
        if b"-----BEGIN CERTIFICATE" in block:
            key: Any = load_pem_x509_certificate(block).public_key()
        else:
            key = load_pem_public_key(block)
    except ValueError as error:
        raise ValueError(f"it holds a PEM block that is no public key: {error}") from None
    if isinstance(key, rsa.RSAPublicKey):
        return Key(key, _RSA)
    if isinstance(key, ec.EllipticCurvePublicKey):
        return Key(key, _ELLIPTIC_CURVE)
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return Key(key, _EDWARDS_CURVE)
    raise ValueError(f"it holds a {type(key).__name__}, which signs no JWT")


def _scope_values(claims: Mapping[str, Any]) -> Iterator[str]:
    """Yields the values of `roles` (a list), `scp` and `scope` (separated by spaces), in lower case."""
    for name in ("roles", "scp", "scope"):
        given = claims.get(name)
        if isinstance(given, str):
            yield from given.lower().split()
        elif isinstance(given, list):
            yield from (str(word).lower() for word in given)


def _expiry(claims: Mapping[str, Any], now_ms: int) -> int:
    expiry = claims.get("exp")
    if expiry is None:
        return NEVER_MS
    try:
        expires_at_ms = min(int(expiry) * 1000, NEVER_MS)
    except (TypeError, ValueError, OverflowError):
        raise TokenRefused("MalformedToken: exp must be seconds since 1970.") from None
    if expires_at_ms <= now_ms:
        raise expired(expires_at_ms)
    return expires_at_ms


def _json_part(part: str) -> dict[str, Any]:
    decoded = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    if not isinstance(decoded, dict):
        raise TypeError
    return decoded
