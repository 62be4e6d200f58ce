"""The settings of the process: listeners, storage, logs, authorization, limits.

Declares the name, type, default and description of each setting. `setting_sources.py` reads their values. Settings do
not change while the process runs, and do not declare entities.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from config.model.choices import Choice
from config.model.definitions import DEFAULT_LOCK_DURATION_MS
from config.model.limits import MEBIBYTE, MINUTE_MS, SECOND_MS, Limits, Tier, relaxed, strict
from config.model.report_kinds import DEFAULT_FAIL_ON, FAIL_ON
from config.model.storage_urls import format_sqlite_url
from config.settings.setting_values import (
    BYTES,
    COUNT,
    EXISTING_FILE,
    FOLDER,
    HOST,
    HOST_NAMES,
    IDLE_TIMEOUT,
    KEY,
    LOCK_DURATION,
    MILLISECONDS,
    NAMES_OF_HOSTS,
    OWNERSHIP_LEASE,
    PORT,
    REPORT_FILES,
    REPORT_KIND_NAMES,
    STORAGE_URL,
    SWITCH,
    TEXT,
    SettingType,
    choice_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
D = TypeVar("D")


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


class Declaration(NamedTuple):
    """What is known about a setting besides its default."""

    field: str
    name: str
    """As flags, variables and files have it: without the unit."""
    type: SettingType[Any]
    description: str


def _setting(default: D, type_: SettingType[T], description: str, *, name: str = "") -> T | D:
    """Declares a setting. Its name is that of the field, if no other is given."""
    metadata = {"name": name, "type": type_, "description": description}
    return cast("T | D", field(default=default, metadata=metadata))


def _setting_from(default: Callable[[], T], type_: SettingType[T], description: str) -> T:
    """Declares a setting whose default depends on the environment."""
    metadata = {"name": "", "type": type_, "description": description}
    return field(default_factory=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings."""

    host: str = _setting("127.0.0.1", HOST, "address to listen on")
    amqp_port: int = _setting(5672, PORT, "port for AMQP; 0 picks a free one")
    http_port: int = _setting(5300, PORT, "port for administration and health; 0 picks a free one")
    # None: no listener of its own. The other listeners accept TLS as well.
    tls_port: int | None = _setting(None, PORT, "additional port, for clients that require TLS")
    tls_certificate: Path | None = _setting(
        None, EXISTING_FILE, "PEM file with the certificate chain"
    )
    # None: the file of the certificate contains the key as well.
    tls_key: Path | None = _setting(
        None, EXISTING_FILE, "PEM file with the certificate's private key"
    )
    tls_folder: Path = _setting_from(
        lambda: data_folder() / "tls",
        FOLDER,
        "folder of the certificate authority that the broker creates",
    )
    tls_names: tuple[str, ...] = _setting(
        (
            "localhost",
            "127.0.0.1",
            "::1",
            "peeklock",
            "host.docker.internal",
            # For code that requires a host name of the cloud, which a network alias resolves to the broker.
            "*.servicebus.windows.net",
        ),
        HOST_NAMES,
        "host names in the certificate that the broker creates, separated by commas",
    )
    http_names: tuple[str, ...] = _setting(
        (),
        NAMES_OF_HOSTS,
        "more host names by which the console and the control API are reached, separated by commas, such as the "
        "name of a reverse proxy; * for any",
    )
    storage: str = _setting_from(
        default_storage,
        STORAGE_URL,
        "memory:, sqlite:///PATH or postgresql://HOST/DATABASE; without it, each config file has its own SQLite file",
    )
    storage_wait_ms: int = _setting(
        1 * MINUTE_MS,
        MILLISECONDS,
        "how long a start waits for a database that cannot be reached, such as 5m",
        name="storage_wait",
    )
    # All processes with the same store must have the same value.
    ownership_lease_ms: int = _setting(
        10 * SECOND_MS,
        OWNERSHIP_LEASE,
        "how long the owner of a shared database may be silent before a standby takes over, such as 5s; "
        "the same in all processes",
        name="ownership_lease",
    )
    # Bodies of waiting messages beyond this are only in the store.
    payload_memory_bytes: int = _setting(
        32 * MEBIBYTE,
        BYTES,
        "memory for the bodies of waiting messages; others stay in the store",
        name="payload_memory",
    )
    log_format: LogFormat = _setting(LogFormat.CONSOLE, choice_of(LogFormat), "console or json")
    log_level: LogLevel = _setting(
        LogLevel.INFO, choice_of(LogLevel), "debug, info, warning or error"
    )
    authorization: Authorization = _setting(
        Authorization.DEVELOPMENT,
        choice_of(Authorization),
        "development (no token or any bearer token is enough) or strict (all is verified)",
    )
    shared_access_key_name: str = _setting(
        "RootManageSharedAccessKey", KEY, "name of the key that grants everything"
    )
    shared_access_key: str = _setting("SAS_KEY_VALUE", KEY, "the key that grants everything")
    # None: strict authorization accepts no bearer tokens.
    jwt_keys: Path | None = _setting(
        None,
        EXISTING_FILE,
        "file with which strict authorization verifies bearer tokens: a JWK set, PEM public "
        "keys or a secret",
    )
    jwt_issuer: str | None = _setting(None, TEXT, "required issuer of a bearer token")
    jwt_audience: str | None = _setting(None, TEXT, "required audience of a bearer token")
    # None: any in development, where every token is accepted, and loopback in strict authorization.
    identity_clients: IdentityClients | None = _setting(
        None,
        choice_of(IdentityClients),
        "who may get a token from the managed identity endpoint with its secret: none, "
        "loopback (default in strict authorization) or any (default in development)",
    )
    default_lock_duration_ms: int = _setting(
        DEFAULT_LOCK_DURATION_MS,
        LOCK_DURATION,
        "lock duration of queues and subscriptions created without one, such as 1m; "
        "entities in the emulator's Config.json have the emulator's default",
        name="default_lock_duration",
    )
    undeclared_entities: UndeclaredEntities = _setting(
        UndeclaredEntities.KEEP,
        choice_of(UndeclaredEntities),
        "at start, keep or drop the entities in the store that the config file does not "
        "declare, with their messages",
    )
    create_on_first_use: bool = _setting(
        False, SWITCH, "create a queue when a client first uses its name"
    )
    tier: Tier = _setting(
        Tier.PREMIUM, choice_of(Tier), "Basic (plain queues only), Standard or Premium"
    )
    quotas: Quotas = _setting(
        Quotas.RELAXED, choice_of(Quotas), "relaxed, or strict: Azure's quotas for the tier"
    )
    testing_api: bool = _setting(
        False,
        SWITCH,
        "serve the older address /$peeklock/clock, with which tests move the broker's clock",
    )
    # None: on in development, where every client may do everything, and off in strict authorization.
    control_api: bool | None = _setting(
        None,
        SWITCH,
        "serve the control API under /$peeklock/v1, with which tests look at the broker and change it: "
        "on (default in development) or off (default in strict authorization)",
    )
    frames: int = _setting(
        0,
        COUNT,
        "number of AMQP frames that the control API keeps for each namespace from the start on; 0: none, until a "
        "request asks for them",
    )
    # None: 100,000, and only namespaces that the control API creates are recorded from the beginning.
    history: int | None = _setting(
        None,
        COUNT,
        "record what happens to messages in all namespaces, and keep so many transitions of each in memory; without it, "
        "100000 where the control API asks for it and in namespaces that it creates; 0: never",
    )
    # None: no report is written. The control API makes one whenever it is asked.
    report: tuple[Path, ...] | None = _setting(
        None,
        REPORT_FILES,
        "files that the broker writes when it stops, with what went wrong: .json, .xml for JUnit, or both with a "
        "comma between them",
    )
    report_fail_on: tuple[str, ...] = _setting(
        DEFAULT_FAIL_ON, REPORT_KIND_NAMES, f"findings that are failures in these files: {FAIL_ON}"
    )
    tracing: bool = _setting(
        False,
        SWITCH,
        "export spans of messages that carry a trace id, by OTLP as OTEL_* variables say; needs peeklock[otel]",
    )
    hold_locks_after_connection_loss: bool = _setting(
        False, SWITCH, "keep the message locks of a lost connection until they expire"
    )
    # The Python SDK sends heartbeats on a slow tick, so the timeout must be two minutes or more.
    idle_timeout_ms: int = _setting(
        4 * MINUTE_MS,
        IDLE_TIMEOUT,
        "idle timeout announced to clients, such as 4m; a connection is closed after twice "
        "that time without a frame; 0s: never",
        name="idle_timeout",
    )
    # Everything is durable by then. An idle client of the Python SDK never answers, because it reads only
    # while it is called, and `docker stop` kills the process after ten seconds.
    shutdown_grace_ms: int = _setting(
        1 * SECOND_MS,
        MILLISECONDS,
        "how long a stop waits for clients to close their connections, such as 5s",
        name="shutdown_grace",
    )

    @property
    def serves_control_api(self) -> bool:
        """Whether the control API is served."""
        if self.control_api is None:
            return self.authorization is not Authorization.STRICT
        return self.control_api

    @property
    def azure_limits(self) -> Limits:
        """The quotas of Azure in the tier, whether they are enforced or not."""
        return strict(self.tier)

    @property
    def limits(self) -> Limits:
        """The limits that are enforced."""
        limits = (strict if self.quotas is Quotas.STRICT else relaxed)(self.tier)
        return replace(limits, lock_duration_default_ms=self.default_lock_duration_ms)


DECLARATIONS = tuple(
    Declaration(
        one.name,
        one.metadata["name"] or one.name,
        one.metadata["type"],
        one.metadata["description"],
    )
    for one in fields(Settings)
)
"""Every setting, in the order of its declaration."""
