"""The errors of the control API. Every answer of 400 and above has one form:

{"error": {"code": "entity_not_found", "message": "A sentence.", "field": "entity"}}
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from broker.core.contract import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_CODES: dict[type[errors.BrokerError], str] = {
    errors.EntityNotFound: "entity_not_found",
    errors.EntityDisabled: "entity_disabled",
    errors.MessageNotFound: "message_not_found",
    errors.MessageSizeExceeded: "message_too_large",
    errors.QuotaExceeded: "quota_exceeded",
    errors.ServerBusy: "server_busy",
    errors.Unauthorized: "unauthorized",
}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class ControlError(Exception):
    """A request is refused. Nothing was changed, unless the message says so."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        **details: object,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.details = details
        """Members of the answer beside `error`, such as what a wait has seen last."""

    def response(self, headers: Mapping[str, str] | None = None) -> web.Response:
        """Returns the answer."""
        error = {"code": self.code, "message": self.message, "field": self.field}
        return web.json_response(
            {"error": error, **self.details}, status=self.status, headers=headers
        )


def bad_field(field: str, message: str, code: str = "invalid_field") -> ControlError:
    """Returns the error for a wrong value of a field."""
    return ControlError(400, code, message, field)


def of_broker_error(error: errors.BrokerError, text: str) -> ControlError:
    """Returns the error for a refusal of the core. `text` is its sentence for the client."""
    kind = next((one for one in type(error).__mro__ if one in _CODES), None)
    code = _CODES[kind] if kind is not None else _WORDS.sub("_", type(error).__name__).lower()
    field = "entity" if isinstance(error, errors.EntityNotFound) else None
    return ControlError(error.status, code, text, field)


@contextmanager
def about(field: str, *kinds: type[errors.BrokerError]) -> Iterator[None]:
    """Names the field of refusals of the core, in a `with` block."""
    try:
        yield
    except kinds as error:
        found = of_broker_error(error, str(error))
        found.field = field
        raise found from None


def of_validation(found: Sequence[Mapping[str, Any]], known_fields: Sequence[str]) -> ControlError:
    """Returns the error for the first mistake that pydantic found."""
    first = found[0]
    location = [part for part in first["loc"] if not _is_type_of_union(part)]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    field = field.removeprefix(".")
    kind = first["type"]
    if kind == "extra_forbidden":
        is_outer = len(location) == 1 and bool(known_fields)
        others = f"; known are {', '.join(known_fields)}" if is_outer else ""
        return ControlError(
            400, "unknown_field", f"There is no field '{field}' here{others}.", field
        )
    if kind == "missing":
        return ControlError(400, "missing_field", f"The field '{field}' is required.", field)
    if kind == "json_invalid":
        return ControlError(400, "invalid_json", f"The body must be valid JSON: {_said(first)}.")
    if not field:
        return ControlError(400, "invalid_request", f"{_said(first)}.")
    return ControlError(
        400, "invalid_field", f"The field '{field}' is wrong: {_said(first)}.", field
    )


def _said(found: Mapping[str, Any]) -> str:
    return (
        str(found["msg"]).removeprefix("Value error, ").removeprefix("Invalid JSON: ").rstrip(".")
    )


def _is_type_of_union(part: int | str) -> bool:
    """Whether a part of a location names a member of a union of types, and no field."""
    return isinstance(part, str) and (
        "[" in part or part in {"str", "int", "float", "bool", "none"}
    )
