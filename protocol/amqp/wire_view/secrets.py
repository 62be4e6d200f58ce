"""Blanks secrets in what is shown of frames: keys, signatures, tokens and passwords."""

from __future__ import annotations

import re

BLANK = "***"

_SUSPICIOUS = re.compile(r"(?i)sig=|key|SharedAccess|bearer|eyj|password|secret|token|://")
"""Every secret below contains one of these. Nearly all texts contain none, and are not searched further."""
_SECRETS = (
    # The signature of a shared access signature; its resource, key name and expiry are no secrets.
    (re.compile(r"(?i)\b(sig=)[^&\s\"',;]+"), rf"\g<1>{BLANK}"),
    (re.compile(r"(?i)\b((?:SharedAccess|Account)Key\s*=\s*)[^;\s\"',]+"), rf"\g<1>{BLANK}"),
    (re.compile(r"(?i)\b(SharedAccessSignature\s*=\s*)[^;\s\"',]+"), rf"\g<1>{BLANK}"),
    (re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]+"), rf"\g<1>{BLANK}"),
    # A JSON web token begins with {" in base64.
    (re.compile(r"\beyJ[\w-]{5,}(?:\.[\w-]*)*"), BLANK),
    # Fields of JSON.
    (
        re.compile(
            r"(?i)(\"[^\"]*(?:password|secret|token|api_?key|access_?key)[^\"]*\"\s*:\s*\")[^\"]+"
        ),
        rf"\g<1>{BLANK}",
    ),
    # The password in a URL.
    (re.compile(r"(?i)(\b[a-z]+://[^/\s:@]+:)[^@\s/]+(?=@)"), rf"\g<1>{BLANK}"),
)
_SECRET_NAME = re.compile(
    r"(?i)password|passwd|secret|credential|signature|api[-_. ]?key|access[-_. ]?key|private[-_. ]?key|"
    r"^authorization$|(?<!lock)(?<!lock[-_])(?<!continuation[-_])\btoken$|"
    r"(?:access|auth|bearer|id|refresh|sas|security|session)[-_. ]?token$"
)


def is_secret_name(name: str) -> bool:
    """Whether the value of a property with this name is not shown."""
    return _SECRET_NAME.search(name) is not None


def without_secrets(text: str) -> str:
    """Returns a text in which every secret that has a known form is blanked."""
    if _SUSPICIOUS.search(text) is None:
        return text
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def blanked_token(token: object) -> str:
    """Returns the token of a put-token: of a shared access signature everything but the signature, of another
    nothing."""
    if isinstance(token, str) and token.startswith("SharedAccessSignature "):
        shown = without_secrets(token)
        if f"sig={BLANK}" in shown:
            return shown
    return BLANK
