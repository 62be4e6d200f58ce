"""Shared access signatures: reads them, checks them with a key, and makes them.

`verification.py` knows the keys. The signature is of `sr` exactly as the client encoded it, so that text is never
encoded again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import quote_plus, unquote, unquote_plus

from protocol.identity.grants import NEVER_MS, TokenRefused, host_of, path_of

PREFIX = "SharedAccessSignature "
YEAR_9999_S = 253_402_300_799
"""When tokens for a broker expire that the command line makes. A strict broker compares it with its own clock, which
tests move by days."""
ENCODED_TIMES_MAX = 3
"""Some clients encode a field twice. Without a bound, decoding would take quadratic time before any key is
checked."""


class SasToken(NamedTuple):
    """The fields of a token."""

    resource: str
    """`sr`, still encoded."""
    expiry: str
    """`se`, as signed."""
    signature: bytes
    key_name: str

    @property
    def path(self) -> str:
        """The path of the resource. Empty for the whole namespace."""
        return path_of(_unquote_fully(self.resource))

    @property
    def host(self) -> str:
        """The host of the resource, without port."""
        return host_of(_unquote_fully(self.resource))

    @property
    def expires_at_ms(self) -> int:
        """When the token expires."""
        return min(int(unquote(self.expiry)) * 1000, NEVER_MS)

    def is_signed_with(self, key: bytes) -> bool:
        """Whether the signature was made with this key."""
        return hmac.compare_digest(self.signature, _signature(key, self.resource, self.expiry))


def is_sas(token: str) -> bool:
    """Whether a token has the prefix of a shared access signature. The token type of the client may be wrong."""
    return token[: len(PREFIX)].lower() == PREFIX.lower()


def read(token: str) -> SasToken:
    """Returns the fields of a token. Raises `TokenRefused`."""
    fields = {}
    for part in token[len(PREFIX) :].strip().split("&"):
        name, _, value = part.partition("=")
        fields[name] = value
    try:
        read_token = SasToken(
            fields["sr"],
            fields["se"],
            base64.b64decode(unquote(fields["sig"]), validate=True),
            _unquote_fully(fields["skn"]),
        )
        read_token.expires_at_ms  # noqa: B018 -- raises ValueError if it is not a number
    except (KeyError, ValueError):
        raise TokenRefused(
            "MalformedToken: The token is not a shared access signature: it must carry sr, "
            "sig (base64), se (seconds since 1970) and skn."
        ) from None
    return read_token


def key_name_of(header: str | None) -> str | None:
    """Returns the name of the key of an Authorization header, without checking it. None if it names no key."""
    if header is None or not is_sas(header):
        return None
    try:
        return read(header).key_name
    except TokenRefused:
        return None


def make(resource: str, key_name: str, key: str, expires_at_s: int) -> str:
    """Returns a token as SDKs make it."""
    encoded, expiry = quote_plus(resource), str(expires_at_s)
    signature = quote_plus(base64.b64encode(_signature(key.encode(), encoded, expiry)))
    return f"{PREFIX}sr={encoded}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"


def _signature(key: bytes, resource: str, expiry: str) -> bytes:
    # Header bytes that are not UTF-8 arrive as surrogates. Such a signature is wrong, and must not raise.
    text = f"{resource}\n{expiry}".encode("utf-8", "surrogatepass")
    return hmac.digest(key, text, hashlib.sha256)


def _unquote_fully(text: str) -> str:
    for _ in range(ENCODED_TIMES_MAX):
        if "%" not in text:
            break
        text = unquote_plus(text)
    return text
