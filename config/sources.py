"""Where settings come from: flags, environment, file, defaults, in this order.

Owns every name a setting goes by and how its text is read; what a setting means is in
`settings.py`. Each setting has a flag, a variable and a name in the file, made from one name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.document import Node
from config.durations import parse_duration_ms
from config.limits import Tier
from config.mistakes import did_you_mean
from config.settings import Authorization, LogFormat, LogLevel, Quotas, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import Enum

    from config.mistakes import Report

ENVIRONMENT_PREFIX = "PEEKLOCK_"

CONFIG_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG"
"""Names the config file, where no flag does."""

EMULATOR_VARIABLES = {"http_port": "EMULATOR_HTTP_PORT"}
"""The official emulator's own variables that mean something here. Those about its SQL Server and
its licence (SQL_SERVER, MSSQL_SA_PASSWORD, SQL_WAIT_INTERVAL, ACCEPT_EULA) may be set and are not
looked at."""

# --- reading one value: text in, value out, or a ValueError that says what is allowed ------------

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?", re.ASCII | re.IGNORECASE)
_SIZE_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_USER_AND_PASSWORD = re.compile(r"//[^/@]*@")
_STORES = ("memory:", "sqlite:///", "postgresql://")


def _text(text: str) -> str:
    return text


def _existing_file(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise ValueError("the path of a file that exists")
    return path


def _folder(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("names or addresses with commas between them")
    return names


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise ValueError("a port from 1 to 65535, or 0 for a free one")
    return int(text)


def _boolean(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return text.lower() in _TRUE


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("a size such as 512MiB or 2GiB")
    return int(match[1]) * _SIZE_UNITS[(match[2] or "").lower()]


def _duration(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise ValueError("a duration such as PT30S or 30s") from error


def _store(text: str) -> str:
    if not text.startswith(_STORES):
        raise ValueError("memory:, sqlite:///PATH or postgresql://HOST/DATABASE")
    return text


def _one_of(choices: type[Enum]) -> Callable[[str], Enum]:
    by_name = {str(choice.value).lower(): choice for choice in choices}

    def parse(text: str) -> Enum:
        if text.lower() not in by_name:
            raise ValueError(" or ".join(str(choice.value) for choice in choices))
        return by_name[text.lower()]

    return parse


# --- the names ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting under each of its names."""

    name: str
    field: str
    parse: Callable[[str], Any]
    explanation: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def is_switch(self) -> bool:
        """Whether the flag alone, without a value, means true."""
        return self.parse is _boolean


def _setting(
    name: str, parse: Callable[[str], Any], explanation: str, unit: str | None = None
) -> Setting:
    return Setting(name, f"{name}_{unit}" if unit else name, parse, explanation)


SETTINGS = (
    _setting("host", _text, "address to listen on"),
    _setting("amqp_port", _port, "port for AMQP; 0 picks a free one"),
    _setting("http_port", _port, "port for administration and health; 0 picks a free one"),
    _setting("tls_port", _port, "one more port, for clients that insist on TLS"),
    _setting("tls_certificate", _existing_file, "PEM file with the certificate chain"),
    _setting("tls_key", _existing_file, "PEM file with the certificate's private key"),
    _setting("tls_folder", _folder, "where the certificate authority made here is kept"),
    _setting("tls_names", _names, "host names the certificate made here is for, with commas"),
    _setting("storage", _store, "memory:, sqlite:///PATH or postgresql://HOST/DATABASE"),
    _setting("payload_memory", _size, "memory for bodies of waiting messages", "bytes"),
    _setting("log_format", _one_of(LogFormat), "console or json"),
    _setting("log_level", _one_of(LogLevel), "debug, info, warning or error"),
    _setting(
        "authorization",
        _one_of(Authorization),
        "development (the well-known key and any token pass) or strict (all is verified)",
    ),
    _setting("shared_access_key_name", _text, "name of the key that may do everything"),
    _setting("shared_access_key", _text, "the key that may do everything"),
    _setting("create_on_first_use", _boolean, "create a queue when a client first names it"),
    _setting("tier", _one_of(Tier), "Basic, Standard or Premium"),
    _setting("quotas", _one_of(Quotas), "relaxed, or strict: Azure's own in that tier"),
    _setting("testing_api", _boolean, "let tests move the clock, inject faults and reset"),
    _setting(
        "hold_locks_after_connection_loss",
        _boolean,
        "keep the message locks of a lost connection until they expire",
    ),
    _setting("idle_timeout", _duration, "silence that ends a connection, such as 4m", "ms"),
    _setting("shutdown_grace", _duration, "how long a stop may take, such as 10s", "ms"),
)


# --- putting them together ------------------------------------------------------------------------


def read_settings(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    section: Node | None,
    report: Report,
) -> Settings:
    """`flags` go by setting name; `section` is the file's. Whatever is wrong stays at its default."""
    in_file = _members(section, report)
    values: dict[str, Any] = {}
    for one in SETTINGS:
        node = _given(one, flags, environment) or in_file.get(one.name)
        if node is None or node.value is None:
            continue
        try:
            values[one.field] = one.parse(_as_text(node))
        except ValueError as allowed:
            found = _USER_AND_PASSWORD.sub("//***@", node.kind)
            report.mistake(node, f"{found} is not allowed; expected {allowed}")
    _warn_of_misspelt_variables(environment, report)
    return Settings(**values)


def _given(one: Setting, flags: Mapping[str, str], environment: Mapping[str, str]) -> Node | None:
    if (text := flags.get(one.name)) is not None:
        return Node(text, one.flag)
    for variable in (one.variable, EMULATOR_VARIABLES.get(one.name)):
        # Compose files pass on variables that are empty: they are as good as not set.
        if variable and (text := environment.get(variable)):
            return Node(text, variable)
    return None


def _members(section: Node | None, report: Report) -> dict[str, Node]:
    if section is None or section.value is None:
        return {}
    if not isinstance(section.value, dict):
        report.mistake(section, f"expected settings by name, found {section.kind}")
        return {}
    known = [one.name for one in SETTINGS]
    for name, node in section.value.items():
        if name not in known:
            report.mistake(node, f"there is no such setting{did_you_mean(name, known)}")
    return section.value


def _as_text(node: Node) -> str:
    match node.value:
        case bool():
            return str(node.value).lower()
        case str() | int() | float():
            return str(node.value)
        case _:
            raise ValueError("a single value")


def _warn_of_misspelt_variables(environment: Mapping[str, str], report: Report) -> None:
    # Kubernetes sets PEEKLOCK_SERVICE_HOST and the like for a service of that name, so only what
    # comes close to a setting is worth a word.
    known = [*(one.name.upper() for one in SETTINGS), "CONFIG"]
    for variable in environment:
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name != variable and name not in known and (hint := did_you_mean(name, known)):
            report.warning(Node(None, variable), f"is not a setting{hint}")
