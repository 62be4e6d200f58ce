"""When two session ids name the same session.

Service Bus compares session ids without case, as .NET's `StringComparer.OrdinalIgnoreCase` does: one
character at a time, by its simple uppercase mapping, whatever the culture. So `Größe` is `GRÖßE` but
not `GRÖSSE` (no character becomes two), `é` as one character is not `e` with an accent (nothing is
normalized), and the dotless i of Turkish and the long s (U+017F) are only themselves: .NET never takes a
letter outside ASCII for one inside. Letters newer than Python's tables of Unicode have no case.
"""

from __future__ import annotations

_ONLY_THEMSELVES = "\u0131\u017f"


def session_key(session_id: str) -> str:
    """Returns a key that is equal for all spellings of a session id."""
    if session_id.isascii():
        return session_id.upper()
    return "".join(map(_simple_upper, session_id))


def _simple_upper(character: str) -> str:
    """Returns the uppercase form that is one character. Python has only the full mapping. If that
    is longer, the titlecase form is the simple mapping, if there is one (Greek iota subscripts)."""
    if character in _ONLY_THEMSELVES:
        return character
    for form in (character.upper(), character.title()):
        if len(form) == 1:
            return form
    return character
