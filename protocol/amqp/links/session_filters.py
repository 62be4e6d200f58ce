"""The session filter in the answer to a receiver's attach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.codec import Described, Symbol, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

SESSION_FILTER = "com.microsoft:session-filter"
LITERAL_SDKS = frozenset({"MSJSClient", "MSGolangClient"})
"""`product` in the open frame of the JavaScript and Go SDKs. They refuse an answer whose session id differs in case
from the one that they asked for."""


def compares_session_ids_by_case(properties: Mapping[str, object]) -> bool:
    """Whether a connection was opened by one of these SDKs."""
    return properties.get("product") in LITERAL_SDKS


@dataclass(frozen=True, slots=True)
class SessionFilterAnswer:
    """How the session id is written in the answer."""

    descriptor: object | None = None
    """The descriptor in the request. Some SDKs require a plain string in the answer, one a described value."""
    spelling: str | None = None
    """The id as this client wrote it, if it must be written so. None: as it was written first."""

    def encode(self, session_id: str) -> bytes:
        """Returns the encoded filter map with the session that the receiver has."""
        value: object = session_id if self.spelling is None else self.spelling
        if self.descriptor is not None:
            value = Described(self.descriptor, value)
        return encode({Symbol(SESSION_FILTER): value})
