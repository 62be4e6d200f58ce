"""Authentication and authorization, the same for AMQP and HTTP. No IO.

`Identity` verifies a credential (`sas.py`, `bearer_tokens.py`, or the name and key of a rule) against the present
authorization rules, and returns a `Grant`: claims on a path and below it, until the grant expires. The host name
selects the namespace, or else the key.
"""

from protocol.identity.grants import (
    ALL_CLAIMS,
    LISTEN,
    MANAGE,
    NEVER_MS,
    SEND,
    Grant,
    Grants,
    KeyRule,
    TokenRefused,
    case_preserving_path_of,
    covers,
    missing_claim,
    path_of,
)
from protocol.identity.sas import is_sas, key_name_of
from protocol.identity.verification import Identity, KeyRuleSource

__all__ = [
    "ALL_CLAIMS",
    "LISTEN",
    "MANAGE",
    "NEVER_MS",
    "SEND",
    "Grant",
    "Grants",
    "Identity",
    "KeyRule",
    "KeyRuleSource",
    "TokenRefused",
    "case_preserving_path_of",
    "covers",
    "is_sas",
    "key_name_of",
    "missing_claim",
    "path_of",
]
