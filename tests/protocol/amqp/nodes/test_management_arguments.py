"""What a command takes from the body of a request, which any client can write."""

from __future__ import annotations

import pytest

from broker.core.contract.message_changes import MessageChanges
from protocol.amqp.engine.outcomes import Modified, Rejected, read_state
from protocol.amqp.nodes import management_arguments as arguments
from protocol.amqp.nodes.rule_encoding import read_rule
from protocol.amqp.outcome_mapping import settlement_of
from protocol.codec import Char, Described, Symbol, ULong, encode

SURROGATE = Char("\ud800")
REPLACED = "\ufffd"


def test_texts_can_be_stored():
    """Half of a surrogate pair comes as an AMQP char, and is replaced as .NET replaces it."""
    body = {"session-id": SURROGATE}
    assert REPLACED == arguments.text(body, "session-id")
    assert REPLACED == arguments.optional_text(body, "session-id")
    assert ([], REPLACED) == arguments.locks_of(body)


def test_a_settlement_can_be_stored():
    settlement = arguments.settlement(
        {
            "disposition-status": "suspended",
            "deadletter-reason": SURROGATE,
            "deadletter-description": SURROGATE,
            "properties-to-modify": {SURROGATE: SURROGATE},
        }
    )
    assert REPLACED == settlement.reason == settlement.description
    assert {REPLACED: encode(SURROGATE)} == settlement.properties


def test_a_rule_can_be_stored():
    """Its name, its expressions, and the fields and properties of its filter."""
    expressions = {"sql-filter": {"expression": SURROGATE}}
    action = {"sql-rule-action": {"expression": SURROGATE}}
    rule = read_rule({"rule-name": SURROGATE, "rule-description": {**expressions, **action}})
    repr(rule).encode()
    assert REPLACED == rule.name
    fields = {"label": SURROGATE, "properties": {SURROGATE: SURROGATE}}
    rule = read_rule({"rule-name": "r", "rule-description": {"correlation-filter": fields}})
    assert REPLACED in str(rule)
    assert "\\ud800" not in repr(rule)


@pytest.mark.parametrize("code", [0x25, 0x27])
def test_an_outcome_can_be_stored(code):
    """The keys and texts of its maps."""
    entries = {SURROGATE: 1, "DeadLetterReason": SURROGATE}
    fields = (
        [Described(ULong(0x1D), [Symbol("com.microsoft:dead-letter"), SURROGATE, entries])]
        if code == 0x25
        else [True, False, entries]
    )
    outcome = read_state(encode(Described(ULong(code), fields)))
    assert isinstance(outcome, Rejected | Modified)
    settlement = settlement_of(outcome)
    assert settlement.properties is not None
    assert REPLACED in settlement.properties
    if code == 0x25:
        assert REPLACED == settlement.reason == settlement.description


@pytest.mark.parametrize("value", [b"\xa1\x01\xff", b"\xc0\x05\x02\xff\xff\xff\xff", b"\x56\x07"])
def test_an_outcome_has_no_values_that_cannot_be_decoded(value):
    """Other clients would get them as properties, and the reading of a reason would end the connection."""
    for key in (b"\xa3\x10DeadLetterReason", b"\xa3\x01a"):
        entries = b"\xc1" + bytes((1 + len(key + value), 2)) + key + value
        error = b"\x00\x53\x1d\xc0" + bytes((5 + len(entries), 3)) + b"\xa3\x01c\x40" + entries
        rejected = read_state(b"\x00\x53\x25\xc0" + bytes((1 + len(error), 1)) + error)
        assert isinstance(rejected, Rejected)
        assert (None, "c") == (settlement_of(rejected).properties, rejected.condition)
        fields = b"\x41\x42" + entries
        modified = read_state(b"\x00\x53\x27\xc0" + bytes((1 + len(fields), 3)) + fields)
        assert isinstance(modified, Modified)
        assert settlement_of(modified).properties is None


def test_changes_are_stored_whatever_their_text():
    """The last defence: a turn never fails because of a text."""
    changes = MessageChanges({"\ud800": None}, {"\ud800": b"x"}, "\ud800", "\udfff", "a\ud800")
    assert MessageChanges({"?": None}, {"?": b"x"}, "?", "?", "a?") == MessageChanges.from_bytes(
        changes.to_bytes()
    )
