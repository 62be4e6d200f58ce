"""The contract that every store fulfils."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.core.contract.records import (
    EntityDeleted,
    MessageIdsDeleted,
    MessageIdsForgotten,
    MessageIdsSeen,
    MessagesDeleted,
    MessagesStored,
    MessagesUpdated,
    NamespaceDeleted,
    NamespaceStored,
    RulesDeleted,
    SequenceNumbersSkipped,
    SessionStateSet,
)
from tests.storage.sample_records import (
    OTHER_QUEUE,
    QUEUE,
    entity,
    everything,
    message_ids,
    messages,
    payload,
    row,
    rules,
    stored,
)
from tests.support.owned_stores import open_as_owner

if TYPE_CHECKING:
    from broker.core.contract.records import Record


def reopen(store) -> None:
    store.close()
    open_as_owner(store)


# --- messages ---------------------------------------------------------------------------------


def test_an_empty_store_holds_nothing(store):
    """A new store opens, and a broker can begin with it."""
    assert {
        "namespaces": [],
        "entities": [],
        "rules": [],
        "sequence_numbers": {},
        "highest_message_id": 0,
        "messages": [],
        "session_states": [],
        "message_ids": [],
        "payloads": {},
    } == everything(store)


def test_a_commit_of_nothing_is_allowed(store):
    """An empty batch changes nothing."""
    store.commit([])
    assert [] == message_ids(store)


def test_a_stored_message_is_found_again_after_reopening(store):
    """Every column of a message and both parts of its payload outlive the store object's closing."""
    message = row(
        7,
        entity_id=3,
        sub_queue=1,
        sequence_number=2**53,
        enqueue_sequence_number=5,
        enqueued_time_ms=1_700_000_000_123,
        time_to_live_ms=922_337_203_685_477,
        expires_at_ms=1_700_000_000_999,
        scheduled_enqueue_time_ms=1_700_000_000_500,
        delivery_count=9,
        state=2,
        header=0xFF04,
        size=12,
        session_id="seat 12",
        changes=b"\x00\x01",
    )
    store.commit([MessagesStored([message], [payload(7, b"body", b"annotations")])])
    reopen(store)
    assert [message] == messages(store)
    assert {7: (b"body", b"annotations")} == store.read_payloads([7])


def test_a_time_to_live_of_zero_is_not_none(store):
    """Zero, empty and absent are three different things."""
    kept = [
        row(1, time_to_live_ms=0, session_id="", changes=b""),
        row(2, time_to_live_ms=None, session_id=None, changes=None),
    ]
    store.commit([MessagesStored(kept, [])])
    assert kept == messages(store)


@pytest.mark.parametrize(
    "unusual",
    [
        {},
        {"sub_queue": 1},
        {"enqueue_sequence_number": 9},
        {"time_to_live_ms": 5},
        {"expires_at_ms": 5},
        {"scheduled_enqueue_time_ms": 5},
        {"delivery_count": 1},
        {"state": 2},
        {"header": 3},
        {"payload_id": 9},
        {"session_id": ""},
        {"changes": b""},
    ],
    ids=lambda unusual: next(iter(unusual), "nothing"),
)
def test_a_message_comes_back_whatever_is_unusual_about_it(store, unusual):
    """A store may read the usual ones in a way of their own; a single difference counts."""
    kept = [row(1), row(2, **unusual), row(3)]
    store.commit([MessagesStored(kept, [])])
    assert kept == messages(store)


def test_an_updated_message_has_its_new_row_and_its_old_payload(store):
    """An update changes all it says and leaves the payload alone."""
    store.commit([stored([1])])
    dead = row(1, sub_queue=1, delivery_count=10, session_id="s", changes=b"reason")
    store.commit([MessagesUpdated([dead])])
    reopen(store)
    assert [dead] == messages(store)
    assert {1: (b"hello", b"")} == store.read_payloads([1])


def test_the_last_of_several_updates_counts(store):
    """Updates of one message in one batch are applied in order."""
    store.commit([stored([1])])
    store.commit(
        [
            MessagesUpdated([row(1, delivery_count=1), row(1, delivery_count=2)]),
            MessagesUpdated([row(1, delivery_count=3)]),
        ]
    )
    assert [row(1, delivery_count=3)] == messages(store)


def test_a_deleted_message_is_gone_with_its_payload(store):
    """Only the named messages and payloads are deleted."""
    store.commit([stored(range(1, 6))])
    store.commit([MessagesDeleted([2, 4], [2, 4])])
    reopen(store)
    assert [1, 3, 5] == message_ids(store)
    assert {1, 3, 5} == set(store.read_payloads(range(10)))


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param([5, 4, 3], id="a range, backwards"),
        pytest.param([3, 3, 5], id="the ends of a range, one twice"),
        pytest.param([1, 2, 3, 900, 901, 1400], id="a few ranges"),
        pytest.param(range(1, 1401, 2), id="every second one"),
        pytest.param(range(1, 1401), id="all"),
        pytest.param([1400, 5000], id="one that never was"),
    ],
)
def test_exactly_the_named_messages_are_deleted(store, gone):
    """With any distribution of ids, all of them and no others are deleted."""
    store.commit([stored(range(1, 1401))])
    store.commit([MessagesDeleted(gone, gone)])
    left = [message_id for message_id in range(1, 1401) if message_id not in set(gone)]
    assert left == message_ids(store)
    assert left == sorted(store.read_payloads(range(1, 5001)))


def test_a_large_batch_is_stored_whole(store):
    """A batch may be larger than any statement."""
    store.commit([stored(range(1, 1701)), stored(range(1701, 1704)), stored([1704])])
    assert list(range(1, 1705)) == message_ids(store)
    assert 1704 == len(store.read_payloads(range(1, 1705)))


def test_payload_ids_to_delete_are_taken_as_they_are(store):
    """Copies of a message share a payload: it goes when the core says so, not with a message."""
    store.commit(
        [MessagesStored([row(1), row(2, entity_id=OTHER_QUEUE, payload_id=1)], [payload(1)])]
    )
    store.commit([MessagesDeleted([1], [])])
    assert {1: (b"hello", b"")} == store.read_payloads([1])
    store.commit([MessagesDeleted([2], [1])])
    assert {} == store.read_payloads([1])


def test_a_payload_can_be_stored_by_an_earlier_record(store):
    """Later copies refer to a payload that is there already."""
    store.commit([stored([1])])
    store.commit([MessagesStored([row(2, entity_id=OTHER_QUEUE, payload_id=1)], [])])
    assert [1, 1] == [message.payload_id for message in messages(store)]


# --- order within a batch ---------------------------------------------------------------------


def test_a_message_that_comes_and_goes_in_one_batch_leaves_its_number(store):
    """Receive-and-delete: nothing remains but the number, which is not given out again."""
    store.commit([stored([1, 2]), MessagesDeleted([1], [1])])
    reopen(store)
    assert [2] == message_ids(store)
    assert {2} == set(store.read_payloads([1, 2]))
    store.commit([stored([3]), MessagesDeleted([2, 3], [2, 3])])
    assert {(QUEUE, 0): 3} == store.load().sequence_numbers


def test_a_message_can_be_updated_in_the_batch_that_stores_it(store):
    """Later records of a batch see what earlier ones did."""
    store.commit([stored([1]), MessagesUpdated([row(1, state=1)]), stored([2])])
    assert [1, 0] == [message.state for message in messages(store)]


def test_a_message_updated_and_then_deleted_is_gone(store):
    """The last word in a batch is the last word."""
    store.commit([stored([1])])
    store.commit(
        [MessagesUpdated([row(1, sub_queue=1, sequence_number=4)]), MessagesDeleted([1], [1])]
    )
    assert [] == message_ids(store)
    assert {(QUEUE, 0): 1, (QUEUE, 1): 4} == store.load().sequence_numbers


def test_a_message_stored_again_after_its_delete_is_there(store):
    """Order is kept even where a batch says the unusual."""
    store.commit([stored([1, 2])])
    again = MessagesStored([row(1, delivery_count=4)], [payload(1, b"again")])
    store.commit([MessagesDeleted([1], [1]), again])
    assert [row(1, delivery_count=4), row(2)] == messages(store)
    assert (b"again", b"") == store.read_payloads([1])[1]


def test_stores_and_deletes_may_alternate_in_a_batch(store):
    """What many turns of a busy broker come to in one commit."""
    store.commit([stored(range(1, 101))])
    batch: list[Record] = []
    for turn in range(20):
        batch.append(stored(range(101 + turn * 5, 106 + turn * 5)))
        gone = range(1 + turn * 5, 6 + turn * 5)
        batch.append(MessagesDeleted(gone, gone))
    store.commit(batch)
    assert list(range(101, 201)) == message_ids(store)
    assert list(range(101, 201)) == sorted(store.read_payloads(range(1, 201)))


# --- sequence numbers -------------------------------------------------------------------------


def test_numbers_are_not_reused(store):
    """The highest number of each queue is known even if its message is long gone."""
    store.commit(
        [
            stored([1, 2, 3]),
            MessagesStored([row(4, entity_id=OTHER_QUEUE, sub_queue=2, sequence_number=77)], []),
        ]
    )
    store.commit([MessagesDeleted([1, 2, 3, 4], [1, 2, 3])])
    reopen(store)
    assert [] == message_ids(store)
    assert {(QUEUE, 0): 3, (OTHER_QUEUE, 2): 77} == store.load().sequence_numbers


def test_a_lower_number_does_not_lower_the_highest(store):
    """Rows may come in any order; what was given out stays given out."""
    store.commit([MessagesStored([row(1, sequence_number=50), row(2, sequence_number=20)], [])])
    store.commit([MessagesStored([row(3, sequence_number=30)], [])])
    assert {(QUEUE, 0): 50} == store.load().sequence_numbers


def test_an_update_raises_the_numbers_of_the_queue_it_moves_to(store):
    """Dead-lettering gives a message a number in another queue."""
    store.commit([stored([1])])
    store.commit([MessagesUpdated([row(1, sub_queue=1, sequence_number=9)])])
    assert {(QUEUE, 0): 1, (QUEUE, 1): 9} == store.load().sequence_numbers


def test_an_id_still_used_by_a_payload_counts_as_the_highest(store):
    """A new message must not meet the payload of one that is gone."""
    store.commit(
        [
            MessagesStored([row(9)], [payload(9)]),
            MessagesStored([row(3, entity_id=OTHER_QUEUE, payload_id=9)], []),
        ]
    )
    store.commit([MessagesDeleted([9], [])])
    assert 9 == store.load().highest_message_id


# --- payloads ---------------------------------------------------------------------------------


def test_only_existing_payloads_are_answered(store):
    """Unknown ids are left out, repeated ones are no trouble, none at all is fine."""
    store.commit([stored([1, 2, 3])])
    assert {2, 3} == set(store.read_payloads([3, 2, 3, 99]))
    assert {} == store.read_payloads([99])
    assert {} == store.read_payloads([])


def test_payloads_come_back_as_bytes(store):
    """Of the same type and content, empty ones included."""
    bodies = {1: b"", 2: b"\x00", 3: bytes(range(256)), 4: b"x" * 1_500_000, 5: b"y" * 1_500_000}
    payloads = [payload(number, body, body[:3]) for number, body in bodies.items()]
    store.commit([MessagesStored([row(number) for number in bodies], payloads)])
    reopen(store)
    read = store.read_payloads(list(bodies))
    assert {number: (body, body[:3]) for number, body in bodies.items()} == read
    assert {bytes} == {type(part) for parts in read.values() for part in parts}


# --- sessions and message ids -----------------------------------------------------------------


def test_session_state_is_set_replaced_and_cleared(store):
    """Clearing removes the state. Other sessions keep their states."""
    first = SessionStateSet(QUEUE, "a", b"1", 10)
    second = SessionStateSet(QUEUE, "b", b"", 20)
    elsewhere = SessionStateSet(OTHER_QUEUE, "a", b"3", 30)
    store.commit([first, second, elsewhere])
    changed = SessionStateSet(QUEUE, "a", b"11", 40)
    store.commit([changed])
    reopen(store)
    assert [changed, second, elsewhere] == everything(store)["session_states"]
    store.commit([SessionStateSet(QUEUE, "a", None, 50)])
    reopen(store)
    assert [second, elsewhere] == everything(store)["session_states"]


def test_the_last_session_state_of_a_batch_counts(store):
    """Set, cleared and set again in one batch: set."""
    last = SessionStateSet(QUEUE, "a", b"2", 3)
    cleared = SessionStateSet(QUEUE, "b", None, 3)
    store.commit(
        [
            SessionStateSet(QUEUE, "a", b"1", 1),
            SessionStateSet(QUEUE, "b", b"1", 1),
            SessionStateSet(QUEUE, "a", None, 2),
            cleared,
            last,
        ]
    )
    assert [last] == everything(store)["session_states"]


def test_seen_message_ids_are_remembered_until_forgotten(store):
    """Forgetting takes everything up to and including its time, of its entity."""
    store.commit(
        [
            MessageIdsSeen(QUEUE, [("a", 100), ("b", 200), ("c", 300)]),
            MessageIdsSeen(OTHER_QUEUE, [("a", 50)]),
        ]
    )
    store.commit([MessageIdsForgotten(QUEUE, 200)])
    reopen(store)
    assert [(QUEUE, "c", 300), (OTHER_QUEUE, "a", 50)] == everything(store)["message_ids"]


def test_seen_message_ids_of_a_deleted_entity_are_deleted_in_parts(store):
    """Whatever their time. Those that are not there, and those of other entities, do not matter."""
    seen = [(f"{number} für \0", 7) for number in range(700)]
    store.commit([MessageIdsSeen(QUEUE, seen), MessageIdsSeen(OTHER_QUEUE, seen[:1])])
    store.commit([EntityDeleted(QUEUE)])
    names = [message_id for message_id, _ in seen]
    store.commit([MessageIdsDeleted(QUEUE, [*names[1:], "another", names[1]])])
    reopen(store)
    left = [(QUEUE, *seen[0]), (OTHER_QUEUE, *seen[0])]
    assert left == everything(store)["message_ids"]
    store.commit([MessageIdsDeleted(QUEUE, names[:1]), MessageIdsDeleted(OTHER_QUEUE, [])])
    reopen(store)
    assert left[1:] == everything(store)["message_ids"]


def test_a_message_id_seen_again_has_its_new_time(store):
    """Seen, forgotten and seen again, in one batch and in several."""
    store.commit([MessageIdsSeen(QUEUE, [("a", 100), ("b", 100), ("a", 150)])])
    store.commit(
        [
            MessageIdsSeen(QUEUE, [("a", 300)]),
            MessageIdsForgotten(QUEUE, 200),
            MessageIdsSeen(QUEUE, [("b", 400)]),
        ]
    )
    assert [(QUEUE, "a", 300), (QUEUE, "b", 400)] == everything(store)["message_ids"]


# --- entities ---------------------------------------------------------------------------------


def test_entities_are_stored_and_changed(store):
    """The last definition counts; entities come in the order of their ids."""
    store.commit([entity(2, "b"), entity(1, "a")])
    changed = entity(2, "b", kind="topic", definition='{"x": 1}', updated_time_ms=9)
    store.commit([changed])
    reopen(store)
    assert [entity(1, "a"), changed] == list(store.load().entities)


def test_a_deleted_entity_takes_all_that_is_its_own(store):
    """Session states, numbers and rules; messages and message ids by records of their own."""
    store.commit(
        [
            entity(QUEUE, "gone"),
            entity(OTHER_QUEUE, "stays"),
            stored([1, 2]),
            stored([3], sub_queue=1),
            stored([4, 5], entity_id=OTHER_QUEUE),
            SessionStateSet(QUEUE, "s", b"gone", 1),
            SessionStateSet(OTHER_QUEUE, "s", b"stays", 1),
            MessageIdsSeen(QUEUE, [("m", 1)]),
            MessageIdsSeen(OTHER_QUEUE, [("m", 1)]),
            rules(QUEUE, 1, 2),
            rules(OTHER_QUEUE, 1),
        ]
    )
    store.commit([EntityDeleted(QUEUE), MessagesDeleted([1], [1])])
    store.commit([MessagesDeleted([3, 2], [2, 3]), MessageIdsDeleted(QUEUE, ["m"])])
    reopen(store)
    assert {
        "namespaces": [],
        "rules": list(rules(OTHER_QUEUE, 1).rows),
        "entities": [entity(OTHER_QUEUE, "stays")],
        "sequence_numbers": {(OTHER_QUEUE, 0): 5},
        "highest_message_id": 5,
        "messages": [row(4, entity_id=OTHER_QUEUE), row(5, entity_id=OTHER_QUEUE)],
        "session_states": [SessionStateSet(OTHER_QUEUE, "s", b"stays", 1)],
        "message_ids": [(OTHER_QUEUE, "m", 1)],
        "payloads": {4: (b"hello", b""), 5: (b"hello", b"")},
    } == everything(store)


def test_messages_outlive_their_entity_until_they_are_deleted(store):
    """They may be many: they are deleted in parts, also after a restart in between."""
    store.commit([entity(QUEUE, "gone"), stored([1, 2, 3])])
    store.commit([MessagesDeleted([1], [1]), EntityDeleted(QUEUE)])
    store.commit([MessagesDeleted([2], [2])])
    reopen(store)
    assert [] == store.load().entities
    assert {} == store.load().sequence_numbers
    assert [3] == message_ids(store)
    assert {3} == set(store.read_payloads([1, 2, 3]))
    store.commit([MessagesDeleted([3], [3])])
    assert [] == message_ids(store)
    assert {} == store.read_payloads([1, 2, 3])


def test_an_entity_made_anew_in_the_same_batch_begins_with_its_own_numbers(store):
    """Deleting an entity takes what it had at that moment of the batch, no more, no less."""
    store.commit([stored([1, 2])])
    store.commit(
        [
            stored([3]),
            MessagesUpdated([row(1, entity_id=OTHER_QUEUE)]),
            MessagesDeleted([2, 3], [2, 3]),
            EntityDeleted(QUEUE),
            entity(QUEUE, "made anew"),
            MessagesStored([row(4, sequence_number=1)], [payload(4)]),
        ]
    )
    assert [1, 4] == message_ids(store)
    assert {1, 4} == set(store.read_payloads(range(5)))
    assert {(QUEUE, 0): 1, (OTHER_QUEUE, 0): 1} == store.load().sequence_numbers


def test_deleting_an_unknown_entity_changes_nothing(store):
    """Storage decides nothing, and complains about nothing either."""
    store.commit([stored([1])])
    before = everything(store)
    store.commit([EntityDeleted(99)])
    assert before == everything(store)


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "0",
        "Zürich",
        "注文",
        "🧾\N{ZERO WIDTH JOINER}🧾",
        "a\x00b",
        "'; --",
        "x" * 10_000,
    ],
    ids=["empty", "space", "minus one", "zero", "latin", "kanji", "emoji", "nul", "sql", "long"],
)
def test_text_comes_back_as_it_was(store, text):
    """In session ids, message ids, paths and definitions."""
    message = row(1, session_id=text)
    state = SessionStateSet(QUEUE, text, b"state", 1)
    store.commit(
        [
            MessagesStored([message], []),
            state,
            MessageIdsSeen(QUEUE, [(text, 5)]),
            entity(QUEUE, text, definition=text, namespace=text),
        ]
    )
    reopen(store)
    content = store.load()
    assert [message] == messages(store)
    assert [state] == list(content.session_states)
    assert [(QUEUE, text, 5)] == list(content.message_ids)
    assert [entity(QUEUE, text, definition=text, namespace=text)] == list(content.entities)


def test_a_store_can_be_closed_twice(store):
    """Closing what is closed is no mistake: a failed start closes all it may have opened."""
    store.close()
    store.close()
    store.open()


# --- rules -----------------------------------------------------------------------------------------


def test_rules_are_kept_one_by_one(store):
    """Each rule has its own row: replacing or deleting one does not change the others."""
    store.commit([entity(QUEUE), rules(QUEUE, 1, 2, 3)])
    store.commit([rules(QUEUE, 2, definition='{"replaced":1}'), RulesDeleted(QUEUE, [1, 7])])
    store.commit([rules(QUEUE, 4)])
    reopen(store)
    assert [(2, '{"replaced":1}'), (3, "{}"), (4, "{}")] == [
        (rule.number, rule.definition) for rule in sorted(store.load().rules)
    ]


def test_a_rule_deleted_and_stored_again_in_one_batch_is_there(store):
    """Records take effect in their order."""
    store.commit([rules(QUEUE, 1), RulesDeleted(QUEUE, [1]), rules(QUEUE, 1, definition='{"a":1}')])
    assert ['{"a":1}'] == [rule.definition for rule in store.load().rules]
    store.commit([rules(QUEUE, 1), RulesDeleted(QUEUE, [1])])
    assert [] == list(store.load().rules)


# --- namespaces ------------------------------------------------------------------------------------


def test_namespaces_are_stored_changed_and_deleted(store):
    """The last definition counts, in one commit and in several."""
    store.commit([NamespaceStored("b", "{}"), NamespaceStored("a", "{}")])
    store.commit([NamespaceStored("a", '{"x":1}'), NamespaceStored("a", '{"y":1}')])
    store.commit([NamespaceStored("c", "{}"), NamespaceDeleted("c"), NamespaceDeleted("unknown")])
    reopen(store)
    expected = [NamespaceStored("a", '{"y":1}'), NamespaceStored("b", "{}")]
    assert expected == list(store.load().namespaces)
    store.commit([NamespaceDeleted("a"), NamespaceStored("a", '{"z":1}'), NamespaceDeleted("b")])
    assert [NamespaceStored("a", '{"z":1}')] == list(store.load().namespaces)


def test_skipped_sequence_numbers_are_kept(store):
    """They only rise, and messages raise them as well."""
    store.commit([entity(QUEUE), SequenceNumbersSkipped([(QUEUE, 0, 7), (QUEUE, 1, 3)])])
    store.commit([SequenceNumbersSkipped([(QUEUE, 0, 5)]), stored([9], sub_queue=1)])
    reopen(store)
    assert {(QUEUE, 0): 7, (QUEUE, 1): 9} == store.load().sequence_numbers
    store.commit([EntityDeleted(QUEUE)])
    assert {} == store.load().sequence_numbers
