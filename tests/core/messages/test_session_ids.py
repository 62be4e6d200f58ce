"""Session ids that differ only by case are one session."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    Detach,
    GetSessionState,
    ListSessions,
    Peek,
    ReceiveDeferred,
    RenewSessionLock,
    SetSessionState,
    Settle,
)
from broker.core.contract.errors import NotAllowed, SessionCannotBeLocked
from broker.core.contract.records import MessagesUpdated, SessionStateSet
from broker.core.contract.settlement_values import DEFER, ReceiveMode
from broker.core.messages.session_ids import session_key
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    CoreDialogue,
    NamedPeer,
    R,
    ReceiverAttached,
    Refused,
    SendRefused,
    attach_receiver,
    credit,
    message,
    send,
    text_of,
)

OTHER = NamedPeer("OTHER")
UNTIL_MS = START_MS + 30_000


@pytest.fixture
def dialogue():
    return CoreDialogue(QueueDefinition(requires_session=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Order-7", "oRDER-7"),
        ("Größe", "GRÖßE"),
        ("ÅÉÇ", "åéç"),
        ("Σίσυφος", "ΣΊΣΥΦΟΣ"),  # both small sigmas
        ("ж", "Ж"),
        ("ᾳ", "ᾼ"),  # full uppercase has two characters, the simple one has one
        ("\N{DESERET SMALL LETTER LONG I}", "\N{DESERET CAPITAL LETTER LONG I}"),
        ("µ", "\u039c"),
    ],
)
def test_case_alone_makes_no_difference(one, other):
    assert session_key(one) == session_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "b"),
        ("", " "),
        ("ß", "ss"),
        ("ﬁ", "fi"),
        ("é", "e\u0301"),
        ("é", "e"),
        ("\u0131", "I"),
        ("\u0130", "i"),
        ("\u017f", "s"),
        ("\u212a", "k"),
        ("\uff41", "a"),
    ],
)
def test_everything_else_does(one, other):
    """One character at a time, nothing normalized, no culture."""
    assert session_key(one) != session_key(other)


def test_accepting_in_another_case_takes_the_session_under_its_first_name(dialogue):
    dialogue.run(send(message("1", session="Blue"), message("2", session="BLUE")))
    accepted = ReceiverAttached(R, "Blue", UNTIL_MS)
    assert dialogue >> attach_receiver(R, session="blue") << accepted
    assert (
        dialogue >> attach_receiver(OTHER, session="bLUE") << Refused(OTHER, SessionCannotBeLocked)
    )
    dialogue.run(send(message("3", session="bluE")))
    assert ["1", "2", "3"] == [text_of(m) for m in dialogue.deliveries(credit(9))]


def test_requests_take_any_spelling(dialogue):
    dialogue.run(send(message("1", session="Blue")), attach_receiver(R, session="BLUE"), credit(1))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "bluE", b"state"))
    assert b"state" == dialogue.ask(GetSessionState(CLIENT, "g", "q", "BLUe"))
    assert UNTIL_MS == dialogue.ask(RenewSessionLock(CLIENT, "r", "q", "blue"))
    assert ["1"] == [text_of(m) for m in dialogue.ask(Peek(CLIENT, "p", "q", 0, 9, "bLUE"))]
    assert ["Blue"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 9))
    assert [] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 9, None, "BLUE"))
    dialogue.run(Settle(R, [T1], ["h"], DEFER))
    fetch = ReceiveDeferred(CLIENT, "f", "q", [1], ReceiveMode.PEEK_LOCK, "BLUE")
    assert ["1"] == [text_of(m) for m, _ in dialogue.ask(fetch)]


def test_a_session_that_is_gone_takes_its_name_with_it(dialogue):
    dialogue.run(attach_receiver(R, session="blue"), Detach([R]))
    assert dialogue >> attach_receiver(R, session="BLUE") << ReceiverAttached(R, "BLUE", UNTIL_MS)


def test_a_partition_key_in_another_case_is_the_same(dialogue):
    dialogue.run(send(message("1", session="Blue", partition_key="bluE")))
    assert ["Blue"] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 9))
    turn = dialogue.run(send(message("2", session="Blue", partition_key="red")))
    assert isinstance(turn.effects[0], SendRefused)
    assert isinstance(turn.effects[0].error, NotAllowed)


def test_an_empty_session_id_goes_with_any_partition_key(dialogue):
    dialogue.run(send(message("1", session="", partition_key="red")))
    assert [""] == dialogue.ask(ListSessions(CLIENT, "l", "q", 0, 9))


def test_the_name_and_the_state_outlast_a_restart(dialogue):
    dialogue.run(attach_receiver(R, session="Blue"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "bLUE", b"state"))
    dialogue.run(send(message("1", session="BLUE")))
    later = dialogue.restarted()
    turn = later.run(attach_receiver(R, session="blue"))
    assert "Blue" == turn.effects[0].session_id
    assert b"state" == later.ask(GetSessionState(CLIENT, "g", "q", "blue"))


@pytest.mark.parametrize("state", [b"new", None], ids=["set", "cleared"])
def test_a_store_with_both_spellings_is_read_as_one_session(dialogue, state):
    """Written when case mattered: the last state that was set counts, and the other never returns."""
    dialogue.run(send(message("1", session="blue")))
    store = dialogue.commit()
    for at_ms, name, value in ((2, "BLUE", b"newer"), (1, "Blue", b"older"), (0, "blue", b"old")):
        store.commit([SessionStateSet(1, name, value, START_MS + at_ms)])
    later = dialogue.restarted()
    assert ["blue"] == later.ask(ListSessions(CLIENT, "l", "q", 0, 9))
    later.run(attach_receiver(R, session="BLUE"))
    assert b"newer" == later.ask(GetSessionState(CLIENT, "g", "q", "Blue"))
    later.ask(SetSessionState(CLIENT, "s", "q", "Blue", state))
    again = later.restarted()
    again.run(attach_receiver(R, session="bLuE"))
    assert state == again.ask(GetSessionState(CLIENT, "g", "q", "blue"))
    expected = {} if state is None else {(1, "blue"): state}
    assert expected == {key: one.state for key, one in again.commit().session_states.items()}


def test_messages_of_both_spellings_in_a_store_are_one_session(dialogue):
    dialogue.run(send(message("1", session="blue"), message("2", session="red")))
    store = dialogue.commit()
    reds = [row for row in store.rows.values() if row.session_id == "red"]
    store.commit([MessagesUpdated([row._replace(session_id="BLUE") for row in reds])])
    later = dialogue.restarted()
    assert ["blue"] == later.ask(ListSessions(CLIENT, "l", "q", 0, 9))
    delivered = later.receive(attach_receiver(R, any_session=True), credit(9))
    assert ["1", "2"] == [text_of(m) for m in delivered]
