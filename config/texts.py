"""One value as an operator writes it, in a flag, a variable or a file: text in, value out.

Each function raises ValueError with what is allowed; which setting it was, the caller knows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from config.durations import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?", re.ASCII | re.IGNORECASE)
_SIZE_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_STORES = ("memory:", "sqlite:///", "postgresql://")


def read_existing_file(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise ValueError("the path of a file that exists")
    return path


def read_folder(text: str) -> Path:
    return Path(text).expanduser().absolute()


def read_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("names or addresses with commas between them")
    return names


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


def read_store(text: str) -> str:
    if not text.startswith(_STORES):
        raise ValueError("memory:, sqlite:///PATH or postgresql://HOST/DATABASE")
    return text


def read_one_of(choices: type[Enum]) -> Callable[[str], Enum]:
    by_name = {str(choice.value).lower(): choice for choice in choices}

    def parse(text: str) -> Enum:
        if text.lower() not in by_name:
            raise ValueError(" or ".join(str(choice.value) for choice in choices))
        return by_name[text.lower()]

    return parse
