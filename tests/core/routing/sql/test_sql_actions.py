"""What SQL actions do to the properties of a copy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from broker.core.contract.message import Message
from broker.core.routing.sql import (
    EditableProperties,
    FilterError,
    MessageProperties,
    compile_action,
)
from tests.support.given_properties import GivenProperties

GONE = b"removed"

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

APPLICATION = {
    "Color": "red",
    "quantity": 10,
    "price": 2.5,
    "active": True,
    "nothing": None,
    "when": NOON,
    "id": UUID(int=1),
    "blob": b"\x00",
    "count": "7",
}
SYSTEM = {"label": "order", "messageid": "m-1", "timetolive": timedelta(minutes=1)}


def run(text, parameters=None):
    """The changes an action makes: application properties, then system properties."""
    reader: Any = GivenProperties(APPLICATION, **SYSTEM)
    source = MessageProperties(Message(b""), reader, lambda: UUID(int=9))
    draft = EditableProperties(source)
    compile_action(text, parameters or {})(draft)
    user, system = draft.changed_user(_keep), draft.changed_system(_keep)
    return (
        {name: GONE if value is None else value[0] for name, value in user.items()},
        {name: GONE if value is None else value[0] for name, value in system.items()},
    )


def _keep(value: object) -> Any:
    """Wraps a value instead of encoding it, so that null differs from a removal."""
    return (value,)


USER_CASES = [
    # --- setting ---------------------------------------------------------------------------------
    ({"size": 5}, "SET size = 5"),
    ({"size": 5}, "SET user.size = 5"),
    ({"Size": 5}, "set Size = 5"),
    ({"my size": 5}, "SET [my size] = 5"),
    ({"my size": 5}, 'SET "my size" = 5'),
    ({"size": "big"}, "SET size = 'big'"),
    ({"size": 2.5}, "SET size = 2.5"),
    ({"size": True}, "SET size = TRUE"),
    ({"size": None}, "SET size = NULL"),
    ({"size": None}, "SET size = missing"),
    ({"size": None}, "SET size = missing + 1"),
    ({"size": 11}, "SET size = quantity + 1"),
    ({"size": "reddish"}, "SET size = color + 'dish'"),
    ({"size": "order"}, "SET size = sys.Label"),
    ({"size": UUID(int=9)}, "SET size = newid()"),
    ({"size": 10}, "SET size = property('quantity')"),
    ({"size": NOON + timedelta(hours=1)}, "SET size = when + @hour"),
    ({"set": 1}, "SET set = 1"),
    # --- replacing: the spelling and, where possible, the type stay --------------------------------
    ({"Color": "blue"}, "SET color = 'blue'"),
    ({"Color": "blue"}, "SET COLOR = 'blue'"),
    ({"Color": "5"}, "SET color = 5"),
    ({"Color": "2.5"}, "SET color = price"),
    ({"Color": "True"}, "SET color = active"),
    ({"Color": b"\x00"}, "SET color = blob"),
    ({"Color": None}, "SET color = NULL"),
    ({"quantity": 5}, "SET quantity = quantity / 2"),
    ({"quantity": 2}, "SET quantity = price"),
    ({"quantity": 4}, "SET quantity = 3.5"),
    ({"quantity": 7}, "SET quantity = count"),
    ({"quantity": "many"}, "SET quantity = 'many'"),
    ({"quantity": 1}, "SET quantity = TRUE"),
    ({"quantity": 1e300}, "SET quantity = 1e300"),
    ({"price": 3.0}, "SET price = 3"),
    ({"price": 7.0}, "SET price = count"),
    ({"active": False}, "SET active = 'false'"),
    ({"active": False}, "SET active = 0"),
    ({"active": "maybe"}, "SET active = 'maybe'"),
    ({"when": NOON}, "SET when = '2024-05-01T12:00:00Z'"),
    ({"when": NOON}, "SET when = '2024-05-01T12:00:00'"),
    ({"when": "tomorrow"}, "SET when = 'tomorrow'"),
    ({"when": 5}, "SET when = 5"),
    ({"id": UUID(int=2)}, "SET id = '00000000-0000-0000-0000-000000000002'"),
    ({"id": 5}, "SET id = 5"),
    ({"blob": 5}, "SET blob = 5"),
    ({"nothing": 5}, "SET nothing = 5"),
    # --- removing ----------------------------------------------------------------------------------
    ({"Color": GONE}, "REMOVE Color"),
    ({"Color": GONE}, "remove color"),
    ({"nothing": GONE}, "REMOVE nothing"),
    ({}, "REMOVE missing"),
    # --- in sequence -------------------------------------------------------------------------------
    ({"a": 1, "b": 2}, "SET a = 1; SET b = 2"),
    ({"a": 1, "b": 2}, "SET a = 1;SET b = 2;"),
    ({"a": 1, "b": 2}, "SET a = 1, SET b = 2"),
    ({"a": 1, "b": 2}, "SET a = 1;, SET b = 2"),
    ({"a": 1, "b": 2}, "SET a = 1;\nSET b = 2;\n"),
    ({"a": 1, "b": 2}, "SET a = 1; SET b = a + 1"),
    ({"a": 1, "b": 2, "Color": GONE}, "SET a=1 SET b=2 REMOVE color"),
    ({"a": 1, "b": 2}, "SET a = 1\nSET b = 2"),
    ({"a": 1, "b": 2}, "SET a = 1 SET b = a + 1;"),
    ({"a": "red", "b": -1}, "set a = color set b = -1"),
    ({"Color": GONE, "price": GONE}, "REMOVE color REMOVE price"),
    ({"a": None, "set": 3}, "SET a = set SET set = 3"),
    ({"quantity": 40}, "SET quantity = quantity * 2; SET quantity = quantity * 2"),
    ({"a": GONE}, "SET a = 1; REMOVE a"),
    ({"Color": "blue"}, "REMOVE color; SET color = 'blue'"),
    ({"Color": 5}, "REMOVE color; SET color = 5"),
    ({"Color": GONE, "a": None}, "REMOVE color; SET a = color"),
    ({"a": 2}, "SET a = 1; SET A = 2"),
]

SYSTEM_CASES = [
    ({"label": "urgent"}, "SET sys.Label = 'urgent'"),
    ({"label": "urgent"}, "SET sys.Subject = 'urgent'"),
    ({"label": "urgent"}, "SET SYS.[label] = 'urgent'"),
    ({"to": "red"}, "SET sys.To = color"),
    ({"to": "10"}, "SET sys.To = quantity"),
    ({"correlationid": "low"}, "SET sys.CorrelationId = 'low'"),
    ({"messageid": str(UUID(int=9))}, "SET sys.MessageId = newid()"),
    ({"sessionid": "order-10"}, "SET sys.SessionId = sys.Label + '-' + quantity"),
    (
        {"replyto": "a", "replytosessionid": "b"},
        "SET sys.ReplyTo='a'; SET sys.ReplyToSessionId='b'",
    ),
    ({"contenttype": "text/plain"}, "SET sys.ContentType = 'text/plain'"),
    (
        {"partitionkey": "k", "viapartitionkey": "v"},
        "SET sys.PartitionKey = 'k', SET sys.ViaPartitionKey = 'v'",
    ),
    ({"timetolive": timedelta(hours=1)}, "SET sys.TimeToLive = @hour"),
    ({"timetolive": timedelta(hours=1, minutes=1)}, "SET sys.TimeToLive = sys.TimeToLive + @hour"),
    ({"scheduledenqueuetimeutc": NOON}, "SET sys.ScheduledEnqueueTimeUtc = when"),
    ({"scheduledenqueuetimeutc": NOON}, "SET sys.ScheduledEnqueueTime = '2024-05-01T12:00Z'"),
    ({"forcepersistence": True}, "SET sys.ForcePersistence = TRUE"),
    ({"label": GONE}, "REMOVE sys.Label"),
    ({"label": GONE}, "SET sys.Label = NULL"),
    ({"label": GONE}, "SET sys.Label = missing"),
    ({"to": GONE}, "REMOVE sys.To"),
]


@pytest.mark.parametrize(("expected", "text"), USER_CASES)
def test_an_action_changes_application_properties(expected, text):
    """SET creates or replaces, REMOVE takes away, each sees what the earlier ones did."""
    assert (expected, {}) == run(text, {"@hour": timedelta(hours=1)})


@pytest.mark.parametrize(("expected", "text"), SYSTEM_CASES)
def test_an_action_changes_system_properties(expected, text):
    """`sys.` names are kept in lower case and in their own type."""
    assert ({}, expected) == run(text, {"@hour": timedelta(hours=1)})


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        ("no system property 'sys.Nonsense'", "SET sys.Nonsense = 1"),
        ("no system property 'sys.Nonsense'", "REMOVE sys.Nonsense"),
        ("no system property 'sys.Nonsense'", "SET a = sys.Nonsense"),
        ("divide by zero", "SET a = quantity / 0"),
        ("'sys.TimeToLive' cannot be set to a value of type int", "SET sys.TimeToLive = 5"),
        ("'sys.To' cannot be set to a value of type bytes", "SET sys.To = blob"),
        ("'sys.ScheduledEnqueueTime' cannot be set", "SET sys.ScheduledEnqueueTime = 'soon'"),
    ],
)
def test_an_action_that_cannot_be_done_fails(problem, text):
    """What only shows on a message is a filter error, like that of a filter."""
    with pytest.raises(FilterError, match=problem):
        run(text)


def test_an_action_changes_only_its_own_draft():
    """Other copies of the message see nothing of it."""
    run("SET color = 'blue'; REMOVE quantity; SET sys.Label = 'x'")
    assert "red" == APPLICATION["Color"]
    assert 10 == APPLICATION["quantity"]
    assert "order" == SYSTEM["label"]
