"""The session filter of a receiver's attach, and of the answer to it.

Owns which session a receiver asks for and in which words it is told the one it got.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.codec import Described, Symbol, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

SESSION_FILTER = "com.microsoft:session-filter"
LITERAL_SDKS = frozenset({"MSJSClient", "MSGolangClient"})
"""`product` in the open frame of the JavaScript and Go SDKs, which do not take an answer for theirs
whose session id differs from the one they asked for by case."""


def compares_session_ids_by_case(properties: Mapping[str, object]) -> bool:
    """Whether the software that opened a connection with these properties is one of those."""
    return properties.get("product") in LITERAL_SDKS


@dataclass(frozen=True, slots=True)
class SessionFilterAnswer:
    """How the filter of an answer is written."""

    descriptor: object | None = None
    """What the request wrapped the id in: some SDKs insist on a plain string, one on a described."""
    spelling: str | None = None
    """The id as the client wrote it, if it has to read it so; else it is as it was first written."""

    def encode(self, session_id: str) -> bytes:
        """The filter map that tells a receiver which session it has."""
        value: object = session_id if self.spelling is None else self.spelling
        if self.descriptor is not None:
            value = Described(self.descriptor, value)
        return encode({Symbol(SESSION_FILTER): value})
