"""Links in the engine: granting, refusing, ending them, from either side and in any order."""

from __future__ import annotations

import pytest

from protocol.amqp.engine.attach import FilterValue
from protocol.amqp.engine.engine import ACCEPTED, WireError
from protocol.codec import Described, Long, Symbol, UInt, ULong, encode
from tests.support.amqp_frames import (
    Recorder,
    accepted,
    attach_receiver,
    attach_sender,
    begin_frame,
    described,
    detach,
    disposition,
    flow,
    frame,
    frames,
    opened,
    rejected,
    say,
    source,
    target,
    transfer,
)

ERROR = WireError("amqp:not-found", "no such queue", {"com.microsoft:tracking-id": "id"})
WIRE_ERROR = described(0x1D, "amqp:not-found", "no such queue", {"com.microsoft:tracking-id": "id"})


def withholding() -> Recorder:
    return Recorder(grants=False)


# --- attach ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snd_settle_mode", [None, 0, 1, 2])
@pytest.mark.parametrize("rcv_settle_mode", [None, 0, 1])
def test_a_granted_receiver_gets_back_what_it_asked_for(snd_settle_mode, rcv_settle_mode):
    """Addresses and settle modes unchanged, and an initial delivery count: SDKs insist on them."""
    engine, recorder = opened()

    (attach,) = say(
        engine,
        attach_receiver(
            "name;with:signs",
            5,
            "amqps://localhost:5672/queue",
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
        ),
    )

    assert ("attach", "name;with:signs", False) == (attach.name, attach[0], attach[2])
    snd, rcv = 2 if snd_settle_mode is None else snd_settle_mode, rcv_settle_mode or 0
    assert [snd, rcv] == attach.fields[3:5]
    assert "amqps://localhost:5672/queue" == attach[5].value[0]
    assert "client-target" == attach[6].value[0]
    assert 0 == attach[9]
    told = recorder.attaches[0]
    assert snd == told.snd_settle_mode
    assert ("amqps://localhost:5672/queue", "client-target") == (
        told.source_address,
        told.target_address,
    )
    assert not told.is_receiver


def test_a_granted_sender_gets_a_size_limit_properties_and_credit():
    engine, recorder = opened(handler=withholding())
    say(engine, attach_sender(address="/queue%20one", snd_settle_mode=2))

    engine.attach(
        recorder.links[0],
        max_message_size_bytes=262_144,
        properties={"com.microsoft:max-message-batch-size": encode(ULong(1 << 20))},
        credit=500,
    )

    attach, credit = frames(engine.take_output())
    assert (True, 262_144) == (attach[2], attach[10])
    assert {"com.microsoft:max-message-batch-size": 1 << 20} == attach[13]
    assert ("client-source", "/queue%20one") == (attach[5].value[0], attach[6].value[0])
    assert ("flow", 500) == (credit.name, credit[6])


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, FilterValue(None, None)),
        ("one", FilterValue(None, "one")),
        ("", FilterValue(None, "")),
        (Described(ULong(0x137000000C), None), FilterValue(0x137000000C, None)),
        (Described(ULong(0x137000000C), "one"), FilterValue(0x137000000C, "one")),
        (Described(Symbol("some:filter"), "one"), FilterValue("some:filter", "one")),
    ],
)
def test_a_session_filter_is_read_and_answered_in_either_shape(value, told):
    engine, recorder = opened(handler=withholding())
    key = Symbol("com.microsoft:session-filter")
    say(engine, attach_receiver(filters={key: value}, properties={Symbol("a"): UInt(7)}))
    assert {"com.microsoft:session-filter": told} == recorder.attaches[0].filter
    assert {"a": 7} == recorder.attaches[0].properties

    engine.attach(
        recorder.links[0],
        filter=encode({key: value}),
        properties={"com.microsoft:locked-until-utc": encode(Long(640290528000000000))},
    )

    (attach,) = frames(engine.take_output())
    assert {key: value} == attach[5].value[7]
    assert {"com.microsoft:locked-until-utc": 640290528000000000} == attach[13]
    assert "Long" == type(attach[13]["com.microsoft:locked-until-utc"]).__name__


@pytest.mark.parametrize("size", [1, 5_000])
def test_each_link_has_its_own_filter_and_properties(size):
    """Short ones are decoded once for all links that have them."""
    engine, recorder = opened()
    key = Symbol("x:filter")
    for handle, number in enumerate([1, 2, 1]):
        value = str(number) * size
        properties = {Symbol("a"): value}
        say(
            engine,
            attach_receiver(str(handle), handle, filters={key: value}, properties=properties),
        )
        assert {"x:filter": FilterValue(None, value)} == recorder.attaches[-1].filter
        assert {"a": value} == recorder.attaches[-1].properties


def test_filters_that_are_not_in_force_are_not_echoed():
    engine, _ = opened()

    (attach,) = say(engine, attach_receiver(filters={Symbol("x:selector"): "a > 1"}))

    assert not (attach[5].value[7:] or [None])[0]


def test_an_end_the_client_left_out_is_not_null_in_the_reply():
    """A null end means refusal to some SDKs."""
    engine, _ = opened()

    (sender, _) = say(engine, frame("attach", "s", UInt(0), False, None, None, None, target("q")))
    (receiver,) = say(engine, frame("attach", "r", UInt(1), True, None, None, source("q"), None))

    assert 0x28 == sender[5].descriptor
    assert 0x29 == receiver[6].descriptor


def test_a_dynamic_source_gets_the_address_we_give_it():
    engine, recorder = opened(handler=withholding())
    dynamic = described(0x28, None, None, None, None, True)
    say(engine, frame("attach", "r", UInt(0), True, None, None, dynamic, target(None)))
    assert recorder.attaches[0].dynamic

    engine.attach(recorder.links[0], dynamic_address="temporary-1")

    assert "temporary-1" == frames(engine.take_output())[0][5].value[0]


def test_an_attach_may_be_answered_much_later():
    """As when a receiver waits for a session; credit that came meanwhile counts."""
    engine, recorder = opened(handler=withholding())
    assert [] == say(engine, attach_receiver(), flow(10))
    assert [] == recorder.of("flow")

    engine.attach(recorder.links[0])

    assert ["attach"] == [answer.name for answer in frames(engine.take_output())]
    assert 10 == engine.credit(recorder.links[0])


def test_an_attach_is_answered_once():
    engine, recorder = opened()
    say(engine, attach_receiver())

    engine.attach(recorder.links[0])
    engine.refuse(recorder.links[0], ERROR)

    assert [] == frames(engine.take_output())


def test_the_same_name_may_attach_in_both_directions():
    """The Java SDK gives both links of a request-response pair the same name."""
    engine, recorder = opened()

    answers = say(engine, attach_sender("pair", 0) + attach_receiver("pair", 1))

    assert [True, False] == [link.is_receiver for link in recorder.links]
    assert ["attach", "flow", "attach"] == [answer.name for answer in answers]


# --- refuse ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attaching",
    [
        attach_receiver(),
        attach_sender(),
        frame("attach", "t", UInt(0), False, None, None, source("s"), described(0x30)),
    ],
    ids=["receiver", "sender", "coordinator"],
)
def test_a_refused_link_gets_null_ends_then_the_error(attaching):
    """SDKs take the error of the detach for the reason only if the attach had no ends: some look
    at the end they asked for, go-amqp at both."""
    engine, recorder = opened(handler=withholding())
    say(engine, attaching)

    engine.refuse(recorder.links[0], ERROR)

    attach, ending = frames(engine.take_output())
    assert (None, None) == (attach[5], attach[6])
    assert ("detach", [0, True, WIRE_ERROR]) == (ending.name, ending.fields)


def test_what_a_client_sends_on_a_refused_link_is_dropped():
    """The client has not seen the refusal yet. The handler is not called, and its detach frees the
    link."""
    engine, recorder = opened(handler=withholding())
    say(engine, attach_sender())
    engine.refuse(recorder.links[0], ERROR)
    engine.take_output()

    say(engine, transfer(0, b"x") + transfer(1, b"half", more=True) + transfer(None, b"rest"))
    assert ["open", "attach"] == recorder.names()

    assert [] == say(engine, detach())
    assert ["open", "attach", "gone"] == recorder.names()
    assert not engine.finished
    recorder.grants = True
    (again, _) = say(engine, attach_sender(handle=0))
    assert "attach" == again.name


# --- detach -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [True, False])
def test_a_clients_detach_is_answered_in_kind_and_reported_once(closed):
    engine, recorder = opened(attach_sender())

    (answer,) = say(engine, detach(closed=closed))

    assert ("detach", 0) == (answer.name, answer[0])
    assert closed == bool(answer[1])
    assert [(recorder.links[0], closed)] == recorder.of("detach")
    assert recorder.links[0].closed


def test_a_handle_can_be_used_again_after_a_detach():
    engine, recorder = opened(attach_sender("one"))
    say(engine, detach())

    say(engine, attach_sender("two"))
    say(engine, transfer(0, b"to two"))

    one, two = recorder.links
    assert (True, False) == (one.closed, two.closed)
    assert [two] == [call[0] for call in recorder.of("transfers")]


def test_a_client_may_detach_before_its_attach_is_answered():
    """The attach is answered as refused, then the detach is answered."""
    engine, recorder = opened(handler=withholding())
    say(engine, attach_receiver())

    attach, ending = say(engine, detach())

    assert ("attach", None) == (attach.name, attach[5])
    assert ("detach", [0, True]) == (ending.name, ending.fields)
    assert [(recorder.links[0], True)] == recorder.of("detach")
    engine.attach(recorder.links[0])
    engine.refuse(recorder.links[0], ERROR)
    assert [] == frames(engine.take_output())


def test_we_can_end_a_link_with_an_error():
    engine, recorder = opened(attach_sender())

    engine.detach(recorder.links[0], ERROR)

    (ending,) = frames(engine.take_output())
    assert [0, True, WIRE_ERROR] == ending.fields
    assert [] == say(engine, detach())
    assert [] == recorder.of("detach")


def test_we_can_end_a_link_that_was_never_answered():
    engine, recorder = opened(handler=withholding())
    say(engine, attach_receiver())

    engine.detach(recorder.links[0], ERROR)

    attach, ending = frames(engine.take_output())
    assert (None, WIRE_ERROR) == (attach[5], ending[2])


def test_detaches_may_cross():
    """Both sides detach at once: each detach counts as the answer to the other's, and no second one
    is sent."""
    engine, recorder = opened(attach_receiver())
    engine.detach(recorder.links[0], ERROR)

    assert ["detach"] == [answer.name for answer in say(engine, detach())]
    assert [] == say(engine, attach_receiver("again"))[1:]


def test_late_answers_on_a_link_that_is_gone_do_nothing():
    """The core may answer after the client has left."""
    engine, recorder = opened(
        attach_sender("to", 0), attach_receiver("from", 1), flow(5, handle=1),
        handler=Recorder(accepts=False),
    )  # fmt: skip
    incoming, outgoing = recorder.links
    say(engine, transfer(0, b"x"))
    received = recorder.of("transfers")[0][1]
    sent = engine.send(outgoing, [b"t"], [b"h"], [b"b"], False)
    engine.take_output()
    say(engine, detach(0), detach(1))

    engine.settle(incoming, received, ACCEPTED)
    engine.settle(outgoing, sent, ACCEPTED)
    engine.settle_refused(incoming, received, ERROR)
    engine.grant(incoming, 5)
    engine.drained(outgoing)
    engine.detach(outgoing, ERROR)
    assert [] == engine.send(outgoing, [b"t"], [b"h"], [b"b"], False)
    assert (0, 0, False) == (
        engine.credit(outgoing),
        engine.queued(outgoing),
        engine.draining(outgoing),
    )
    assert [] == frames(engine.take_output())


@pytest.mark.parametrize("ending", [detach(0) + detach(1), frame("end")], ids=["detach", "end"])
def test_open_deliveries_of_a_freed_link_are_not_settled_on_the_wire(ending):
    """A settlement without an outcome would mean that the broker has processed the messages."""
    engine, recorder = opened(
        attach_sender("to", 0),
        attach_receiver("from", 1),
        flow(5, handle=1),
        handler=Recorder(accepts=False),
    )
    say(engine, transfer(0, b"x") + transfer(1, b"y") + transfer(2, b"half", more=True))
    engine.send(recorder.links[1], [b"1", b"2"], [b"h"] * 2, [b"b"] * 2, False)
    engine.take_output()

    answers = say(engine, ending)
    later = say(engine, begin_frame(1) + frame("close"))

    assert {"detach", "end"} >= {answer.name for answer in answers}
    assert ["begin", "close"] == [answer.name for answer in later]


def test_outcomes_for_deliveries_of_a_detached_link_are_ignored():
    engine, recorder = opened(attach_receiver(), flow(5))
    engine.send(recorder.links[0], [b"t"], [b"h"], [b"b"], False)
    engine.take_output()
    say(engine, detach())

    assert [] == say(engine, disposition(0, state=accepted(), settled=True))
    assert [] == recorder.of("outcomes")
    assert not engine.finished


def test_rejections_of_different_links_keep_their_errors_apart():
    engine, recorder = opened(
        attach_sender("a", 0), attach_sender("b", 1), handler=Recorder(accepts=False)
    )
    say(engine, transfer(0, b"x", handle=0) + transfer(1, b"y", handle=1))
    (first, one, *_), (second, two, *_) = recorder.of("transfers")

    engine.settle_refused(first, one, WireError("amqp:a", "A", {"k": "1"}))
    engine.settle_refused(second, two, WireError("amqp:b", "B", {"k": "2"}))

    assert [rejected("amqp:a", "A", {"k": "1"}), rejected("amqp:b", "B", {"k": "2"})] == [
        answer[4] for answer in frames(engine.take_output())
    ]
