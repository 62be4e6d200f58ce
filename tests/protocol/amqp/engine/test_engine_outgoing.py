"""Messages that the broker sends, and their outcomes, with and without transactions."""

from __future__ import annotations

import pytest
from cproton_ffi import lib

from protocol.amqp.engine.deliveries import PART_BYTES
from protocol.amqp.engine.engine import ACCEPTED, PLAIN, RELEASED, TransferKind
from protocol.amqp.engine.outcomes import (
    RECEIVED,
    Declared,
    Modified,
    Rejected,
    Transactional,
    WireError,
)
from protocol.codec import Symbol, UInt, encode
from tests.support.amqp_frames import (
    HEADER,
    Recorder,
    accepted,
    attach_receiver,
    attach_sender,
    begin_frame,
    described,
    disposition,
    flow,
    frame,
    frames,
    opened,
    rejected,
    say,
    served,
    transfer,
)


def sending(handler: Recorder | None = None, **settings):
    """A client with one link on which it sends, as handle 0."""
    engine, recorder = opened(attach_sender(), handler=handler, **settings)
    return engine, recorder, recorder.links[0]


def receiving(credit: int = 100, handler: Recorder | None = None, **attach):
    """A client with one link on which it receives, as handle 0, and credit on it."""
    attach = {"snd_settle_mode": 0, "rcv_settle_mode": 1, **attach}
    engine, recorder = opened(attach_receiver(**attach), flow(credit), handler=handler)
    return engine, recorder, recorder.links[0]


def sent(engine, link, count: int, *, settled: bool = False):
    """Messages sent on a link, and written."""
    tags = [b"%016d" % number for number in range(count)]
    deliveries = engine.send(link, tags, [b"head "] * count, [b"body"] * count, settled)
    engine.take_output()
    return deliveries


# --- messages out ---------------------------------------------------------------------------------


def test_messages_are_sent_with_their_tags_and_both_parts():
    engine, _, link = receiving()

    deliveries = engine.send(link, [b"A" * 16, b"B"], [b"head ", b""], [b"body", b"x"], False)

    first, second = frames(engine.take_output())
    assert ([0, 0, b"A" * 16, 0, False], b"head body") == (first.fields, first.payload)
    assert ([0, 1, b"B", 0, False], b"x") == (second.fields, second.payload)
    assert 2 == len(deliveries) == link.sent
    assert 98 == engine.credit(link)


def test_settled_messages_are_sent_settled_and_leave_nothing_to_settle():
    engine, recorder, link = receiving(snd_settle_mode=1, rcv_settle_mode=0)

    assert [] == engine.send(link, [b"A", b"B"], [b"1", b"2"], [b"", b""], True)

    assert [True, True] == [message[4] for message in frames(engine.take_output())]
    assert 2 == link.sent
    assert [] == say(engine, disposition(0, 1, state=accepted(), settled=True))
    assert [] == recorder.of("outcomes")


def test_a_large_message_goes_out_in_parts_and_whole():
    """Proton has one part at a time, and nothing when all is written: it may be held unsettled for long."""
    engine, _, link = receiving()
    body = bytes(range(256)) * 1000

    engine.send(link, [b"A", b"B"], [b"head ", b""], [body, b"x"], False)

    written = frames(engine.take_output())
    assert b"head " + body + b"x" == b"".join(one.payload for one in written)
    assert [0] * (len(written) - 1) + [1] == [one[1] or 0 for one in written]
    assert max(len(one.payload) for one in written) <= PART_BYTES
    assert 0 == lib.pn_link_unsettled(link.pointer) == lib.pn_link_queued(link.pointer)
    assert [0, 1] == link.unsettled


def test_a_message_larger_than_a_frame_goes_out_in_several():
    engine, recorder = served()
    say(
        engine,
        HEADER + frame("open", "c", "h", UInt(1024)) + begin_frame() + attach_receiver() + flow(5),
    )

    engine.send(recorder.links[0], [b"t"], [b"h" * 500], [b"b" * 2500], False)

    messages = frames(engine.take_output())
    assert len(messages) > 2
    assert b"h" * 500 + b"b" * 2500 == b"".join(message.payload for message in messages)


@pytest.mark.parametrize("frame_max_bytes", [512, 1024, 30_000, 65_536, 100_000, 0xFFFFFFFF])
def test_a_large_message_fills_its_frames(frame_max_bytes):
    """Every second frame had 37 bytes, because a part was a little larger than a frame."""
    engine, recorder = served()
    opening = HEADER + frame("open", "c", "h", UInt(frame_max_bytes)) + begin_frame()
    say(engine, opening + attach_receiver() + flow(5))

    engine.send(recorder.links[0], [b"t" * 16], [b"head"], [b"b" * 200_000], False)

    sizes = [len(message.payload) for message in frames(engine.take_output())]
    assert 200_004 == sum(sizes)
    filled = min(frame_max_bytes, PART_BYTES) - 64
    assert len(sizes) <= -(-200_004 // filled)


def test_outcomes_of_a_range_come_as_one_group():
    engine, recorder, link = receiving(handler=Recorder(accepts=False))
    deliveries = sent(engine, link, 30)

    say(engine, disposition(0, 29, state=accepted()))

    ((group_link, group, outcome, settled),) = recorder.of("outcomes")
    assert (link, ACCEPTED, False) == (group_link, outcome, settled)
    assert set(deliveries) == set(group)


def test_an_intended_outcome_is_answered_settled_and_as_a_range():
    """Peek-lock: the client says what it wants and waits for us to settle."""
    engine, _, link = receiving()
    sent(engine, link, 30)

    answers = say(engine, disposition(0, 29, state=accepted()))

    assert [[False, 0, 29, True, accepted()]] == [answer.fields for answer in answers]


def test_a_settled_outcome_is_not_answered():
    engine, recorder, link = receiving()
    sent(engine, link, 2)

    assert [] == say(engine, disposition(0, 1, state=accepted(), settled=True))
    assert [(ACCEPTED, True)] == [call[2:] for call in recorder.of("outcomes")]
    assert [] == link.unsettled


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (accepted(), ACCEPTED),
        (described(0x26), RELEASED),
        (described(0x23, 1, 2), RECEIVED),
        (described(0x25), Rejected()),
        (described(0x25, None), Rejected()),
        (
            rejected("com.microsoft:dead-letter", "text", {Symbol("DeadLetterReason"): "why"}),
            Rejected("com.microsoft:dead-letter", "text", {"DeadLetterReason": encode("why")}),
        ),
        (
            rejected("com.microsoft:dead-letter", "text", {Symbol("DeadLetterReason"): None}),
            Rejected("com.microsoft:dead-letter", "text", {"DeadLetterReason": encode(None)}),
        ),
        (described(0x27), Modified()),
        (described(0x27, True), Modified(delivery_failed=True)),
        (described(0x27, True, True), Modified(True, True)),
        (described(0x27, None, True, None), Modified(undeliverable_here=True)),
        (
            described(0x27, True, False, {Symbol("key"): 7, "text": "x"}),
            Modified(True, False, {"key": encode(7), "text": encode("x")}),
        ),
    ],
)
@pytest.mark.parametrize("settled", [False, True])
def test_every_outcome_is_read(state, outcome, settled):
    engine, recorder, link = receiving(handler=Recorder(accepts=False))
    deliveries = sent(engine, link, 1)

    say(engine, disposition(0, state=state, settled=settled))

    assert [(link, deliveries, outcome, settled)] == recorder.of("outcomes")


def test_settling_without_a_state_is_reported_as_no_outcome():
    engine, recorder, link = receiving()
    sent(engine, link, 1)

    say(engine, disposition(0, settled=True))

    assert [(None, True)] == [call[2:] for call in recorder.of("outcomes")]


def test_outcomes_are_grouped_by_what_they_say():
    engine, recorder, link = receiving(handler=Recorder(accepts=False))
    sent(engine, link, 6)

    say(
        engine,
        disposition(0, state=accepted())
        + disposition(1, state=accepted())
        + disposition(2, state=described(0x27, True))
        + disposition(3, state=described(0x27, True))
        + disposition(4, state=described(0x27, True), settled=True)
        + disposition(5, state=accepted(), settled=True),
    )

    assert [
        (2, ACCEPTED, False),
        (2, Modified(delivery_failed=True), False),
        (1, Modified(delivery_failed=True), True),
        (1, ACCEPTED, True),
    ] == [(len(group), outcome, flag) for _, group, outcome, flag in recorder.of("outcomes")]


def test_a_range_over_unknown_deliveries_touches_only_known_ones():
    engine, recorder, link = receiving()
    sent(engine, link, 3)
    say(engine, disposition(1, state=accepted(), settled=True))

    say(engine, disposition(0, 500, state=accepted(), settled=True))

    assert [1, 2] == [len(call[1]) for call in recorder.of("outcomes")]
    assert [] == link.unsettled


def test_an_outcome_and_a_later_settlement_are_both_reported():
    """As one client does that will not wait for us; our late answer then does nothing."""
    engine, recorder, link = receiving(handler=Recorder(accepts=False))
    (delivery,) = sent(engine, link, 1)
    say(engine, disposition(0, state=accepted()))
    say(engine, disposition(0, state=accepted(), settled=True))

    assert [False, True] == [call[3] for call in recorder.of("outcomes")]
    engine.settle(link, [delivery], None)
    engine.settle(link, [delivery], ACCEPTED)
    assert [] == frames(engine.take_output())


def test_a_failed_settlement_carries_an_error_with_info():
    engine, _, link = receiving(handler=Recorder(accepts=False))
    deliveries = sent(engine, link, 1)
    say(engine, disposition(0, state=accepted()))

    engine.settle_refused(link, deliveries, WireError("com.microsoft:lost", "gone", {"k": "v"}))

    (answer,) = frames(engine.take_output())
    assert [
        False,
        0,
        None,
        True,
        rejected("com.microsoft:lost", "gone", {"k": "v"}),
    ] == answer.fields


def test_no_error_goes_out_without_info():
    """One SDK hangs on an error whose info is missing or empty."""
    engine, recorder, link = sending(Recorder(accepts=False))
    say(engine, transfer(0, b"x") + transfer(1, b"y"))
    first, second = recorder.of("transfers")[0][1]

    engine.settle(link, [first], Rejected("amqp:not-allowed", "why"))
    engine.settle(link, [second], Transactional(b"t", Rejected("amqp:not-allowed", "why")))

    plain, nested = frames(engine.take_output())
    assert {"error-condition": "amqp:not-allowed"} == plain[4].value[0].value[2]
    assert {"error-condition": "amqp:not-allowed"} == nested[4].value[1].value[0].value[2]
    with pytest.raises(ValueError, match="has no info"):
        WireError("amqp:not-allowed", "why", {})


# --- transactions --------------------------------------------------------------------------------


def coordinator(handle: int) -> bytes:
    capabilities = Symbol("amqp:local-transactions")
    return frame(
        "attach",
        "tx",
        handle,
        False,
        None,
        None,
        described(0x28, "c"),
        described(0x30, capabilities),
    )


def test_a_coordinator_link_is_reported_and_granted_as_one():
    engine, recorder = opened()

    attach, _ = say(engine, coordinator(0))

    assert recorder.attaches[0].target_is_coordinator
    assert 0x30 == attach[6].descriptor


def test_transactions_are_read_and_written_on_transfers_and_outcomes():
    engine, recorder = opened(
        coordinator(0),
        attach_sender("to", 1),
        attach_receiver("from", 2, rcv_settle_mode=1),
        flow(10, handle=2),
        handler=Recorder(accepts=False),
    )
    control, incoming, outgoing = recorder.links
    say(engine, transfer(0, b"declare"))
    (declare,) = recorder.of("transfers")[0][1]
    engine.settle(control, [declare], Declared(b"tx1"))
    assert [True, 0, None, True, described(0x33, b"tx1")] == frames(engine.take_output())[0].fields

    state = described(0x34, b"tx1")
    say(engine, transfer(1, b"a", handle=1, state=state) + transfer(2, b"b", handle=1, state=state))
    say(engine, transfer(3, b"c", handle=1))
    _, *in_transaction, outside = recorder.of("transfers")
    assert [TransferKind(False, False, b"tx1")] * 2 == [call[3] for call in in_transaction]
    assert [[b"a"], [b"b"]] == [call[2] for call in in_transaction]
    assert PLAIN == outside[3]
    for call in in_transaction:
        engine.settle(incoming, call[1], Transactional(b"tx1", ACCEPTED))
    assert [described(0x34, b"tx1", accepted())] * 2 == [
        answer[4] for answer in frames(engine.take_output())
    ]

    deliveries = sent(engine, outgoing, 3)
    nested = rejected("com.microsoft:dead-letter", "text", {Symbol("k"): 1})
    say(engine, disposition(0, state=described(0x34, b"tx1", accepted())))
    say(engine, disposition(1, state=described(0x34, b"tx1", nested)))
    say(engine, disposition(2, state=described(0x34, b"tx1", described(0x27, None, True))))
    dead_letter = Rejected("com.microsoft:dead-letter", "text", {"k": encode(1)})
    assert [
        Transactional(b"tx1", ACCEPTED),
        Transactional(b"tx1", dead_letter),
        Transactional(b"tx1", Modified(undeliverable_here=True)),
    ] == [call[2] for call in recorder.of("outcomes")]
    engine.settle(outgoing, deliveries[:1], Transactional(b"tx1", ACCEPTED))
    engine.settle(outgoing, deliveries[1:2], Transactional(b"tx1", Rejected()))
    engine.settle(outgoing, deliveries[2:], Transactional(b"tx1", dead_letter))
    assert [
        described(0x34, b"tx1", accepted()),
        described(0x34, b"tx1", described(0x25)),
        described(0x34, b"tx1", nested),
    ] == [answer[4] for answer in frames(engine.take_output())]


# --- time -----------------------------------------------------------------------------------------


def test_a_client_that_only_settles_is_not_idle():
    """Its dispositions do not go to Proton, which closes the connections of idle clients."""
    engine, recorder = opened(attach_receiver(), flow(100), idle_timeout_ms=1000)
    (link,) = recorder.links
    sent(engine, link, 20)
    engine.tick(1000)
    for number in range(20):
        say(engine, disposition(number, state=accepted(), settled=True))
        engine.tick(1000 + 1000 * number)
    assert [] == recorder.of("transport error")
    engine.tick(30_000)
    assert 1 == len(recorder.of("transport error"))


# --- what causes no output --------------------------------------------------------------------------


def test_outcomes_alone_need_no_flush():
    """Nothing is written until somebody answers them."""
    engine, recorder = opened(attach_receiver(), flow(100))
    (link,) = recorder.links
    sent(engine, link, 4)
    engine.take_output()
    assert not engine.feed(disposition(0, state=accepted(), settled=True))
    assert b"" == engine.take_output()
    both = disposition(2, state=accepted(), settled=True) + flow(100, echo=True)
    assert engine.feed(both)
    assert ["flow"] == [answer.name for answer in frames(engine.take_output())]
    flow_alone = flow(100, echo=True)
    assert not engine.feed(flow_alone[:20]), "the rest of the frame has not come"
    assert engine.feed(flow_alone[20:])


def test_a_handler_that_answers_outcomes_at_once_causes_output():
    """As for a delivery that was settled in a transaction before."""
    engine, recorder = opened(attach_receiver(), flow(100))
    (link,) = recorder.links
    sent(engine, link, 1)
    engine.take_output()
    assert engine.feed(disposition(0, state=accepted(), settled=False))
    assert ["disposition"] == [answer.name for answer in frames(engine.take_output())]
