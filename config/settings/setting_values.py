"""One value as an operator writes it, in a flag, a variable or a file: text in, value out.

Each function raises ValueError with what is allowed; which setting it was, the caller knows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from config.model.durations import parse_duration_ms
from config.model.limits import RELAXED

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?", re.ASCII | re.IGNORECASE)
_SIZE_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_SQLITE = "sqlite:///"
_SQLITE_IN_HOME = _SQLITE + "~"
_HOST_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.IGNORECASE)
_IDLE_TIMEOUT_MAX_MS = 24 * 24 * 3600 * 1000  # twice as much, in milliseconds, is an AMQP uint


def read_path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError("a path; it begins with the home folder of somebody unknown") from error


def read_existing_file(text: str) -> Path:
    path = read_path(text)
    if not path.is_file():
        raise ValueError("the path of a file that exists")
    return path


def read_folder(text: str) -> Path:
    return read_path(text).absolute()


def read_host(text: str) -> str:
    host = text.strip().removeprefix("[").removesuffix("]")
    if not host:
        raise ValueError("an address to listen on, such as 127.0.0.1, 0.0.0.0 or ::1")
    return host


def read_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or not all(map(_is_name_or_address, names)):
        raise ValueError("host names or addresses with commas between them")
    return names


def _is_name_or_address(text: str) -> bool:
    if ":" not in text:
        return _HOST_NAME.fullmatch(text) is not None
    from ipaddress import AddressValueError, IPv6Address  # rarely needed

    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def read_key(text: str) -> str:
    """A key or its name: a part of connection strings, which end it with a semicolon."""
    if not text or ";" in text:
        raise ValueError("text without semicolons, and not empty")
    return text


def read_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise ValueError("a port from 1 to 65535, or 0 for a free one")
    return int(text)


def read_boolean(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return text.lower() in _TRUE


def read_size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("a size such as 512MiB or 2GiB")
    return int(match[1]) * _SIZE_UNITS[(match[2] or "").lower()]


def read_duration(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise ValueError("a duration such as PT30S or 30s") from error


def read_lock_duration(text: str) -> int:
    duration_ms = read_duration(text)
    if not RELAXED.lock_duration_min_ms <= duration_ms <= RELAXED.lock_duration_max_ms:
        raise ValueError("a duration from PT5S to PT5M")
    return duration_ms


def read_idle_timeout(text: str) -> int:
    duration_ms = read_duration(text)
    if duration_ms > _IDLE_TIMEOUT_MAX_MS:
        raise ValueError("a duration of 24d or less, or 0s for none")
    return duration_ms


def read_store(text: str) -> str:
    if text.startswith(_SQLITE_IN_HOME):
        text = sqlite_url(read_path(text.removeprefix(_SQLITE)))
    is_file = text.startswith(_SQLITE) and not text.endswith("/")
    if not is_file and text.rstrip("/") != "memory:":
        raise ValueError("memory:, sqlite:///relative/path or sqlite:////absolute/path")
    return text


def sqlite_url(path: Path) -> str:
    """What names the file in a storage URL."""
    return _SQLITE + str(path).replace("%", "%25")


def read_one_of(choices: type[Enum]) -> Callable[[str], Enum]:
    by_name = {str(choice.value).lower(): choice for choice in choices}

    def parse(text: str) -> Enum:
        if text.lower() not in by_name:
            raise ValueError(" or ".join(str(choice.value) for choice in choices))
        return by_name[text.lower()]

    return parse
