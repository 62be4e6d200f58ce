"""Auto-forwarding of messages and of dead letters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.core.contract import effects
from broker.core.contract.commands import (
    AttachSender,
    CreateEntity,
    DeleteEntity,
    GetEntity,
    Peek,
    Settle,
    UpdateEntity,
)
from broker.core.contract.errors import ArgumentError, NotAllowed, UndecodableMessage
from broker.core.contract.settlement_values import COMPLETE, DEAD_LETTER, ReceiveMode
from broker.core.entities.entity import Entity
from config.model.definitions import (
    UNLIMITED_MS,
    EntityDefinition,
    EntityStatus,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    Accepted,
    Advance,
    CoreDialogue,
    Deliver,
    Detached,
    NamedPeer,
    PlainReader,
    R,
    Refused,
    S,
    attach_receiver,
    credit,
    message,
    send,
    stored,
    text_of,
    updated,
)

END = NamedPeer("END")


def peek(dialogue, path):
    return dialogue.ask(Peek(CLIENT, "p", path, 0, 100))


def chain(*paths, last="end", **entities):
    """A dialogue of queues each of which forwards to the next."""
    names = [*paths, last]
    definitions = {
        path: QueueDefinition(forward_to=names[position + 1]) for position, path in enumerate(paths)
    }
    return CoreDialogue(entities={**definitions, last: QueueDefinition(), **entities}, attach=False)


def test_a_message_is_forwarded_in_the_turn_of_its_send():
    """A receiver of the destination gets the message in the turn in which it was sent."""
    dialogue = chain("q")
    dialogue.run(AttachSender(S, "q"), attach_receiver(END, "end"), credit(1, to=END))
    assert (
        dialogue
        >> send("a")
        << stored(1)
        << updated(1)
        << Accepted(S, ["a"])
        << Deliver(END, [1], [T1])
    )
    assert 0 == dialogue.ask(GetEntity(CLIENT, "g", "q")).active_count


def test_order_is_kept_and_the_first_number_remembered():
    """The number is issued anew; the original stays with the message."""
    dialogue = chain("q")
    dialogue.run(AttachSender(S, "q"), AttachSender(R, "end"), send("own", to=R))
    dialogue.run(send("a", "b"))
    assert [("own", 1, 1), ("a", 2, 1), ("b", 3, 2)] == [
        (text_of(m), m.sequence_number, m.enqueue_sequence_number) for m in peek(dialogue, "end")
    ]


def test_four_hops_are_allowed():
    """Then the message has arrived."""
    dialogue = chain("q", "b", "c", "d")
    dialogue.run(AttachSender(S, "q"), send("a"))
    (arrived,) = peek(dialogue, "end")
    assert 4 == arrived.changes.hops


def test_the_fifth_hop_dead_letters_where_it_would_begin():
    """In the queue that would have forwarded it."""
    dialogue = chain("q", "b", "c", "d", "e")
    dialogue.run(AttachSender(S, "q"), send("a"))
    assert [] == peek(dialogue, "end")
    (dead,) = peek(dialogue, "e/$DeadLetterQueue")
    assert "MaxTransferHopCountExceeded" == dead.changes.dead_letter_reason
    assert "This value is set to 4." in dead.changes.dead_letter_description


def test_a_circle_ends():
    """Two queues that forward to each other dead-letter instead of turning forever."""
    dialogue = CoreDialogue(
        entities={"q": QueueDefinition(forward_to="b"), "b": QueueDefinition(forward_to="q")},
        attach=False,
    )
    dialogue.run(AttachSender(S, "q"), send("a"))
    assert 1 == len(peek(dialogue, "q/$DeadLetterQueue"))


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        (None, "EntityNotFound"),
        (QueueDefinition(status=EntityStatus.DISABLED), "EntityDisabled"),
        (QueueDefinition(status=EntityStatus.SEND_DISABLED), "EntityDisabled"),
        (QueueDefinition(max_message_size_kilobytes=1), "MessageSizeExceeded"),
        (QueueDefinition(requires_session=True), "Session id is null."),
    ],
)
def test_what_cannot_go_on_dies_at_its_source(destination, reason):
    """In the source's dead-letter queue, saying why."""
    entities = {"q": QueueDefinition(forward_to="end")}
    if destination is not None:
        entities["end"] = destination
    dialogue = CoreDialogue(entities=entities, attach=False)
    dialogue.run(AttachSender(S, "q"), send("x" * 2000))
    (dead,) = peek(dialogue, "q/$DeadLetterQueue")
    assert reason == dead.changes.dead_letter_reason


def test_a_full_destination_dead_letters_what_does_not_fit():
    """The messages that fit are forwarded."""
    entities = {
        "q": QueueDefinition(forward_to="end"),
        "end": QueueDefinition(max_size_megabytes=1),
    }
    dialogue = CoreDialogue(entities=entities, attach=False)
    dialogue.run(AttachSender(S, "q"), send("x" * 600_000, "y" * 600_000, "z"))
    assert ["x", "z"] == [text_of(m)[0] for m in peek(dialogue, "end")]
    (dead,) = peek(dialogue, "q/$DeadLetterQueue")
    assert "QuotaExceeded" == dead.changes.dead_letter_reason


def test_a_session_message_finds_its_session_over_there():
    """Though the queue it was sent to knows no sessions."""
    dialogue = chain("q", end=QueueDefinition(requires_session=True))
    dialogue.run(attach_receiver(END, "end", session="x"), credit(1, to=END))
    assert ["a"] == [
        text_of(m)
        for m in dialogue.deliveries(AttachSender(S, "q"), send(message("a", session="x")))
    ]


def test_a_duplicate_over_there_is_dropped():
    """And leaves nothing in the store."""
    dialogue = chain("q", end=QueueDefinition(requires_duplicate_detection=True))
    dialogue.run(AttachSender(S, "q"), send(message("a", message_id="1")))
    dialogue.run(send(message("b", message_id="1")))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "end")]
    store = dialogue.commit()
    assert (1, 1) == (len(store.rows), len(store.payloads))


def test_a_scheduled_message_goes_on_when_due():
    """Until then it waits where it was sent."""
    dialogue = chain("q")
    dialogue.run(AttachSender(S, "q"), send(message("a", at_ms=START_MS + 1_000)))
    assert [] == peek(dialogue, "end")
    dialogue.run(Advance(1_000))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "end")]


def test_messages_wait_while_the_server_refuses_all_sends():
    """As when there is no room in the store: that passes, and is no reason to dead-letter."""
    dialogue = chain("q")
    dialogue.run(AttachSender(S, "q"), send(message("a", at_ms=START_MS + 1_000)))
    dialogue.room.set_full(is_full=True)
    dialogue.run(Advance(1_000))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "q")]
    dialogue.room.set_full(is_full=False)
    dialogue.namespace.retry_forwarding()
    dialogue.run(Advance(0))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "end")]
    assert [] == peek(dialogue, "q/$DeadLetterQueue")


def test_time_to_live_begins_anew_with_what_the_way_left_of_it():
    """The shortest time of all entities on the way."""
    entities = {
        "q": QueueDefinition(forward_to="end", default_time_to_live_ms=5_000),
        "end": QueueDefinition(default_time_to_live_ms=50_000),
    }
    dialogue = CoreDialogue(entities=entities, attach=False)
    dialogue.run(AttachSender(S, "q"), send("a"))
    (arrived,) = peek(dialogue, "end")
    assert START_MS + 5_000 == arrived.expires_at_ms
    dialogue.run(Advance(5_000))
    assert [] == peek(dialogue, "end")


def test_what_waits_is_forwarded_when_forwarding_is_switched_on():
    """And receivers of the queue are detached."""
    dialogue = CoreDialogue(entities={"q": QueueDefinition(), "end": QueueDefinition()})
    dialogue.run(send("a", "b"), credit(1))
    update = UpdateEntity(CLIENT, "u", "q", QueueDefinition(forward_to="end"))
    outcomes = dialogue.outcomes_of(update)
    assert Detached(R, NotAllowed) in outcomes
    assert ["b"] == [text_of(m) for m in peek(dialogue, "end")]
    dialogue.run(Advance(30_000))
    assert ["b", "a"] == [text_of(m) for m in peek(dialogue, "end")]


def test_a_forwarding_entity_takes_no_receivers():
    """There would be nothing to receive; its dead-letter queue is another matter."""
    dialogue = chain("q")
    assert dialogue >> attach_receiver(R) << Refused(R, NotAllowed)
    (effect,) = dialogue.run(attach_receiver(R, "q/$DeadLetterQueue")).effects
    assert not isinstance(effect, Refused)


# --- dead letters ----------------------------------------------------------------------------------


def dead_letters_forwarded(**more):
    dialogue = CoreDialogue(entities={"q": QueueDefinition(forward_dead_letters_to="end"), **more})
    dialogue.run(send("a"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER._replace(reason="Bad")))
    return dialogue


def test_dead_letters_are_forwarded_with_their_source():
    """The reason stays; the entity they died in is named."""
    dialogue = dead_letters_forwarded(end=QueueDefinition())
    (arrived,) = peek(dialogue, "end")
    assert ("Bad", "q", 0) == (
        arrived.changes.dead_letter_reason,
        arrived.changes.dead_letter_source,
        arrived.delivery_count,
    )
    assert 0 == dialogue.ask(GetEntity(CLIENT, "g", "q")).dead_letter_count


def test_dead_letters_stay_until_their_destination_exists():
    """Nothing is lost while it does not."""
    dialogue = dead_letters_forwarded()
    assert 1 == dialogue.ask(GetEntity(CLIENT, "g", "q")).dead_letter_count
    dialogue.run(CreateEntity(CLIENT, "c", "end", QueueDefinition()))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "end")]


def test_dead_letters_go_on_when_the_server_takes_sends_again():
    """They wait where they died as long as there is no room in the store."""
    dialogue = CoreDialogue(
        entities={"q": QueueDefinition(forward_dead_letters_to="end"), "end": QueueDefinition()}
    )
    dialogue.run(send("a"), credit(1))
    dialogue.room.set_full(is_full=True)
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "q/$DeadLetterQueue")]
    dialogue.room.set_full(is_full=False)
    dialogue.namespace.retry_forwarding()
    dialogue.run(Advance(0))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "end")]


def test_a_message_can_come_home_as_its_own_dead_letter():
    """Forwarded back to where it died, it is one message, and deliverable."""
    entities = {
        "q": QueueDefinition(forward_dead_letters_to="b"),
        "b": QueueDefinition(forward_to="q"),
    }
    dialogue = CoreDialogue(entities=entities)
    dialogue.run(send("a", "b"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    assert ["b", "a"] == [text_of(m) for m in dialogue.deliveries(credit(9))]


# --- through topics --------------------------------------------------------------------------------


def test_subscriptions_forward_too():
    """Queue to topic to subscription to queue."""
    dialogue = chain(
        "q",
        last="t",
        t=TopicDefinition(),
        end=QueueDefinition(),
        **{"t/Subscriptions/s": SubscriptionDefinition(forward_to="end")},
    )
    dialogue.run(AttachSender(S, "q"), send("a"))
    (arrived,) = peek(dialogue, "end")
    assert (2, 1) == (arrived.changes.hops, arrived.enqueue_sequence_number)


def test_a_forwarded_message_is_copied_with_one_payload():
    """The original is gone, the body is stored once and deleted with the last copy."""
    dialogue = chain(
        "q",
        last="t",
        t=TopicDefinition(),
        **{f"t/Subscriptions/{name}": SubscriptionDefinition() for name in "xy"},
    )
    dialogue.run(AttachSender(S, "q"), send("a"))
    store = dialogue.commit()
    assert (2, 1) == (len(store.rows), len(store.payloads))
    for name in "xy":
        dialogue.run(DeleteEntity(CLIENT, "d", f"t/Subscriptions/{name}"))
    store = dialogue.commit()
    assert (0, 0) == (len(store.rows), len(store.payloads))


def test_a_forwarded_message_without_a_matching_subscription_is_deleted():
    """As after a send to the topic itself."""
    dialogue = chain("q", last="t", t=TopicDefinition())
    dialogue.run(AttachSender(S, "q"), send("a"))
    assert {} == dialogue.commit().rows


def test_a_message_no_topic_can_read_dies_at_its_source():
    """Rules would have to look into it."""
    rule_reads = SubscriptionDefinition()
    dialogue = chain("q", last="t", t=TopicDefinition(), **{"t/Subscriptions/s": rule_reads})
    dialogue.run(AttachSender(S, "q"), send("undecodable"))
    (dead,) = peek(dialogue, "q/$DeadLetterQueue")
    assert "UndecodableMessage" == dead.changes.dead_letter_reason


@pytest.fixture
def unreadable_ids(monkeypatch):
    """The ids and partition keys of messages whose text is `bad` cannot be read, as in a store of an older version."""

    def read_message_id(self, body):
        if body.startswith(b"bad;"):
            raise UndecodableMessage("an id cannot be read")
        return self.fields(body).get("id")

    def read_partition_key(_, annotations):
        if annotations == b"bad":
            raise UndecodableMessage("a key cannot be read")
        return annotations.decode() or None

    monkeypatch.setattr(PlainReader, "message_id", read_message_id)
    monkeypatch.setattr(PlainReader, "partition_key", read_partition_key)


@pytest.mark.usefixtures("unreadable_ids")
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_message_whose_id_cannot_be_read_dies_at_its_source(partitioned):
    """Only a destination that detects duplicates reads ids. The turn goes on, and so do the others."""
    definition = QueueDefinition(requires_duplicate_detection=True, enable_partitioning=partitioned)
    dialogue = chain("q", end=definition)
    bad = (
        message("key", message_id="2", partition_key="bad")
        if partitioned
        else message("bad", message_id="2")
    )
    dialogue.run(AttachSender(S, "q"))
    dialogue.run(send(message("a", message_id="1"), bad, message("b", message_id="3")))
    assert ["a", "b"] == [text_of(m) for m in peek(dialogue, "end")]
    (dead,) = peek(dialogue, "q/$DeadLetterQueue")
    assert "UndecodableMessage" == dead.changes.dead_letter_reason


@pytest.mark.usefixtures("unreadable_ids")
def test_a_dead_letter_whose_id_cannot_be_read_stays():
    entities = {
        "q": QueueDefinition(forward_dead_letters_to="end"),
        "end": QueueDefinition(requires_duplicate_detection=True),
    }
    dialogue = CoreDialogue(entities=entities)
    dialogue.run(send(message("bad", message_id="1"), message("a", message_id="2")))
    assert 2 == dead_letter_what_comes(dialogue, credit(2))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "end")]
    assert ["bad"] == [text_of(m) for m in peek(dialogue, "q/$DeadLetterQueue")]


# --- what cannot be set up -------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["forward_to", "forward_dead_letters_to"])
@pytest.mark.parametrize("destination", ["nowhere", "t/Subscriptions/s"])
def test_an_entity_forwards_to_queues_and_topics_alone(field, destination):
    """It cannot forward to a missing entity or to a subscription."""
    dialogue = chain("a", t=TopicDefinition(), **{"t/Subscriptions/s": SubscriptionDefinition()})
    with pytest.raises(ArgumentError, match="no queue or topic"):
        dialogue.ask(CreateEntity(CLIENT, "c", "q2", QueueDefinition(**{field: destination})))
    definition = SubscriptionDefinition(**{field: destination})
    with pytest.raises(ArgumentError, match="no queue or topic"):
        dialogue.ask(CreateEntity(CLIENT, "c", "t/Subscriptions/s2", definition))


# --- circles, which the service takes --------------------------------------------------------------


def dead_letter_what_comes(dialogue, step, reason=None):
    """Have a receiver dead-letter all it gets; how many that were."""
    tokens = [
        token
        for effect in dialogue.run(step).effects
        if isinstance(effect, effects.Deliver)
        for token in effect.tokens
        if token is not None
    ]
    if tokens:
        dialogue.run(Settle(R, tokens, ["h"] * len(tokens), DEAD_LETTER._replace(reason=reason)))
    return len(tokens)


def test_a_queue_may_forward_to_itself():
    """What is sent to it turns until the hop limit, and ends in its own dead-letter queue."""
    dialogue = CoreDialogue(entities={}, attach=False)
    dialogue.ask(CreateEntity(CLIENT, "c", "q", QueueDefinition(forward_to="Q")))
    dialogue.run(AttachSender(S, "q"), send("a", "b"))
    dead = peek(dialogue, "q/$DeadLetterQueue")
    assert ["a", "b"] == [text_of(m) for m in dead]
    assert {("MaxTransferHopCountExceeded", 4)} == {
        (m.changes.dead_letter_reason, m.changes.hops) for m in dead
    }
    assert [] == peek(dialogue, "q")
    assert 2 == len(dialogue.commit().rows)


def test_a_full_queue_forwards_to_itself():
    """A message does not need room for two of itself."""
    definition = QueueDefinition(forward_to="q", max_size_megabytes=1)
    dialogue = CoreDialogue(entities={"q": definition}, attach=False)
    dialogue.run(AttachSender(S, "q"), send("x" * 900_000))
    (dead,) = peek(dialogue, "q/$DeadLetterQueue")
    assert "MaxTransferHopCountExceeded" == dead.changes.dead_letter_reason


def test_dead_letters_may_come_back_to_their_own_queue():
    """As often as there are hops; then they stay dead letters."""
    dialogue = CoreDialogue(entities={"q": QueueDefinition(forward_dead_letters_to="q")})
    dialogue.run(send("a"))
    for times in range(1, 6):
        dead_letter_what_comes(dialogue, credit(times), reason="Bad")
    assert [] == peek(dialogue, "q")
    (dead,) = peek(dialogue, "q/$DeadLetterQueue")
    assert ("Bad", "q", 4) == (
        dead.changes.dead_letter_reason,
        dead.changes.dead_letter_source,
        dead.changes.hops,
    )


def test_a_queue_may_forward_messages_and_dead_letters_to_itself():
    """The Python SDK's tests set both; the message ends as a dead letter."""
    definition = QueueDefinition(forward_to="q", forward_dead_letters_to="q")
    dialogue = CoreDialogue(entities={"q": definition}, attach=False)
    dialogue.run(AttachSender(S, "q"), send("a"))
    assert ["a"] == [text_of(m) for m in peek(dialogue, "q/$DeadLetterQueue")]
    assert (1, 1) == (len(dialogue.commit().rows), len(dialogue.commit().payloads))


def test_a_subscription_may_forward_to_its_own_topic():
    """Every round gives each subscription a copy, until the hop limit."""
    entities: dict[str, EntityDefinition] = {
        "t": TopicDefinition(),
        "t/Subscriptions/all": SubscriptionDefinition(),
        "t/Subscriptions/round": SubscriptionDefinition(),
    }
    dialogue = CoreDialogue(entities=entities, attach=False)
    update = UpdateEntity(
        CLIENT, "u", "t/Subscriptions/round", SubscriptionDefinition(forward_to="t")
    )
    dialogue.ask(update)
    dialogue.run(AttachSender(S, "t"), send("a"))
    copies = peek(dialogue, "t/Subscriptions/all")
    assert [0, 1, 2, 3, 4] == [m.changes.hops if m.changes else 0 for m in copies]
    (dead,) = peek(dialogue, "t/Subscriptions/round/$DeadLetterQueue")
    assert "MaxTransferHopCountExceeded" == dead.changes.dead_letter_reason
    assert (6, 1) == (len(dialogue.commit().rows), len(dialogue.commit().payloads))


@pytest.mark.parametrize(
    ("changed", "field", "destination"),
    [
        ("c", "forward_to", "A"),
        ("c", "forward_dead_letters_to", "a"),
        ("a", "forward_to", "t"),
        ("t/Subscriptions/s", "forward_to", "t"),
    ],
)
def test_a_circle_may_be_closed_and_ends(changed, field, destination):
    """However many entities it leads through, every message comes to rest and none is lost."""
    dialogue = chain("a", "b", last="c", t=TopicDefinition())
    subscription = SubscriptionDefinition(forward_to="a")
    dialogue.ask(CreateEntity(CLIENT, "s", "t/Subscriptions/s", subscription))
    before = dialogue.ask(GetEntity(CLIENT, "g", changed)).definition
    dialogue.ask(UpdateEntity(CLIENT, "u", changed, replace(before, **{field: destination})))
    dialogue.run(AttachSender(S, "a"), send("x"), AttachSender(R, "t"), send("y", to=R))
    assert {"x", "y"} == {
        text_of(m)
        for path in ("a", "b", "c", "t/Subscriptions/s")
        for place in (path, f"{path}/$DeadLetterQueue")
        for m in peek(dialogue, place)
    }
    assert 2 == len(dialogue.commit().payloads)


def test_dead_letters_that_cannot_go_on_do_not_hold_up_those_behind_them():
    """Thousands of them stay; the next one that can go, goes."""
    entities = {
        "q": QueueDefinition(forward_dead_letters_to="end", max_message_size_kilobytes=10),
        "end": QueueDefinition(max_message_size_kilobytes=1),
    }
    dialogue = CoreDialogue(entities=entities)
    large = ["x" * 2_000] * 1_500
    dialogue.run(send(*large, "small"))
    while dead_letter_what_comes(dialogue, credit(2_000)):
        pass
    assert ["small"] == [text_of(m) for m in peek(dialogue, "end")]


def dead_letters_of_a_full_destination(count):
    """A dialogue with dead letters that wait for room, and the tokens of the messages that fill it."""
    full = QueueDefinition(max_size_megabytes=1)
    dialogue = CoreDialogue(
        entities={"q": QueueDefinition(forward_dead_letters_to="end"), "end": full}
    )
    filling = message("filling")
    filling.size = 1024 * 1024
    dialogue.run(AttachSender(END, "end"), send(filling, to=END))
    dialogue.run(send(*map(str, range(count))))
    while dead_letter_what_comes(dialogue, credit(count)):
        pass
    return dialogue


def test_dead_letters_of_a_full_destination_are_not_tried_one_by_one(monkeypatch):
    """The first that does not fit holds up the others, or each new dead letter would try all of them again."""
    dialogue = dead_letters_of_a_full_destination(3_000)
    tried = []
    size_error = Entity.size_error

    def counted(self, *sizes):
        if self.path == "end":
            tried.append(sizes)
        return size_error(self, *sizes)

    monkeypatch.setattr(Entity, "size_error", counted)
    dialogue.run(send("last"))
    assert 1 == dead_letter_what_comes(dialogue, credit(3_001))
    assert 1 == len(tried)
    assert 3_001 == dialogue.ask(GetEntity(CLIENT, "g", "q")).dead_letter_count


def test_dead_letters_go_on_when_their_destination_has_room_again():
    """All of them, in their order, although no other dead letter comes and no entity changes."""
    dialogue = dead_letters_of_a_full_destination(3_000)
    receiver = NamedPeer("RECEIVER")
    dialogue.run(attach_receiver(receiver, "end"), credit(1, to=receiver))
    tokens = [t for turn in dialogue.turns for e in turn.effects for t in _tokens(e, receiver)]
    dialogue.run(Settle(receiver, tokens, ["h"], COMPLETE))
    for _ in range(5):
        dialogue.run(Advance(0))
    assert 0 == dialogue.ask(GetEntity(CLIENT, "g", "q")).dead_letter_count
    assert 3_000 == dialogue.ask(GetEntity(CLIENT, "g", "end")).active_count
    assert [str(number) for number in range(100)] == [text_of(m) for m in peek(dialogue, "end")]


def test_dead_letters_wait_for_room_again_if_what_has_left_was_too_small():
    """Each message that leaves the full destination lets the first dead letter try once more."""
    full = QueueDefinition(max_size_megabytes=1)
    dialogue = CoreDialogue(
        entities={"q": QueueDefinition(forward_dead_letters_to="end"), "end": full}
    )
    filling = [message(f"filling {number}") for number in range(4)]
    for part in filling:
        part.size = 256 * 1024
    dialogue.run(AttachSender(END, "end"), send(*filling, to=END))
    large = message("large")
    large.size = 512 * 1024
    dialogue.run(send(large))
    assert 1 == dead_letter_what_comes(dialogue, credit(1))
    receiver = NamedPeer("RECEIVER")
    left = []
    dialogue.run(attach_receiver(receiver, "end", mode=ReceiveMode.RECEIVE_AND_DELETE))
    for taken in range(1, 4):
        left.append(dialogue.ask(GetEntity(CLIENT, "g", "q")).dead_letter_count)
        dialogue.run(credit(taken, to=receiver))
    assert [1, 1, 0] == left
    assert ["filling 3", "large"] == [text_of(m) for m in peek(dialogue, "end")]


def _tokens(effect, receiver):
    return effect.tokens if isinstance(effect, effects.Deliver) and effect.to is receiver else ()


# --- sessions --------------------------------------------------------------------------------------


def test_a_queue_with_sessions_forwards_in_the_order_of_arrival():
    """The order does not depend on the sessions. In the destination each message is in its session
    again."""
    grouped = QueueDefinition(requires_session=True)
    dialogue = CoreDialogue(entities={"end": grouped, "plain": QueueDefinition()}, attach=False)
    for path, destination in (("q", "end"), ("q2", "plain")):
        dialogue.ask(CreateEntity(CLIENT, "c", path, replace(grouped, forward_to=destination)))
    sent = [message(text, session=text[0]) for text in ("x1", "y1", "x2", "y2")]
    again = [message(text, session=text[0]) for text in ("x1", "y1", "x2", "y2")]
    dialogue.run(AttachSender(S, "q"), send(*sent), AttachSender(R, "q2"), send(*again, to=R))
    assert ["x1", "y1", "x2", "y2"] == [text_of(m) for m in peek(dialogue, "plain")]
    dialogue.run(attach_receiver(END, "end", session="y"))
    assert ["y1", "y2"] == [text_of(m) for m in dialogue.deliveries(credit(9, to=END))]


def test_what_waits_in_sessions_is_forwarded_when_forwarding_is_switched_on():
    """Also what a receiver held, which is detached; and a receiver that waited for a session."""
    grouped = QueueDefinition(requires_session=True)
    dialogue = CoreDialogue(entities={"q": grouped, "end": QueueDefinition()}, attach=False)
    dialogue.run(AttachSender(S, "q"), send(message("a", session="x"), message("b", session="y")))
    dialogue.run(attach_receiver(R, "q", session="x"), credit(1))
    dialogue.run(attach_receiver(END, "q", session="y"))
    outcomes = dialogue.outcomes_of(
        UpdateEntity(CLIENT, "u", "q", replace(grouped, forward_to="end"))
    )
    assert Detached(R, NotAllowed) in outcomes
    assert Detached(END, NotAllowed) in outcomes
    assert ["a", "b"] == sorted(text_of(m) for m in peek(dialogue, "end"))
    assert dialogue >> attach_receiver(R, "q", session="x") << Refused(R, NotAllowed)


def test_sessions_are_served_again_when_forwarding_is_switched_off():
    """What comes from then on stays."""
    grouped = QueueDefinition(requires_session=True)
    entities = {"q": replace(grouped, forward_to="end"), "end": QueueDefinition()}
    dialogue = CoreDialogue(entities=entities, attach=False)
    dialogue.run(AttachSender(S, "q"), send(message("a", session="x")))
    dialogue.ask(UpdateEntity(CLIENT, "u", "q", grouped))
    dialogue.run(send(message("b", session="x")), attach_receiver(R, "q", session="x"))
    assert ["b"] == [text_of(m) for m in dialogue.deliveries(credit(9))]
    assert ["a"] == [text_of(m) for m in peek(dialogue, "end")]


# --- idle deletion ---------------------------------------------------------------------------------


def test_a_subscription_that_forwards_is_not_deleted_when_idle():
    """Its idle time is reset and stays so when it no longer forwards; a queue's is kept."""
    dialogue = chain("a", t=TopicDefinition())
    path = "t/Subscriptions/s"
    created = dialogue.ask(
        CreateEntity(
            CLIENT,
            "c",
            path,
            SubscriptionDefinition(forward_to="end", auto_delete_on_idle_ms=300_000),
        )
    )
    assert UNLIMITED_MS == created.definition.auto_delete_on_idle_ms
    stays = replace(created.definition, forward_to=None)
    dialogue.ask(UpdateEntity(CLIENT, "u", path, stays))
    assert (
        UNLIMITED_MS == dialogue.ask(GetEntity(CLIENT, "g", path)).definition.auto_delete_on_idle_ms
    )
    changed = SubscriptionDefinition(forward_to="end", auto_delete_on_idle_ms=300_000)
    updated_view = dialogue.ask(UpdateEntity(CLIENT, "u", path, changed))
    assert UNLIMITED_MS == updated_view.definition.auto_delete_on_idle_ms
    queue = dialogue.ask(
        CreateEntity(
            CLIENT, "c", "q2", QueueDefinition(forward_to="end", auto_delete_on_idle_ms=300_000)
        )
    )
    assert 300_000 == queue.definition.auto_delete_on_idle_ms
    dialogue.run(Advance(300_001))
    assert "q2" == dialogue.ask(GetEntity(CLIENT, "g", "q2")).path
