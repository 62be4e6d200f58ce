"""The engine's ordinary life: messages in, messages out, in groups and in order."""

from __future__ import annotations

import pytest

from protocol.amqp.engine import ACCEPTED, PLAIN, RELEASED, TransferKind
from protocol.amqp.outcomes import RECEIVED, Declared, Modified, Rejected, Transactional, WireError
from protocol.amqp.values import Symbol, UInt, encode
from tests.support.wire import (
    BATCH_FORMAT,
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
    open_frame,
    opened,
    rejected,
    say,
    served,
    transfer,
)
from tests.support.wire_client import ProtonClient, pump


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


# --- open ------------------------------------------------------------------------------------------


def test_open_tells_our_limits():
    engine, _ = served(max_frame_size_bytes=65_536, channel_max=8191, idle_timeout_ms=240_000)

    answer, _ = say(engine, HEADER + open_frame() + begin_frame())

    assert ("open", "broker") == (answer.name, answer[0])
    assert [65_536, 8191, 240_000] == answer.fields[2:5]


def test_open_is_told_with_the_clients_properties():
    engine, recorder = served()
    properties = {Symbol("product"): "some-sdk", Symbol("version"): "1.0"}

    say(engine, HEADER + frame("open", "c", "ns.localhost:5673", *[None] * 7, properties))

    expected = {"product": "some-sdk", "version": "1.0"}
    assert [("ns.localhost:5673", "c", expected)] == recorder.of("open")


def test_a_pipelined_client_is_answered_in_one_go():
    """Header, open, begin, attach and credit in one read, as one SDK does."""
    engine, recorder = served()

    answers = say(engine, HEADER + open_frame() + begin_frame() + attach_receiver() + flow(7))

    assert ["open", "begin", "attach"] == [answer.name for answer in answers]
    assert 7 == engine.credit(recorder.links[0])


# --- messages in ------------------------------------------------------------------------------------


def test_consecutive_transfers_come_as_one_group():
    engine, recorder, link = sending()

    answers = say(engine, b"".join(transfer(i, b"message %d" % i) for i in range(50)))

    ((group_link, deliveries, payloads, kind),) = recorder.of("transfers")
    assert (link, PLAIN) == (group_link, kind)
    assert [b"message %d" % i for i in range(50)] == payloads
    assert 50 == len(deliveries)
    assert ["disposition"] == [answer.name for answer in answers]
    assert [True, 0, 49, True, accepted()] == answers[0].fields


def test_groups_part_at_links_batches_and_settled_transfers():
    """In the order of the wire."""
    engine, recorder = opened(attach_sender("a", 0), attach_sender("b", 1))
    first, second = recorder.links

    say(
        engine,
        transfer(0, b"0", handle=0)
        + transfer(1, b"1", handle=0)
        + transfer(2, b"2", handle=1)
        + transfer(3, b"3", handle=1, settled=True)
        + transfer(4, b"4", handle=1, message_format=BATCH_FORMAT)
        + transfer(5, b"5", handle=1, message_format=BATCH_FORMAT, settled=True)
        + transfer(6, b"6", handle=0),
    )

    settled, batch = TransferKind(True, False, None), TransferKind(False, True, None)
    assert [
        (first, [b"0", b"1"], PLAIN),
        (second, [b"2"], PLAIN),
        (second, [b"3"], settled),
        (second, [b"4"], batch),
        (second, [b"5"], TransferKind(True, True, None)),
        (first, [b"6"], PLAIN),
    ] == [(link, payloads, kind) for link, _, payloads, kind in recorder.of("transfers")]


def test_a_settled_transfer_gets_no_answer():
    engine, recorder, _ = sending()

    assert [] == say(engine, transfer(0, b"x", settled=True))
    assert [b"x"] == recorder.payloads()


def test_a_message_in_many_transfers_comes_whole_with_its_first_transfers_format():
    engine, recorder, _ = sending()

    say(engine, transfer(0, b"a" * 1000, more=True, message_format=BATCH_FORMAT))
    say(engine, transfer(None, b"", more=True))
    say(engine, transfer(None, b"b" * 1000, more=True))
    assert [] == recorder.payloads()
    answers = say(engine, transfer(None, b"c") + transfer(1, b"next"))

    assert [b"a" * 1000 + b"b" * 1000 + b"c", b"next"] == recorder.payloads()
    assert [True, False] == [kind.batch for *_, kind in recorder.of("transfers")]
    assert [True, 0, 1, True, accepted()] == answers[0].fields


def test_partial_messages_on_two_links_do_not_mix():
    engine, recorder = opened(attach_sender("a", 0), attach_sender("b", 1))

    say(engine, transfer(0, b"a1", handle=0, more=True) + transfer(1, b"b1", handle=1, more=True))
    say(engine, transfer(None, b"b2", handle=1) + transfer(None, b"a2", handle=0))

    assert [b"b1b2", b"a1a2"] == recorder.payloads()


@pytest.mark.parametrize("size", [0, 1, 65_000, 1_000_000, 3_000_000])
def test_a_message_of_any_size_arrives(size):
    client = ProtonClient()
    engine, recorder = served()
    link = client.sender("queue")
    pump(client, engine)

    payload = bytes(range(256)) * (size // 256 + 1)
    client.send(link, payload[:size])
    client.send(link, b"next")
    pump(client, engine)

    assert [payload[:size], b"next"] == recorder.payloads()
    assert [(0x24, True)] * 2 == [outcome[1:] for outcome in client.outcomes]
    client.free()
    engine.connection_lost()


def test_a_message_over_the_limit_is_dropped_as_it_comes_and_told():
    """Its bytes are not kept, and the messages around it are not touched."""
    engine, recorder, link = sending(max_message_size_bytes=1000)

    say(engine, transfer(0, b"x" * 1000))
    say(engine, transfer(1, b"y" * 900, more=True) + transfer(None, b"y" * 101, more=True))
    assert link.partial is not None
    assert [] == link.partial.chunks
    say(engine, transfer(None, b"y" * 5000, more=True))
    assert [] == link.partial.chunks
    say(engine, transfer(None, b"y") + transfer(2, b"z" * 1001, settled=True) + transfer(3, b"ok"))

    assert [b"x" * 1000, b"ok"] == recorder.payloads()
    assert [(6002, False), (1001, True)] == [call[2:] for call in recorder.of("oversize")]
    delivery = recorder.of("oversize")[0][1]
    engine.settle(link, [delivery], RELEASED)
    assert [[True, 1, None, True, described(0x26)]] == [
        f.fields for f in frames(engine.take_output())
    ]


def test_an_aborted_message_is_dropped_and_its_credit_comes_back():
    engine, recorder, link = sending(Recorder(credit=10))

    say(engine, transfer(0, b"half", more=True))
    answers = say(engine, transfer(None, b"", aborted=True) + transfer(1, b"whole"))

    assert [b"whole"] == recorder.payloads()
    assert [[True, 1, None, True, accepted()]] == [
        answer.fields for answer in answers if answer.name == "disposition"
    ]
    assert 9 == engine.credit(link)


def test_a_client_may_overrun_its_credit():
    """One SDK ignores credit; whether that is too much is for others to say."""
    engine, recorder, link = sending(Recorder(credit=1))

    say(engine, b"".join(transfer(i, b"x") for i in range(5)))

    assert 5 == len(recorder.payloads())
    assert -4 == engine.credit(link)


def test_credit_is_granted_on_attach_and_later():
    engine, recorder = opened()
    _, credit = say(engine, attach_sender())
    assert ("flow", 1000) == (credit.name, credit[6])

    say(engine, transfer(0, b"x"))
    engine.grant(recorder.links[0], 1)

    (more,) = frames(engine.take_output())
    assert [0, 1, 1000] == more.fields[4:7]


def test_each_outcome_can_answer_a_transfer():
    """Rejections carry condition, text and info; accepts in order leave as one range."""
    engine, recorder, link = sending(Recorder(accepts=False))
    say(engine, b"".join(transfer(i, b"x") for i in range(7)))
    deliveries = recorder.of("transfers")[0][1]
    info = {"com.microsoft:tracking-id": encode("id")}

    engine.settle(link, deliveries[0:3], ACCEPTED)
    engine.settle(link, deliveries[3:4], Rejected("amqp:not-allowed", "why", info))
    engine.settle(link, deliveries[4:5], Rejected())
    engine.settle(link, deliveries[5:6], Modified(True, True, {"key": encode(5)}))
    engine.settle(link, deliveries[6:7], None)

    answers = {answer[1]: answer.fields for answer in frames(engine.take_output())}
    wanted = rejected("amqp:not-allowed", "why", {"com.microsoft:tracking-id": "id"})
    assert {
        0: [True, 0, 2, True, accepted()],
        3: [True, 3, None, True, wanted],
        4: [True, 4, None, True, described(0x25)],
        5: [True, 5, None, True, described(0x27, True, True, {"key": 5})],
        6: [True, 6, None, True],
    } == answers


def test_a_delivery_is_settled_once():
    """A second answer does nothing, even where Proton has used the memory again since."""
    engine, recorder, link = sending(Recorder(accepts=False))
    say(engine, transfer(0, b"first"))
    (old,) = recorder.of("transfers")[0][1]
    engine.settle(link, [old], ACCEPTED)
    say(engine)
    say(engine, b"".join(transfer(i, b"later") for i in range(1, 20)))
    later = recorder.of("transfers")[1][1]
    assert old in later, "no memory was used again, so this shows nothing"

    engine.settle(link, [old, old], RELEASED)

    assert [] == frames(engine.take_output())
    engine.settle(link, later, ACCEPTED)
    assert [[True, 1, 19, True, accepted()]] == [f.fields for f in frames(engine.take_output())]


# --- messages out ---------------------------------------------------------------------------------


def test_messages_are_sent_with_their_tags_and_both_parts():
    engine, _, link = receiving()

    deliveries = engine.send(link, [b"A" * 16, b"B"], [b"head ", b""], [b"body", b"x"], False)

    first, second = frames(engine.take_output())
    assert ([0, 0, b"A" * 16, 0], b"head body") == (first.fields, first.payload)
    assert ([0, 1, b"B", 0], b"x") == (second.fields, second.payload)
    assert 2 == len(deliveries) == link.sent
    assert 98 == engine.credit(link)


def test_settled_messages_are_sent_settled_and_leave_nothing_to_settle():
    engine, recorder, link = receiving(snd_settle_mode=1, rcv_settle_mode=0)

    assert [] == engine.send(link, [b"A", b"B"], [b"1", b"2"], [b"", b""], True)

    assert [True, True] == [message[4] for message in frames(engine.take_output())]
    assert 2 == link.sent
    assert [] == say(engine, disposition(0, 1, state=accepted(), settled=True))
    assert [] == recorder.of("outcomes")


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
    assert {} == link.unsettled


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


def test_settling_without_a_state_is_told_as_no_outcome():
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
    assert {} == link.unsettled


def test_a_judgement_and_a_later_settling_are_both_told():
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


def test_a_coordinator_link_is_told_and_granted_as_one():
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
    _, in_transaction, outside = recorder.of("transfers")
    assert TransferKind(False, False, b"tx1") == in_transaction[3]
    assert [b"a", b"b"] == in_transaction[2]
    assert PLAIN == outside[3]
    engine.settle(incoming, in_transaction[1], Transactional(b"tx1", ACCEPTED))
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


# --- time -------------------------------------------------------------------------------------------


def test_a_silent_client_is_dropped_and_told_why():
    engine, recorder = opened(idle_timeout_ms=1000)
    assert 5000 == engine.tick(3000)
    assert 5000 == engine.tick(4999)

    engine.tick(5001)

    (close,) = frames(engine.take_output())
    assert "amqp:resource-limit-exceeded" == close[0].value[0]
    assert close[0].value[2]
    assert ["amqp:resource-limit-exceeded"] == [call[0] for call in recorder.of("transport error")]
    assert engine.finished


def test_an_idle_client_hears_from_us_within_half_its_timeout():
    engine, _ = served()
    say(engine, HEADER + frame("open", "c", "h", None, None, UInt(1000)) + begin_frame())
    engine.tick(10_000)

    assert b"" == engine.take_output()
    engine.tick(10_501)

    assert b"\x00\x00\x00\x08\x02\x00\x00\x00" == engine.take_output()
