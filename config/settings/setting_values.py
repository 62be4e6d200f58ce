"""The types of settings: how each kind of value is written, and what is allowed.

Values arrive as text, from a flag, a variable or a file, or as themselves from Python code. Pydantic
parses and checks them; what it has no type for is parsed here. Each type carries the sentence that says
what is allowed.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    FilePath,
    ValidationError,
    WrapValidator,
)

from config.model.durations import parse_duration_ms
from config.model.limits import RELAXED
from config.model.storage_urls import FORMS, format_sqlite_url, parse_storage_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import ValidatorFunctionWrapHandler

_SIZE = re.compile(r"\d+\s*(?:[KMGT]iB|B)?", re.ASCII | re.IGNORECASE)
_HOST_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.IGNORECASE)
_IDLE_TIMEOUT_MAX_MS = 24 * 24 * 3600 * 1000  # twice as many milliseconds fit into an AMQP uint


class ValueNotAllowed(ValueError):
    """A value is not allowed. The text says what is."""


# --- parsing what pydantic has no type for --------------------------------------------------------


def read_path(text: str) -> Path:
    """Returns the path, with the home folder in place of `~`. Raises `ValueNotAllowed` for an unknown home."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueNotAllowed(
            "a path; it begins with the home folder of an unknown user"
        ) from error


def _of_text(read: Callable[[str], object]) -> BeforeValidator:
    """Parses text, and passes on values that are not text."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


def _expected(sentence: str) -> WrapValidator:
    """Replaces the error of a validator with a sentence that says what is allowed.

    A sentence that an inner validator gave is kept: it is more specific.
    """

    def validate(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            reason = error.errors()[0].get("ctx", {}).get("error")
            raise (
                reason if isinstance(reason, ValueNotAllowed) else ValueNotAllowed(sentence)
            ) from error

    return WrapValidator(validate)


def _host(text: str) -> str:
    return text.strip().removeprefix("[").removesuffix("]")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _check_size(text: str) -> str:
    """Raises ValueError for decimal units: whether MB means 1000 or 1024 kB differs between programs."""
    if _SIZE.fullmatch(text) is None:
        raise ValueError
    return text


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(map(_is_name_or_address, names)):
        raise ValueError
    return names


def _is_name_or_address(text: str) -> bool:
    if ":" not in text:
        return _HOST_NAME.fullmatch(text) is not None
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _check_storage_url(url: str) -> str:
    """Returns the URL, with the home folder in place of `~`. Raises ValueError if it names no store."""
    path = parse_storage_url(url).path
    return format_sqlite_url(str(read_path(path))) if path.startswith("~") else url


# --- the types ------------------------------------------------------------------------------------

Host = Annotated[
    str,
    _of_text(_host),
    Field(min_length=1),
    _expected("an address to listen on, such as 127.0.0.1, 0.0.0.0 or ::1"),
]
HostNames = Annotated[
    tuple[str, ...],
    _of_text(_names),
    Field(min_length=1),
    AfterValidator(_check_names),
    _expected("host names or addresses with commas between them"),
]
Port = Annotated[
    int, Field(ge=0, le=65_535), _expected("a port from 1 to 65535, or 0 for a free one")
]
ExistingFile = Annotated[FilePath, _of_text(read_path), _expected("the path of a file that exists")]
Folder = Annotated[
    Path, _of_text(read_path), AfterValidator(Path.absolute), _expected("the path of a folder")
]
Bytes = Annotated[ByteSize, _of_text(_check_size), _expected("a size such as 512MiB or 2GiB")]
Key = Annotated[str, Field(pattern=r"^[^;]+$"), _expected("text without semicolons, and not empty")]
"""A key or its name: a part of connection strings, in which a semicolon ends it."""
Switch = Annotated[bool, _expected("true or false")]
Milliseconds = Annotated[
    int, _of_text(parse_duration_ms), _expected("a duration such as PT30S or 30s")
]
LockDuration = Annotated[
    Milliseconds,
    Field(ge=RELAXED.lock_duration_min_ms, le=RELAXED.lock_duration_max_ms),
    _expected("a duration from PT5S to PT5M"),
]
IdleTimeout = Annotated[
    Milliseconds,
    Field(le=_IDLE_TIMEOUT_MAX_MS),
    _expected("a duration of 24d or less, or 0s for none"),
]
StorageUrlText = Annotated[
    str,
    AfterValidator(_check_storage_url),
    _expected(FORMS),
]
