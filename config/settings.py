"""How this process runs: listeners, storage, logs, authorization, budgets.

Plain frozen data, already checked; `sources.py` fills it from flags, environment and file. What
entities exist is not said here. The same for as long as the process runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from config.limits import MEBIBYTE, MINUTE_MS, RELAXED, SECOND_MS, Limits, Tier, strict


class LogFormat(Enum):
    CONSOLE = "console"
    JSON = "json"


class LogLevel(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Authorization(Enum):
    DEVELOPMENT = "development"
    """The emulator's well-known key and any well-formed token are taken."""
    STRICT = "strict"
    """Signatures, expiry and claims are verified, entity by entity."""


class Quotas(Enum):
    RELAXED = "relaxed"
    STRICT = "strict"
    """Azure's own, in the tier that the settings name."""


def data_folder() -> Path:
    """Where this user's brokers keep what outlives them."""
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home).absolute() / "peeklock"


def default_storage() -> str:
    """An SQLite file in the user's data folder."""
    return f"sqlite:///{data_folder() / 'peeklock.db'}"


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = "127.0.0.1"
    amqp_port: int = 5672
    """0 picks a free port, here and below."""
    http_port: int = 5300
    tls_port: int | None = None
    """None: no listener of its own; the others understand TLS as well."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    """None: the certificate's file holds the key as well."""
    tls_folder: Path = field(default_factory=lambda: data_folder() / "tls")
    """Where our own certificate authority lives, used when no certificate is given."""
    tls_names: tuple[str, ...] = (
        "localhost",
        "127.0.0.1",
        "::1",
        "peeklock",
        "host.docker.internal",
    )
    """Names and addresses our own certificate is good for."""
    storage: str = field(default_factory=default_storage)
    payload_memory_bytes: int = 512 * MEBIBYTE
    """Bodies of waiting messages beyond this stay in the store alone."""
    log_format: LogFormat = LogFormat.CONSOLE
    log_level: LogLevel = LogLevel.INFO
    authorization: Authorization = Authorization.DEVELOPMENT
    shared_access_key_name: str = "RootManageSharedAccessKey"
    shared_access_key: str = "SAS_KEY_VALUE"
    create_on_first_use: bool = False
    tier: Tier = Tier.PREMIUM
    quotas: Quotas = Quotas.RELAXED
    testing_api: bool = False
    hold_locks_after_connection_loss: bool = False
    idle_timeout_ms: int = 4 * MINUTE_MS
    """Python's SDK keeps a connection alive only on a slow tick: two minutes are the least."""
    shutdown_grace_ms: int = 10 * SECOND_MS

    @property
    def limits(self) -> Limits:
        return strict(self.tier) if self.quotas is Quotas.STRICT else RELAXED
