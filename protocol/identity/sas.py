"""Shared access signatures: taken apart, checked against a key, and made.

Owns the token's form; which keys there are and what they allow is not known here. A signature is
over `sr` exactly as the client spelled it, so that text is never encoded anew.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import quote_plus, unquote, unquote_plus

from protocol.identity.grants import NEVER_MS, TokenRefused, host_of, path_of

PREFIX = "SharedAccessSignature "
ENCODED_TIMES_MAX = 3
"""Some clients encode a field twice. Without a bound, decoding would take time by the square of its
length, before any key is checked."""


class SasToken(NamedTuple):
    """A token's fields."""

    resource: str
    """`sr`, still encoded."""
    expiry: str
    """`se`, as signed."""
    signature: bytes
    key_name: str

    @property
    def path(self) -> str:
        """The path it is for, empty for a whole namespace."""
        return path_of(_unquote_fully(self.resource))

    @property
    def host(self) -> str:
        """The host that it is for, without a port."""
        return host_of(_unquote_fully(self.resource))

    @property
    def expires_at_ms(self) -> int:
        """When it runs out."""
        return min(int(unquote(self.expiry)) * 1000, NEVER_MS)

    def is_signed_with(self, key: bytes) -> bool:
        """Whether this key made its signature."""
        return hmac.compare_digest(self.signature, _signature(key, self.resource, self.expiry))


def is_sas(token: str) -> bool:
    """Whether a token claims to be one; the type a client names for it may be wrong."""
    return token[: len(PREFIX)].lower() == PREFIX.lower()


def read(token: str) -> SasToken:
    """Take a token apart; raises `TokenRefused`."""
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
        read_token.expires_at_ms  # noqa: B018 -- a number, or it raises
    except (KeyError, ValueError):
        raise TokenRefused(
            "MalformedToken: The token is not a shared access signature: it must carry sr, "
            "sig (base64), se (seconds since 1970) and skn."
        ) from None
    return read_token


def make(resource: str, key_name: str, key: str, expires_at_s: int) -> str:
    """A token as SDKs make it."""
    encoded, expiry = quote_plus(resource), str(expires_at_s)
    signature = quote_plus(base64.b64encode(_signature(key.encode(), encoded, expiry)))
    return f"{PREFIX}sr={encoded}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"


def _signature(key: bytes, resource: str, expiry: str) -> bytes:
    # A header that is no UTF-8 comes with its bytes as surrogates: such a signature is only wrong.
    text = f"{resource}\n{expiry}".encode("utf-8", "surrogatepass")
    return hmac.digest(key, text, hashlib.sha256)


def _unquote_fully(text: str) -> str:
    for _ in range(ENCODED_TIMES_MAX):
        if "%" not in text:
            break
        text = unquote_plus(text)
    return text
