"""The settings of the process: listeners, storage, logs, authorization, limits.

Declares the name, type, default and description of each setting. `setting_sources.py` reads their values. Settings do
not change while the process runs, and do not declare entities.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ByteSize, ConfigDict, Field

from config.model.choices import Choice
from config.model.definitions import DEFAULT_LOCK_DURATION_MS
from config.model.limits import MEBIBYTE, MINUTE_MS, SECOND_MS, Limits, Tier, relaxed, strict
from config.model.storage_urls import format_sqlite_url
from config.settings.setting_values import (
    Bytes,
    ExistingFile,
    Folder,
    Host,
    HostNames,
    IdleTimeout,
    Key,
    LockDuration,
    Milliseconds,
    Port,
    StorageUrlText,
    Switch,
)


class LogFormat(Choice):
    CONSOLE = "console"
    JSON = "json"


class LogLevel(Choice):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Authorization(Choice):
    DEVELOPMENT = "development"
    """A client needs no token, and any well-formed bearer token is accepted. A shared access
    signature must still be made with a known key."""
    STRICT = "strict"
    """Signatures, expiry and claims are verified, entity by entity."""


class Quotas(Choice):
    RELAXED = "relaxed"
    STRICT = "strict"
    """The quotas of Azure in the tier of the settings."""


class IdentityClients(Choice):
    """The clients that get a token from the managed identity endpoint, if they send its secret."""

    NONE = "none"
    LOOPBACK = "loopback"
    ANY = "any"


class UndeclaredEntities(Choice):
    """What the broker does at start with entities that are in the store and not in the file."""

    KEEP = "keep"
    DROP = "drop"


def data_folder() -> Path:
    """Returns the folder for the data of this user's brokers."""
    data_home = os.environ.get("XDG_DATA_HOME") or _home() / ".local" / "share"
    return Path(data_home).absolute() / "peeklock"


def _home() -> Path:
    try:
        return Path.home()
    except (
        RuntimeError
    ):  # the system does not know the user, as in a container: the home folder is "/"
        return Path("/")


def default_storage() -> str:
    """Returns the URL of an SQLite file in the data folder."""
    return format_sqlite_url(str(data_folder() / "peeklock.db"))


def default_storage_of(config_file: Path) -> str:
    """Returns the URL of an SQLite file in the data folder that belongs to one config file.

    Two projects, each with a file of its own, share no entities and no messages.
    """
    path = str(config_file.resolve())
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return format_sqlite_url(str(data_folder() / "stores" / f"{config_file.stem}-{digest}.db"))


class Settings(BaseModel):
    """All settings. An alias is the name without the unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    host: Host = Field("127.0.0.1", description="address to listen on")
    amqp_port: Port = Field(5672, description="port for AMQP; 0 picks a free one")
    http_port: Port = Field(
        5300, description="port for administration and health; 0 picks a free one"
    )
    # None: no listener of its own. The other listeners accept TLS as well.
    tls_port: Port | None = Field(None, description="additional port, for clients that require TLS")
    tls_certificate: ExistingFile | None = Field(
        None, description="PEM file with the certificate chain"
    )
    # None: the file of the certificate contains the key as well.
    tls_key: ExistingFile | None = Field(
        None, description="PEM file with the certificate's private key"
    )
    tls_folder: Folder = Field(
        default_factory=lambda: data_folder() / "tls",
        description="folder of the certificate authority that the broker creates",
    )
    tls_names: HostNames = Field(
        (
            "localhost",
            "127.0.0.1",
            "::1",
            "peeklock",
            "host.docker.internal",
            # For code that requires a host name of the cloud, which a network alias resolves to the broker.
            "*.servicebus.windows.net",
        ),
        description="host names in the certificate that the broker creates, separated by commas",
    )
    storage: StorageUrlText = Field(
        default_factory=default_storage,
        description="memory: or sqlite:///PATH; without it, each config file has its own SQLite file",
    )
    # Bodies of waiting messages beyond this are only in the store.
    payload_memory_bytes: Bytes = Field(
        ByteSize(32 * MEBIBYTE),
        alias="payload_memory",
        description="memory for the bodies of waiting messages; others stay in the store",
    )
    log_format: LogFormat = Field(LogFormat.CONSOLE, description="console or json")
    log_level: LogLevel = Field(LogLevel.INFO, description="debug, info, warning or error")
    authorization: Authorization = Field(
        Authorization.DEVELOPMENT,
        description="development (no token or any bearer token is enough) or strict (all is verified)",
    )
    shared_access_key_name: Key = Field(
        "RootManageSharedAccessKey", description="name of the key that grants everything"
    )
    shared_access_key: Key = Field("SAS_KEY_VALUE", description="the key that grants everything")
    # None: strict authorization accepts no bearer tokens.
    jwt_keys: ExistingFile | None = Field(
        None,
        description="file with which strict authorization verifies bearer tokens: a JWK set, PEM public "
        "keys or a secret",
    )
    jwt_issuer: str | None = Field(None, description="required issuer of a bearer token")
    jwt_audience: str | None = Field(None, description="required audience of a bearer token")
    # None: any in development, where every token is accepted, and loopback in strict authorization.
    identity_clients: IdentityClients | None = Field(
        None,
        description="who may get a token from the managed identity endpoint with its secret: none, "
        "loopback (default in strict authorization) or any (default in development)",
    )
    default_lock_duration_ms: LockDuration = Field(
        DEFAULT_LOCK_DURATION_MS,
        alias="default_lock_duration",
        description="lock duration of queues and subscriptions created without one, such as 1m; "
        "entities in the emulator's Config.json have the emulator's default",
    )
    undeclared_entities: UndeclaredEntities = Field(
        UndeclaredEntities.KEEP,
        description="at start, keep or drop the entities in the store that the config file does not "
        "declare, with their messages",
    )
    create_on_first_use: Switch = Field(
        False, description="create a queue when a client first uses its name"
    )
    tier: Tier = Field(Tier.PREMIUM, description="Basic (plain queues only), Standard or Premium")
    quotas: Quotas = Field(
        Quotas.RELAXED, description="relaxed, or strict: Azure's quotas for the tier"
    )
    testing_api: Switch = Field(False, description="let tests move the broker's clock")
    # None: on in development, where every client may do everything, and off in strict authorization.
    control_api: Switch | None = Field(
        None,
        description="serve the control API under /$peeklock/v1, with which tests look at the broker and change it: "
        "on (default in development) or off (default in strict authorization)",
    )
    hold_locks_after_connection_loss: Switch = Field(
        False, description="keep the message locks of a lost connection until they expire"
    )
    # The Python SDK sends heartbeats on a slow tick, so the timeout must be two minutes or more.
    idle_timeout_ms: IdleTimeout = Field(
        4 * MINUTE_MS,
        alias="idle_timeout",
        description="idle timeout announced to clients, such as 4m; a connection is closed after twice "
        "that time without a frame; 0s: never",
    )
    # Everything is durable by then. An idle client of the Python SDK never answers, because it reads only
    # while it is called, and `docker stop` kills the process after ten seconds.
    shutdown_grace_ms: Milliseconds = Field(
        1 * SECOND_MS,
        alias="shutdown_grace",
        description="how long a stop waits for clients to close their connections, such as 5s",
    )

    @property
    def limits(self) -> Limits:
        limits = (strict if self.quotas is Quotas.STRICT else relaxed)(self.tier)
        return replace(limits, lock_duration_default_ms=self.default_lock_duration_ms)
