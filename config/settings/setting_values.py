"""The types of settings: how each kind of value is written, and what is allowed.

Values arrive as text, from a flag, a variable or a file. Each type has the function that reads the text, and the
sentence that says what is allowed. Plain functions do this without a library: a validation library would be a quarter of
the broker's start time and of its memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from config.model.durations import parse_duration_ms
from config.model.limits import RELAXED
from config.model.report_kinds import FAIL_ON, parse_fail_on
from config.model.storage_urls import FORMS, format_sqlite_url, parse_storage_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from config.model.choices import Choice

T = TypeVar("T")

_SIZE = re.compile(r"(\d+)\s*(?:([KMGT])iB|B)?", re.ASCII | re.IGNORECASE)
_SIZE_PREFIXES = "KMGT"
_COUNT_MAX = 10_000_000
_PORT_MAX = 65_535
_SWITCH_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
_HOST_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.IGNORECASE)
_IDLE_TIMEOUT_MAX_MS = 24 * 24 * 3600 * 1000  # twice as many milliseconds fit into an AMQP uint

_OWNERSHIP_LEASE_MIN_MS, _OWNERSHIP_LEASE_MAX_MS = 1_000, 10 * 60 * 1000


class ValueNotAllowed(ValueError):
    """A value is not allowed. The text says what is."""


@dataclass(frozen=True, slots=True)
class SettingType(Generic[T]):
    """A kind of value."""

    read: Callable[[str], T]
    """Returns the value of a text. Raises `ValueError` if it is not allowed."""
    allowed: str
    """What is allowed, as a sentence."""

    def parse(self, text: str) -> T:
        """Returns the value of a text. Raises `ValueNotAllowed` with the sentence, or with a more specific one of
        `read`."""
        try:
            return self.read(text)
        except ValueNotAllowed:
            raise
        except ValueError as error:
            raise ValueNotAllowed(self.allowed) from error


# --- reading ----------------------------------------------------------------------------------------


def read_path(text: str) -> Path:
    """Returns the path, with the home folder in place of `~`. Raises `ValueNotAllowed` for an unknown home."""
    if "\0" in text:
        raise ValueNotAllowed("a path; it has a null character")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueNotAllowed(
            "a path; it begins with the home folder of an unknown user"
        ) from error


def _folder(text: str) -> Path:
    return read_path(text).absolute()


def _existing_file(text: str) -> Path:
    path = read_path(text)
    if not path.is_file():
        raise ValueError
    return path


def _host(text: str) -> str:
    host = text.strip().removeprefix("[").removesuffix("]")
    if not host or "\0" in host:
        raise ValueError
    host.encode(
        "idna"
    )  # raises UnicodeError, a ValueError, as the socket would: for a..b, for example
    return host


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or not all(map(_is_name_or_address, names)):
        raise ValueError
    return names


def _known_names(text: str) -> tuple[str, ...]:
    return ("*",) if text.strip() == "*" else _names(text)


def _is_name_or_address(text: str) -> bool:
    if ":" not in text:
        return _HOST_NAME.fullmatch(text) is not None
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _PORT_MAX:
        raise ValueError
    return port


def _bytes(text: str) -> int:
    """Raises ValueError for decimal units: whether MB means 1000 or 1024 kB differs between programs."""
    size = _SIZE.fullmatch(text)
    if size is None:
        raise ValueError
    prefix = (size[2] or "").upper()
    return int(size[1]) << (10 * (_SIZE_PREFIXES.index(prefix) + 1) if prefix else 0)


def _count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= _COUNT_MAX:
        raise ValueError
    return count


def _report_files(text: str) -> tuple[Path, ...]:
    paths = tuple(read_path(one.strip()).absolute() for one in text.split(","))
    if not all(one.suffix.lower() in {".json", ".xml"} and one.parent.is_dir() for one in paths):
        raise ValueError
    return paths


def _key(text: str) -> str:
    if not text or ";" in text:
        raise ValueError
    return text


def _switch(text: str) -> bool:
    value = _SWITCH_WORDS.get(text.strip().lower())
    if value is None:
        raise ValueError
    return value


def _lock_duration(text: str) -> int:
    duration_ms = MILLISECONDS.parse(text)
    if not RELAXED.lock_duration_min_ms <= duration_ms <= RELAXED.lock_duration_max_ms:
        raise ValueError
    return duration_ms


def _idle_timeout(text: str) -> int:
    timeout_ms = MILLISECONDS.parse(text)
    if timeout_ms > _IDLE_TIMEOUT_MAX_MS:
        raise ValueError
    return timeout_ms


def _ownership_lease(text: str) -> int:
    lease_ms = MILLISECONDS.parse(text)
    if not _OWNERSHIP_LEASE_MIN_MS <= lease_ms <= _OWNERSHIP_LEASE_MAX_MS:
        raise ValueError
    return lease_ms


def _storage_url(url: str) -> str:
    """Returns the URL, with the home folder in place of `~`. Raises ValueError if it names no store."""
    path = parse_storage_url(url).path
    return format_sqlite_url(str(read_path(path))) if path.startswith("~") else url


# --- the types ------------------------------------------------------------------------------------

TEXT = SettingType(str, "text")
HOST = SettingType(_host, "an address to listen on, such as 127.0.0.1, 0.0.0.0 or ::1")
HOST_NAMES = SettingType(_names, "host names or addresses with commas between them")
NAMES_OF_HOSTS = SettingType(_known_names, "host names with commas between them, or * for any")
PORT = SettingType(_port, "a port from 1 to 65535, or 0 for a free one")
EXISTING_FILE = SettingType(_existing_file, "the path of a file that exists")
FOLDER = SettingType(_folder, "the path of a folder")
BYTES = SettingType(_bytes, "a size such as 512MiB or 2GiB")
COUNT = SettingType(_count, f"a number from 0 to {_COUNT_MAX}")
REPORT_FILES = SettingType(
    _report_files,
    "paths that end with .json or .xml, in folders that exist, with commas between them",
)
REPORT_KIND_NAMES = SettingType(parse_fail_on, FAIL_ON)
KEY = SettingType(_key, "text without semicolons, and not empty")
"""A key or its name: a part of connection strings, in which a semicolon ends it."""
SWITCH = SettingType(_switch, "true or false")
MILLISECONDS = SettingType(parse_duration_ms, "a duration such as PT30S or 30s")
LOCK_DURATION = SettingType(_lock_duration, "a duration from PT5S to PT5M")
IDLE_TIMEOUT = SettingType(_idle_timeout, "a duration of 24d or less, or 0s for none")
OWNERSHIP_LEASE = SettingType(_ownership_lease, "a duration from 1s to 10m")
STORAGE_URL = SettingType(_storage_url, FORMS)

C = TypeVar("C", bound="Choice")


def choice_of(choices: type[C]) -> SettingType[C]:
    """Returns the type of a setting that is one of a few names."""
    return SettingType(choices, " or ".join(str(one.value) for one in choices))
