"""Who a client is and what it may do: pure checks, the same for AMQP and HTTP.

A credential (`sas.py`, `bearer_tokens.py`, or a rule's name and key) is verified by `Identity` against the
rules that stand at that moment and becomes a `Grant`: claims on a path and below, until it runs
out. Which namespace is meant follows from the host name, else from whose key it was.
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
    covers,
    missing_claim,
    path_of,
    spelled_path_of,
)
from protocol.identity.sas import is_sas
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
    "covers",
    "is_sas",
    "missing_claim",
    "path_of",
    "spelled_path_of",
]
