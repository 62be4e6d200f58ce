"""Topics: one send, as many messages as rules ask for, one stored body."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.core.contract.commands import (
    AddRule,
    AttachSender,
    CancelScheduled,
    CreateEntity,
    DeleteEntity,
    GetEntity,
    ListRules,
    Peek,
    RemoveRule,
    Schedule,
    Send,
    Settle,
    UpdateEntity,
)
from broker.core.contract.errors import (
    ArgumentError,
    EntityAlreadyExists,
    EntityNotFound,
    NotAllowed,
    QuotaExceeded,
    UndecodableMessage,
)
from broker.core.contract.message import Message
from broker.core.contract.settlement_values import COMPLETE
from broker.core.messages.message_rows import rows_of
from broker.core.queues.deadlines import Due
from config.model.definitions import (
    UNLIMITED_MS,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from protocol.codec.message_reader import Reader
from protocol.codec.value_encoder import encode
from protocol.codec.value_types import Described, Long, Symbol
from tests.support import core_dialogue
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    Accepted,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
    R,
    S,
    SendRefused,
    attach_receiver,
    credit,
    deleted,
    message,
    send,
    stored,
    text_of,
)

RED = RuleDefinition("red", CorrelationFilter(properties={"color": "red"}))
BLUE = RuleDefinition("blue", SqlFilter("color = 'blue'"))


FALSE = RuleDefinition("none", FalseFilter())


def topic_book(topic=None, **subscriptions):
    entities = {"t": topic or TopicDefinition()}
    for name, definition in subscriptions.items():
        entities[f"t/Subscriptions/{name}"] = definition
    dialogue = CoreDialogue(entities=entities, attach=False)
    dialogue.run(AttachSender(S, "t"))
    return dialogue


def having(*rules, **fields):
    return SubscriptionDefinition(rules=rules, **fields)


def peek(dialogue, name, suffix=""):
    return dialogue.ask(Peek(CLIENT, "p", f"t/Subscriptions/{name}{suffix}", 0, 100))


def texts(dialogue, name):
    return [text_of(m) for m in peek(dialogue, name)]


def test_each_subscription_gets_a_copy_and_the_body_is_stored_once():
    """Three copies, one payload."""
    dialogue = topic_book(x=having(RuleDefinition("$Default")), y=SubscriptionDefinition())
    assert dialogue >> send("a") << stored(2, 3, payloads=(1,)) << Accepted(S, ["a"])
    assert ["a"] == texts(dialogue, "x") == texts(dialogue, "y")


def test_one_copy_needs_no_shared_payload():
    """It is stored like any message."""
    dialogue = topic_book(x=SubscriptionDefinition())
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"])


def test_the_payload_goes_with_the_last_copy():
    """The payload is deleted with the last copy, in any order."""
    dialogue = topic_book(x=SubscriptionDefinition(), y=SubscriptionDefinition())
    other = NamedPeer("other")
    dialogue.run(
        attach_receiver(R, "t/Subscriptions/x"), attach_receiver(other, "t/Subscriptions/y")
    )
    dialogue.run(credit(1), credit(1, to=other), send("a"))
    first = dialogue.run(Settle(R, [T1], ["h"], COMPLETE)).records[0]
    assert ([2], []) == (list(first.ids), list(first.payload_ids))
    second = dialogue.run(Settle(other, [b"token%011d" % 2], ["h"], COMPLETE)).records[0]
    assert ([3], [1]) == (list(second.ids), list(second.payload_ids))


def test_a_message_nobody_wants_is_accepted_and_stored_nowhere():
    """No subscription, or no rule that matches."""
    dialogue = topic_book(x=having(RED), y=having(), z=having(RuleDefinition("no", FalseFilter())))
    assert dialogue >> send("a") << Accepted(S, ["a"])


def test_rules_choose():
    """Each subscription by its own."""
    dialogue = topic_book(red=having(RED), blue=having(BLUE), both=having(RED, BLUE))
    dialogue.run(send(message("r", color="red"), message("b", color="blue"), "n"))
    assert (["r"], ["b"], ["r", "b"]) == tuple(
        texts(dialogue, name) for name in ("red", "blue", "both")
    )


def test_an_action_makes_a_copy_of_its_own():
    """Rules without action add one copy between them; each with action adds its own."""
    action = RuleDefinition("act", RED.filter, SqlAction("SET seen = 'yes'"))
    dialogue = topic_book(x=having(RED, action))
    dialogue.run(send(message("r", color="red")))
    plain, acted = sorted(peek(dialogue, "x"), key=lambda m: m.changes is not None)
    assert plain.changes is None
    assert b"yes" == acted.changes.properties["seen"]
    assert b"act" == acted.changes.properties["RuleName"]


def test_numbers_are_each_subscription_s_own():
    """The topic's number is the one it was enqueued under."""
    dialogue = topic_book(red=having(RED), everything=SubscriptionDefinition())
    dialogue.run(send("n", message("r", color="red")))
    assert [(1, 2)] == [
        (m.sequence_number, m.enqueue_sequence_number) for m in peek(dialogue, "red")
    ]
    assert [(1, 1), (2, 2)] == [
        (m.sequence_number, m.enqueue_sequence_number) for m in peek(dialogue, "everything")
    ]


def test_a_copy_is_delivered_in_the_turn_it_came_in():
    """To receivers of the subscription."""
    dialogue = topic_book(x=SubscriptionDefinition())
    dialogue.run(attach_receiver(R, "t/Subscriptions/x"), credit(1))
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"]) << Deliver(R, [1], [T1])


def test_a_filter_that_fails_dead_letters():
    """In the subscription, if it keeps such messages."""
    failing = RuleDefinition("fails", SqlFilter("sys.nothing = 1"))
    dialogue = topic_book(
        kept=having(failing), dropped=having(failing, dead_lettering_on_filter_errors=False)
    )
    dialogue.run(send("a"))
    (dead,) = peek(dialogue, "kept", "/$DeadLetterQueue")
    assert "FilterException" == dead.changes.dead_letter_reason
    assert [] == peek(dialogue, "dropped", "/$DeadLetterQueue")


def test_a_message_without_session_dies_in_a_session_subscription():
    """The others get it."""
    dialogue = topic_book(
        x=SubscriptionDefinition(requires_session=True), y=SubscriptionDefinition()
    )
    dialogue.run(send("a", message("b", session="s")))
    (dead,) = peek(dialogue, "x", "/$DeadLetterQueue")
    assert ("a", "Session id is null.") == (text_of(dead), dead.changes.dead_letter_reason)
    assert ["b"] == texts(dialogue, "x")
    assert ["a", "b"] == texts(dialogue, "y")


def test_the_shortest_time_to_live_counts():
    """Message, topic or subscription."""
    dialogue = topic_book(
        TopicDefinition(default_time_to_live_ms=20_000),
        x=SubscriptionDefinition(),
        y=SubscriptionDefinition(default_time_to_live_ms=10_000),
    )
    dialogue.run(send("a", message("b", time_to_live_ms=5_000)))
    assert [20_000, 5_000] == [m.time_to_live_ms for m in peek(dialogue, "x")]
    assert [10_000, 5_000] == [m.time_to_live_ms for m in peek(dialogue, "y")]


def test_duplicates_are_detected_before_copying():
    """Once for the topic."""
    dialogue = topic_book(
        TopicDefinition(requires_duplicate_detection=True), x=SubscriptionDefinition()
    )
    dialogue.run(send(message("a", message_id="1"), message("b", message_id="1")))
    assert ["a"] == texts(dialogue, "x")


def test_a_scheduled_message_is_copied_when_due():
    """By the rules of that moment."""
    dialogue = topic_book(x=SubscriptionDefinition())
    (number,) = dialogue.ask(Schedule(CLIENT, "s", "t", [message("a", at_ms=START_MS + 1_000)]))
    assert (1, 1) == (number, dialogue.ask(GetEntity(CLIENT, "g", "t")).scheduled_count)
    assert [] == texts(dialogue, "x")
    dialogue.run(Advance(1_000))
    assert ["a"] == texts(dialogue, "x")
    assert 0 == dialogue.ask(GetEntity(CLIENT, "g", "t")).scheduled_count


def test_a_scheduled_message_can_be_cancelled():
    """By the number the topic gave it."""
    dialogue = topic_book(x=SubscriptionDefinition())
    dialogue.ask(Schedule(CLIENT, "s", "t", [message("a", at_ms=START_MS + 1_000)]))
    dialogue.ask(CancelScheduled(CLIENT, "c", "t", [1]))
    dialogue.run(Advance(1_000))
    assert [] == texts(dialogue, "x")


def test_a_message_that_cannot_be_read_is_refused():
    """Rules may have to look into it."""
    dialogue = topic_book(x=having(RED))
    refused = SendRefused(S, "undecodable", UndecodableMessage)
    assert dialogue >> send("undecodable") << refused


def test_a_full_topic_refuses():
    """What its subscriptions hold counts."""
    dialogue = topic_book(TopicDefinition(max_size_megabytes=1), x=SubscriptionDefinition())
    dialogue.run(send("x" * 900_000))
    turn = dialogue.run(send("y" * 900_000))
    assert isinstance(turn.effects[0].error, QuotaExceeded)
    assert "for Topic: 't'" in str(turn.effects[0].error)


def test_a_disabled_subscription_still_collects():
    """Clients cannot receive from a disabled subscription, but it still gets messages."""
    dialogue = topic_book(x=SubscriptionDefinition(status=EntityStatus.DISABLED))
    dialogue.run(send("a"))
    assert 1 == dialogue.ask(GetEntity(CLIENT, "g", "t/Subscriptions/x")).active_count


# --- rules -----------------------------------------------------------------------------------------


def test_rules_can_be_added_and_removed():
    """And hold for the next message."""
    dialogue = topic_book(x=SubscriptionDefinition())
    path = "t/Subscriptions/x"
    dialogue.ask(RemoveRule(CLIENT, "r", path, "$default"))
    dialogue.ask(AddRule(CLIENT, "a", path, RED))
    dialogue.run(send("n", message("r", color="red")))
    assert ["r"] == texts(dialogue, "x")
    (rule,) = dialogue.ask(ListRules(CLIENT, "l", path))
    assert ("red", START_MS) == (rule.name, rule.created_time_ms)
    assert [] == dialogue.ask(ListRules(CLIENT, "l", path, skip=1))


def test_rules_are_listed_by_name():
    """The order of creation does not matter. Pages have the same order."""
    dialogue = topic_book(x=SubscriptionDefinition())
    path = "t/Subscriptions/x"
    for name in ("sql", "Correlation"):
        dialogue.ask(AddRule(CLIENT, "a", path, replace(RED, name=name)))
    first = dialogue.ask(ListRules(CLIENT, "l", path, top=2))
    rest = dialogue.ask(ListRules(CLIENT, "l", path, skip=2))
    assert ["$Default", "Correlation", "sql"] == [rule.name for rule in first + rest]


def test_a_rule_can_be_replaced():
    """By name, in its place; it is as old as the one it replaces."""
    dialogue = topic_book(x=SubscriptionDefinition())
    path = "t/Subscriptions/x"
    (old,) = dialogue.ask(ListRules(CLIENT, "l", path))
    dialogue.run(Advance(1_000))
    dialogue.ask(AddRule(CLIENT, "a", path, replace(RED, name="$Default"), replace=True))
    dialogue.run(send("n", message("r", color="red")))
    assert ["r"] == texts(dialogue, "x")
    (rule,) = dialogue.ask(ListRules(CLIENT, "l", path))
    assert (RED.filter, old.created_time_ms) == (rule.filter, rule.created_time_ms)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (
            AddRule(CLIENT, "a", "t/Subscriptions/x", RuleDefinition("none"), replace=True),
            EntityNotFound,
        ),
        (
            AddRule(CLIENT, "a", "t/Subscriptions/x", RuleDefinition("$DEFAULT")),
            EntityAlreadyExists,
        ),
        (
            AddRule(CLIENT, "a", "t/Subscriptions/x", RuleDefinition("bad", SqlFilter("= ="))),
            ArgumentError,
        ),
        (AddRule(CLIENT, "a", "t/Subscriptions/x", RuleDefinition("a/b")), ArgumentError),
        (AddRule(CLIENT, "a", "t", RED), NotAllowed),
        (RemoveRule(CLIENT, "r", "t/Subscriptions/x", "none"), EntityNotFound),
        (ListRules(CLIENT, "l", "t/Subscriptions/none"), EntityNotFound),
    ],
)
def test_rules_are_refused(command, error):
    """Names are unique, texts must be readable, and only subscriptions have rules."""
    dialogue = topic_book(x=SubscriptionDefinition())
    with pytest.raises(error):
        dialogue.ask(command)
    dialogue.run(send("a"))
    assert ["a"] == texts(dialogue, "x")


def test_updating_a_subscription_leaves_its_rules():
    """They have commands of their own, so an update cannot undo one that it has not seen."""
    dialogue = topic_book(x=SubscriptionDefinition())
    view = dialogue.ask(
        UpdateEntity(CLIENT, "u", "t/Subscriptions/x", having(BLUE, user_metadata="m"))
    )
    assert ("m", ["$Default"]) == (
        view.definition.user_metadata,
        [rule.name for rule in view.definition.rules],
    )
    dialogue.run(send("n", message("b", color="blue")))
    assert ["n", "b"] == texts(dialogue, "x")


# --- endings ---------------------------------------------------------------------------------------


def test_deleting_a_topic_deletes_its_subscriptions():
    """And everything in them."""
    dialogue = topic_book(x=SubscriptionDefinition(), y=SubscriptionDefinition())
    dialogue.run(send("a", message("later", at_ms=START_MS + 1_000)))
    dialogue.ask(DeleteEntity(CLIENT, "d", "t"))
    with pytest.raises(EntityNotFound):
        dialogue.ask(GetEntity(CLIENT, "g", "t/Subscriptions/x"))
    store = dialogue.commit()
    assert ({}, {}, {}) == (store.rows, store.payloads, store.entities)
    assert dialogue.namespace.next_deadline_ms() is None


def test_deleting_a_subscription_spares_the_others():
    """Their copies keep the body."""
    dialogue = topic_book(x=SubscriptionDefinition(), y=SubscriptionDefinition())
    dialogue.run(send("a"))
    dialogue.ask(DeleteEntity(CLIENT, "d", "t/Subscriptions/x"))
    assert 1 == len(dialogue.commit().payloads)
    assert ["a"] == texts(dialogue, "y")
    dialogue.run(send("b"))
    assert ["a", "b"] == texts(dialogue, "y")


def test_a_topic_shows_its_subscriptions_and_their_size():
    """Administration counts them."""
    dialogue = topic_book(x=SubscriptionDefinition(), y=SubscriptionDefinition())
    dialogue.run(send("abc"))
    view = dialogue.ask(GetEntity(CLIENT, "g", "t"))
    assert (2, 6) == (view.subscription_count, view.size_bytes)
    assert 3 == dialogue.ask(GetEntity(CLIENT, "g", "t/subscriptions/X")).size_bytes


def test_a_subscription_needs_its_topic():
    """A queue is none."""
    with pytest.raises(EntityNotFound):
        CoreDialogue(
            entities={"q": QueueDefinition(), "q/Subscriptions/s": SubscriptionDefinition()}
        )


def test_one_message_is_deleted_from_one_subscription_only():
    """Copies are independent."""
    dialogue = topic_book(x=SubscriptionDefinition(), y=SubscriptionDefinition())
    dialogue.run(attach_receiver(R, "t/Subscriptions/x"), credit(1), send("a"))
    assert deleted(2) in dialogue.outcomes_of(Settle(R, [T1], ["h"], COMPLETE))
    assert ([], ["a"]) == (texts(dialogue, "x"), texts(dialogue, "y"))


@pytest.mark.parametrize("time_to_live_ms", [None, 5_000])
@pytest.mark.parametrize("limit_ms", [UNLIMITED_MS, 3_000])
@pytest.mark.parametrize("limit_of_others_ms", [UNLIMITED_MS, 3_000, 7_000])
def test_copies_are_recorded_as_they_are_in_their_queues(
    time_to_live_ms, limit_ms, limit_of_others_ms
):
    """The rows of copies are made without looking at each copy, unless copies expire at different times."""
    limited = SubscriptionDefinition(default_time_to_live_ms=limit_ms)
    other = SubscriptionDefinition(default_time_to_live_ms=limit_of_others_ms)
    dialogue = topic_book(limited=limited, **{f"s{number}": other for number in range(3)})
    sent = [message(f"{number}", time_to_live_ms=time_to_live_ms) for number in range(3)]
    sent[1].header = 77
    record, _ = dialogue.run(send(*sent)).records
    stored = {row.id: row for row in record.rows}
    assert 12 == len(stored) == len(record.rows)
    queues = [entity.main for entity in dialogue.namespace.entities() if entity.path != "t"]
    for queue in queues:
        copies = list(queue.index.walk())
        assert [stored[copy.id] for copy in copies] == rows_of(copies)
        assert (3, sum(copy.size for copy in copies)) == (queue.count, queue.size_bytes)
        assert 3 == len(queue.dispatcher.ready)
    assert sum(queue.size_bytes for queue in queues) == queues[0].usage.size_bytes
    assert [{one.payload_id for one in record.rows}] == [{one[0] for one in record.payloads}]
    deadlines = dialogue.namespace.context.deadlines
    for queue in queues:
        lives_ms = min(time_to_live_ms or UNLIMITED_MS, queue.default_time_to_live_ms)
        ends_ms = dialogue.now_ms + lives_ms if lives_ms < UNLIMITED_MS else 0
        for copy in queue.index.walk():
            assert ends_ms == copy.expires_at_ms
            assert bool(ends_ms) == deadlines.has(Due.TIME_TO_LIVE, ends_ms, copy)


# --- messages that cannot be read any more -------------------------------------------------------


def test_a_scheduled_message_that_cannot_be_read_becomes_active():
    """Nobody looks into it when it is sent, so nobody refuses it."""
    dialogue = topic_book(a=having(RuleDefinition("all")))
    dialogue.run(send(message("undecodable", at_ms=START_MS + 1_000)))
    dialogue.run(Advance(1_000))
    assert ["undecodable"] == texts(dialogue, "a")


def test_a_rule_that_is_added_later_fails_on_a_message_that_cannot_be_read():
    """The subscriptions that take everything get it. The others treat it as an error of their filters."""
    everything = RuleDefinition("all")
    dialogue = topic_book(
        a=having(everything),
        b=having(FALSE, dead_lettering_on_filter_errors=True),
        c=having(FALSE, dead_lettering_on_filter_errors=False),
        d=having(everything, dead_lettering_on_filter_errors=True),
        e=having(FALSE, dead_lettering_on_filter_errors=True),
    )
    dialogue.run(send(message("undecodable", at_ms=START_MS + 1_000)))
    sessionful = having(everything, requires_session=True)
    dialogue.ask(CreateEntity(CLIENT, "c", "t/Subscriptions/f", sessionful))
    for name in "bc":
        dialogue.ask(AddRule(CLIENT, "r", f"t/Subscriptions/{name}", RED))
    acting = RuleDefinition("act", SqlFilter("color = 'red'"), SqlAction("SET x = 1"))
    dialogue.ask(AddRule(CLIENT, "r", "t/Subscriptions/d", acting))
    dialogue.run(Advance(1_000))
    found = {}
    for name in "abcdef":
        queues = (f"t/Subscriptions/{name}", f"t/Subscriptions/{name}/$DeadLetterQueue")
        found[name] = tuple(dialogue.namespace._directory.queue(path).count for path in queues)
    assert {"a": (1, 0), "b": (0, 1), "c": (0, 0), "d": (1, 1), "e": (0, 0), "f": (0, 1)} == found
    (dead,) = dialogue.ask(Peek(CLIENT, "p", "t/Subscriptions/b/$DeadLetterQueue", 1, 9))
    assert "FilterException" == dead.changes.dead_letter_reason


# --- actions that set what the broker uses -------------------------------------------------------


def encoded_message(session=None, **properties):
    """A message for the reader of the protocol."""
    section = b""
    if session is not None:
        section = b"\x00\x53\x73" + encode([None] * 10 + [session])
    return Message(section + b"\x00\x53\x74" + encode(properties))


def send_encoded(dialogue, *messages):
    dialogue.run(Send(S, list(messages), ["h"] * len(messages)))


@pytest.fixture
def encoded(monkeypatch):
    """Dialogues read messages as the protocol does."""
    monkeypatch.setattr(core_dialogue, "PlainReader", Reader)


def sessions_of(dialogue, name):
    messages = dialogue.namespace._directory.queue(f"t/Subscriptions/{name}").index.walk()
    return [one.session_id for one in messages]


@pytest.mark.usefixtures("encoded")
def test_a_session_id_that_an_action_sets_decides_on_the_session():
    """Also if the sender has set none. Other copies keep the id of the sender."""
    x = RuleDefinition("x", SqlFilter("1 = 1"), SqlAction("SET sys.SessionId = 'x'"))
    removing = RuleDefinition("x", SqlFilter("1 = 1"), SqlAction("REMOVE sys.SessionId"))
    changed = having(x, requires_session=True)
    plain = having(RuleDefinition("all"), requires_session=True)
    removed = having(removing, requires_session=True)
    dialogue = topic_book(a=changed, b=plain, c=changed, d=removed)
    send_encoded(dialogue, encoded_message("own"), encoded_message())
    assert ["x", "x"] == sessions_of(dialogue, "a") == sessions_of(dialogue, "c")
    assert ["own"] == sessions_of(dialogue, "b")
    assert [None] == sessions_of(dialogue, "b/$DeadLetterQueue")
    assert [] == sessions_of(dialogue, "d")
    assert [None, None] == sessions_of(dialogue, "d/$DeadLetterQueue")
    restored = dialogue.restarted()
    assert ["x", "x"] == sessions_of(restored, "a")


@pytest.mark.usefixtures("encoded")
def test_a_session_id_that_is_too_long_is_an_error_of_the_action():
    """As it is an error of a sender."""
    rule = RuleDefinition("x", SqlFilter("1 = 1"), SqlAction("SET sys.SessionId = a"))
    dialogue = topic_book(
        a=having(rule, requires_session=True, dead_lettering_on_filter_errors=True)
    )
    send_encoded(dialogue, encoded_message("own", a="x" * 128), encoded_message("own", a="x" * 129))
    assert ["x" * 128] == sessions_of(dialogue, "a")
    assert ["own"] == sessions_of(dialogue, "a/$DeadLetterQueue")


@pytest.mark.usefixtures("encoded")
@pytest.mark.parametrize(
    ("ticks", "expected_ms"), [(50_000_000, 5_000), (3, 1), (2**63 - 1, 60_000), (10**12, 60_000)]
)
def test_a_time_to_live_that_an_action_sets_decides_on_the_expiry(ticks, expected_ms):
    """Within what the topic allows. Other copies keep the time of the sender."""
    span = Described(Symbol("com.microsoft:timespan"), Long(ticks))
    rule = RuleDefinition("x", SqlFilter("1 = 1"), SqlAction("SET sys.TimeToLive = x"))
    dialogue = topic_book(
        TopicDefinition(default_time_to_live_ms=60_000),
        a=having(rule),
        b=having(RuleDefinition("all")),
        c=having(RuleDefinition("x", SqlFilter("1 = 1"), SqlAction("REMOVE sys.TimeToLive"))),
    )
    sent = encoded_message(x=span)
    sent.time_to_live_ms = 30_000
    send_encoded(dialogue, sent)
    found = {}
    for name in "abc":
        (one,) = dialogue.namespace._directory.queue(f"t/Subscriptions/{name}").index.walk()
        found[name] = one.time_to_live_ms
        assert START_MS + one.time_to_live_ms == one.expires_at_ms
    assert {"a": expected_ms, "b": 30_000, "c": 60_000} == found


@pytest.mark.usefixtures("encoded")
@pytest.mark.parametrize("ticks", [0, -1, -(2**63)])
def test_a_time_to_live_must_be_positive(ticks):
    """Otherwise the action fails."""
    span = Described(Symbol("com.microsoft:timespan"), Long(ticks))
    rule = RuleDefinition("x", SqlFilter("1 = 1"), SqlAction("SET sys.TimeToLive = x"))
    dialogue = topic_book(a=having(rule, dead_lettering_on_filter_errors=True))
    send_encoded(dialogue, encoded_message(x=span))
    assert [] == sessions_of(dialogue, "a")
    assert [None] == sessions_of(dialogue, "a/$DeadLetterQueue")
