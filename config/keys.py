"""Keys of authorization rules in a config file: how long they are, and a second one where none is given.

Service Bus gives every rule two keys. A file need not name the second: it is derived from the first, so
that it is the same after every start, and nobody learns the first from it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

KEY_LENGTH = 44
"""32 bytes in base64. `SharedAccessAuthorizationRule` of the .NET SDK raises for any other length, also
while it reads what the broker sends."""


def derived_secondary_key(name: str, primary_key: str) -> str:
    """The secondary key of a rule that was given a primary one alone."""
    message = f"secondary key of {name.lower()}".encode()
    return base64.b64encode(hmac.digest(primary_key.encode(), message, hashlib.sha256)).decode()
