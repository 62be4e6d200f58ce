"""What can go wrong with a database, and what it means for the store.

Translates the error codes of PostgreSQL, and the texts of failed connections, which have no code, into errors of the
contract. Each is one sentence with the cause and the fix.
"""

from __future__ import annotations

from storage.contract import (
    OwnershipLost,
    StorageError,
    StorageFull,
    StoreUnavailable,
    StoreUnusable,
)

EPOCH_ENDED, COMMITTED_ALREADY, COMMITS_MISSING = "PK001", "PK002", "PK003"
"""Raised by the function `begin_commit` in the database."""

_NO_RIGHT = (
    "refuses an operation; let the owner of the schema connect, or give this role its rights"
)
_WAIT = "is not available now"
_CODES: dict[str, tuple[type[StorageError], str]] = {
    EPOCH_ENDED: (OwnershipLost, "is owned by another broker now"),
    COMMITS_MISSING: (
        StorageError,
        "has lost commits, perhaps by a failover to a replica that is not synchronous; the broker has to start again",
    ),
    "53100": (StorageFull, "has no room on its disk; free some there"),
    "53400": (StorageFull, "has reached a configured limit; raise it"),
    "53200": (StoreUnavailable, "is out of memory"),
    "53300": (StoreUnavailable, "has too many connections; raise max_connections, or close some"),
    "25006": (StoreUnavailable, "is read-only now"),
    "42501": (StoreUnusable, _NO_RIGHT),
    "55000": (StoreUnavailable, _WAIT),
    "55P03": (StoreUnavailable, _WAIT),
    "57014": (StoreUnavailable, "canceled a statement"),
    "XX001": (StoreUnusable, "is damaged; restore it from a backup"),
    "XX002": (StoreUnusable, "is damaged; restore it from a backup"),
    "42P01": (StoreUnusable, "misses a table; restore the schema from a backup"),
    "3F000": (StoreUnusable, "misses its schema; restore it from a backup"),
}
_CLASSES: dict[str, tuple[type[StorageError], str]] = {
    "08": (StoreUnavailable, _WAIT),
    "40": (StoreUnavailable, "rolled a transaction back"),
    "53": (StorageFull, "has no resources left"),
    "57": (StoreUnavailable, _WAIT),
}

_UNUSABLE_TEXTS = {
    "password authentication failed": "refuses the password; correct it in the URL, in the password file or in PGPASSWORD",
    "no password supplied": "needs a password; write it to the URL, to PGPASSWORD, or to a password file that only its"
    " owner may read",
    "no encryption": "needs TLS; set sslmode=require in the URL",
    "SSL off": "needs TLS; set sslmode=require in the URL",
    "pg_hba.conf": "does not let this role connect from here; add a line to its pg_hba.conf",
    "authentication failed": "refuses this role; check how it may log in",
    'role "': "does not know the role; create it, or correct the URL",
    'database "': "does not exist; create it with createdb, or correct the URL",
    "permission denied for database": "does not let this role connect; GRANT CONNECT on it",
    "certificate verify failed": "has a certificate that is not trusted; set sslrootcert in the URL",
    "does not match host name": "has a certificate for another host name; correct the URL, or set sslmode",
    "invalid integer value": "has a parameter that is no number; correct the URL",
    "invalid port number": "has a port that is no port; correct the URL",
    "server does not support SSL": "does not support TLS; set sslmode=prefer in the URL, or enable ssl there",
    "root certificate file": "cannot be verified; set sslrootcert in the URL",
    "could not read certificate file": "needs a client certificate; set sslcert and sslkey in the URL",
}
"""Parts of the texts of failed connections, and what each means. In this order."""


class SqlFailure(Exception):
    """The database refused a statement, and rolled its transaction back."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class ConnectionFailure(Exception):
    """The connection was lost or did not answer in time. What was sent last may be committed or not."""


def is_connection_code(code: str) -> bool:
    """Returns whether the session may not be used after such an error: it is ended, or elsewhere it would work."""
    return code.startswith(("08", "57P")) or code == "25006"


def explain(database: str, failure: Exception) -> StorageError:
    """Returns the error of the contract for a failure. `database` names the database and the schema."""
    text = " ".join(str(failure).split())
    if not isinstance(failure, SqlFailure):
        return StoreUnavailable(f"{database} is not available now ({text})")
    kind, sentence = (
        _CODES.get(failure.code) or _CLASSES.get(failure.code[:2]) or (StorageError, "failed")
    )
    return kind(f"{database} {sentence} ({text})")


def explain_connecting(database: str, failure: Exception) -> StorageError:
    """Returns the error of the contract for a connection that was not made."""
    text = " ".join(str(failure).split())
    for part, sentence in _UNUSABLE_TEXTS.items():
        if part in text:
            return StoreUnusable(f"{database} {sentence} ({text})")
    return StoreUnavailable(f"{database} cannot be reached; start it, or correct the URL ({text})")
