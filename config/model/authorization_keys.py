"""Keys of authorization rules in a config file: their length, and the derived secondary key.

Service Bus gives every rule two keys. If a file names only the primary key, the secondary is
derived from it. So it is the same after every start, and does not reveal the primary key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

KEY_LENGTH = 44
"""32 bytes in base64. `SharedAccessAuthorizationRule` of the .NET SDK raises for any other length, also
while it reads what the broker sends."""


def derived_secondary_key(name: str, primary_key: str) -> str:
    """Returns the secondary key of a rule that has only a primary key. Empty, which is no key, if that is empty:
    everybody could compute a key that depends only on the name."""
    if not primary_key:
        return ""
    message = f"secondary key of {name.lower()}".encode()
    return base64.b64encode(hmac.digest(primary_key.encode(), message, hashlib.sha256)).decode()
