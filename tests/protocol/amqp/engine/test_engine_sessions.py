"""Mistakes that end a session or a link and leave the connection, and flows that want an answer."""

from __future__ import annotations

from typing import Any

import pytest
from cproton_ffi import lib

from protocol.codec import Symbol, UByte, UInt, UShort
from tests.support.amqp_frames import (
    HEADER,
    Recorder,
    accepted,
    attach_receiver,
    attach_sender,
    begin_frame,
    detach,
    disposition,
    flow,
    frame,
    open_frame,
    opened,
    say,
    served,
    transfer,
)

HUGE = (1 << 32) - 1


class Answering(Recorder):
    """A handler that sends messages while there is credit, and returns the remaining credit when
    the client drains."""

    waiting = 0

    def on_flow(self, link: Any) -> None:
        super().on_flow(link)
        count = max(0, min(self.waiting, self.engine.credit(link)))
        self.waiting -= count
        tags = [b"%d" % number for number in range(count)]
        self.engine.send(link, tags, [b"h"] * count, [b"b"] * count, False)
        self.engine.drained(link)


# --- sessions that end --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mistake",
    [transfer(0, b"x", handle=9), flow(1, handle=9), transfer(0, b"x" * 70, handle=9, more=True)],
)
def test_a_frame_on_an_unknown_handle_ends_its_session_alone(mistake):
    engine, recorder = opened(
        attach_sender("to", 0), begin_frame(1), attach_sender("other", 0, channel=1)
    )

    (end,) = say(engine, mistake + transfer(0, b"too late") + flow(1, handle=8) + detach(3))

    assert ("end", "amqp:session:unattached-handle") == (end.name, end[0].value[0])
    assert end[0].value[2]
    assert [recorder.links[:1]] == [call[0] for call in recorder.of("session end")]
    assert [("amqp:session:unattached-handle", end[0].value[1])] == recorder.of("session error")
    assert recorder.links[0].closed
    assert [] == say(engine, frame("end"))
    say(engine, transfer(0, b"still there", channel=1))
    answers = say(engine, begin_frame(), attach_sender("again", 0), transfer(0, b"anew"))
    assert [b"still there", b"anew"] == recorder.payloads()
    assert ["begin", "attach", "flow", "disposition"] == [each.name for each in answers]
    assert 1 == len(recorder.of("session end"))
    engine.connection_lost()


def test_a_handle_in_use_ends_the_session():
    engine, recorder = opened(attach_sender("first", 0))

    (end,) = say(engine, attach_sender("second", 0))

    assert ("end", "amqp:session:handle-in-use") == (end.name, end[0].value[0])
    assert 1 == len(recorder.links)
    assert not engine.finished


def test_a_detach_of_an_unknown_handle_or_session_is_not_looked_at():
    engine, recorder = opened(attach_sender("to", 0))

    assert [] == say(engine, detach(9), detach(0, channel=9), frame("end", channel=9))
    say(engine, transfer(0, b"x"))

    assert [b"x"] == recorder.payloads()


def test_a_session_ended_in_the_read_that_began_it_is_answered():
    """The begin had no remote channel, so clients took it for a session that the broker begins."""
    engine, _ = opened()

    begin, end = say(engine, begin_frame(4) + frame("end", channel=4))

    assert ("begin", 4, "end") == (begin.name, begin[0], end.name)
    assert begin.channel == end.channel


def test_the_only_channel_of_a_client_is_used_again_in_one_read():
    """The connection did not continue: Proton had no channel for the second session."""
    engine, _ = served()
    say(engine, HEADER + frame("open", "client", "localhost", UInt(65_536), UShort(0)))

    answers = say(engine, begin_frame() + frame("end") + begin_frame() + attach_sender())

    assert ["begin", "end", "begin", "attach", "flow"] == [each.name for each in answers]


def test_a_channel_that_is_used_again_in_one_read_has_delivery_ids_of_its_own():
    """Outcomes in the second session had Proton's ids instead of the client's."""
    engine, _ = opened()

    say(engine, begin_frame(4) + frame("end", channel=4) + begin_frame(4))
    say(engine, attach_sender(channel=4))
    answers = say(engine, transfer(9, b"x", channel=4), transfer(3, b"x", channel=4))

    assert [9, 3] == [each[1] for each in answers if each.name == "disposition"]


def test_a_session_ended_in_the_read_that_began_it_goes_without_a_trace():
    engine, recorder = opened()

    say(engine, begin_frame(4) + attach_sender("a", 0, channel=4) + flow(1, handle=9, channel=4))
    say(engine, frame("end", channel=4))
    say(engine, begin_frame(4) + attach_sender("a", 0, channel=4), transfer(0, b"x", channel=4))

    assert [b"x"] == recorder.payloads()
    assert {0, 4} == set(engine._sessions.by_channel)
    assert not engine._sessions.discarding


# --- links that lose their name -----------------------------------------------------------------


@pytest.mark.parametrize("attach", [attach_sender, attach_receiver])
def test_a_second_link_of_a_name_takes_it_over(attach):
    engine, recorder = opened(attach("same", 0))

    answers = say(engine, attach("same", 1))

    stolen, attached = answers[:2]
    assert ("detach", 0, True) == (stolen.name, *stolen.fields[:2])
    assert "amqp:link:stolen" == stolen[2].value[0]
    assert ("attach", "same") == (attached.name, attached[0])
    older, newer = recorder.links
    assert older.closed
    assert not newer.closed
    assert [(older, True)] == recorder.of("detach")
    # The client answers, perhaps after it has said more on the link that is gone.
    assert [] == say(engine, flow(5, handle=0), transfer(0, b"lost", handle=0), detach(0))
    say(engine, attach_sender("other", 0), transfer(0, b"x"))
    assert [b"x"] == recorder.payloads()
    assert [] == recorder.of("transport error")


def test_a_sender_and_a_receiver_may_share_a_name():
    _, recorder = opened(attach_sender("same", 0), attach_receiver("same", 1))

    assert [False, False] == [link.closed for link in recorder.links]


def test_a_name_may_be_used_again_after_a_detach():
    engine, recorder = opened(attach_sender("same", 0))

    say(engine, detach(0) + attach_sender("same", 0) + transfer(0, b"x"))

    assert [b"x"] == recorder.payloads()
    assert 2 == len(recorder.links)


# --- settle modes -------------------------------------------------------------------------------


SENDS_SECOND = frame("attach", "to", UInt(0), False, UByte(0), UByte(1), *[None] * 4, UInt(0))


def test_an_azure_sdk_that_requests_mode_second_gets_first():
    """The service does the same, and the Python SDK waits for the broker to settle in either
    mode."""
    engine, _ = served()
    product: dict[Any, object] = {Symbol("product"): "azsdk-python-servicebus"}
    say(engine, HEADER + open_frame(properties=product) + begin_frame())

    answer = say(engine, SENDS_SECOND)[0]
    (outcome,) = say(engine, transfer(0, b"x"))

    assert ("attach", 0) == (answer.name, answer[4] or 0)
    assert (0, True) == (outcome[1], outcome[3])


def test_a_sender_in_mode_second_settles_before_we_do():
    """AMQP 1.0 §2.6.12. go-amqp fails if the mode is not granted."""
    engine, recorder = opened()

    answer = say(engine, SENDS_SECOND)[0]
    assert ("attach", 1) == (answer.name, answer[4])
    (outcome,) = say(engine, *[transfer(number, b"x") for number in range(3)])
    link = recorder.links[0]
    assert ("disposition", 0, 2, False) == (
        outcome.name,
        outcome[1],
        outcome[2],
        outcome[3] or False,
    )
    assert 3 == lib.pn_link_unsettled(link.pointer)
    confirming = disposition(0, 1, settled=True, state=accepted(), receiver=False)
    (outcome,) = say(engine, confirming + transfer(3, b"y"))
    assert (3, False) == (outcome[1], outcome[3] or False)
    assert 2 == lib.pn_link_unsettled(link.pointer)
    assert [b"x"] * 3 + [b"y"] == recorder.payloads()


def test_what_a_sender_in_mode_second_settled_itself_is_settled():
    engine, recorder = opened(SENDS_SECOND)
    assert [] == say(engine, transfer(0, b"x", settled=True))
    assert 0 == lib.pn_link_unsettled(recorder.links[0].pointer)


def test_a_sender_that_never_settles_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr("protocol.amqp.engine.interface.UNCONFIRMED_MAX", 2)
    engine, recorder = opened(SENDS_SECOND)
    answers = say(engine, *[transfer(number, b"x") for number in range(5)])
    link = recorder.links[0]
    settled = {(each[1], each[2] or each[1], each[3] or False) for each in answers}
    assert {(0, 1, False), (2, 4, True)} == settled
    assert 2 == lib.pn_link_unsettled(link.pointer)


def test_a_receiver_that_asks_for_mode_second_gets_it():
    engine, _ = opened()

    answer = say(engine, attach_receiver(rcv_settle_mode=1))[0]

    assert ("attach", 1) == (answer.name, answer[4])


# --- credit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [1 << 31, (1 << 31) + 5, HUGE])
@pytest.mark.parametrize("drain", [None, True])
def test_credit_beyond_what_proton_counts_is_credit(credit, drain):
    handler = Answering()
    handler.waiting = 3
    engine, _ = opened(attach_receiver(), handler=handler)

    answers = say(engine, flow(credit, drain=drain))

    transfers = [each for each in answers if each.name == "transfer"]
    assert 3 == len(transfers)
    if drain:
        assert ("flow", 0, True) == (answers[-1].name, answers[-1][6], answers[-1][8])
    else:
        handler.waiting = 2
        more = say(engine, flow(credit, delivery_count=3, next_incoming_id=3))
        assert 2 == len([each for each in more if each.name == "transfer"])


# --- echo and drain -----------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [0, 5])
def test_a_flow_with_echo_is_answered_on_a_link_we_send_on(credit):
    engine, recorder = opened(attach_sender("to", 0), attach_receiver("from", 1))
    say(engine, flow(7, handle=1))
    engine.send(recorder.links[1], [b"a", b"b"], [b"h"] * 2, [b"b"] * 2, False)
    engine.take_output()

    answers = say(engine, flow(credit, handle=1, delivery_count=2, next_incoming_id=2, echo=True))

    own = [each for each in answers if each[4] == recorder.links[1].handle]
    assert [[recorder.links[1].handle, 2, credit]] == [each.fields[4:7] for each in own]


def test_a_flow_with_echo_is_answered_on_a_link_we_receive_on():
    engine, recorder = opened(attach_sender("to", 0))
    say(engine, transfer(0, b"x"), transfer(1, b"half", more=True))

    answers = say(engine, flow(0, delivery_count=2, echo=True))

    assert [0, 2, 998] == answers[-1].fields[4:7]
    assert [] == recorder.of("transport error")


def test_a_flow_of_the_session_with_echo_is_answered():
    engine, _ = opened()

    assert ["flow"] == [each.name for each in say(engine, flow(echo=True))]
    assert [] == say(engine, flow())


def test_an_echo_for_a_link_that_is_not_granted_yet_is_answered_for_the_session():
    engine, _ = opened(attach_receiver(), handler=Recorder(grants=False))

    assert [["flow", 4]] == [[f.name, len(f.fields)] for f in say(engine, flow(1, echo=True))]


@pytest.mark.parametrize("waiting", [0, 2, 10])
@pytest.mark.parametrize("credit", [0, 5])
@pytest.mark.parametrize("later", [5, 8])
def test_a_drain_is_answered_though_a_later_flow_comes_in_the_same_read(waiting, credit, later):
    """As the .NET client does when it closes a receiver that prefetches: it waits a minute for the
    answer otherwise. The later flow then counts from what the drain has left."""
    handler = Answering()
    handler.waiting = waiting
    engine, _ = opened(attach_sender("to", 1), attach_receiver("from", 0), handler=handler)

    answers = say(engine, flow(credit, drain=True) + flow(later))

    names = [each.name for each in answers]
    sent = min(waiting, credit)
    answer = names.index("flow")
    assert ["transfer"] * sent == names[:answer]
    drained = next(each for each in answers if each.name == "flow" and each[8])
    assert [credit, 0, None, True] == drained.fields[5:9]
    after = names[answer + 1 :].count("transfer")
    assert min(waiting - sent, later - credit) == after


def test_every_drain_is_answered_and_the_newest_flow_counts():
    """Also when the drain can only be answered later."""
    engine, recorder = opened(attach_receiver())
    link = recorder.links[0]
    flows = [flow(5, drain=True), flow(7), flow(8), flow(9, drain=True), flow(12), flow(20)]

    assert [] == say(engine, b"".join(flows))
    assert 5 == engine.credit(link)
    engine.drained(link)
    (first,) = say(engine)
    engine.drained(link)
    (second,) = say(engine)

    assert [[5, 0], [9, 0]] == [each.fields[5:7] for each in (first, second)]
    assert 11 == engine.credit(link)
    assert not engine.draining(link)


def test_a_drain_waits_for_the_sessions_window_and_later_flows_open_it():
    """What a flow says of the session counts at once, even while what it says of the link waits."""
    handler = Answering()
    handler.waiting = 2
    engine, recorder = opened(attach_receiver(), handler=handler)
    (link,) = recorder.links

    first = say(engine, flow(2, drain=True, incoming_window=1))
    assert ["transfer"] == [each.name for each in first]
    second = say(engine, flow(9, incoming_window=10, next_incoming_id=1))

    assert ["transfer", "flow"] == [each.name for each in second]
    assert True is second[1][8]
    assert 7 == engine.credit(link)


def test_outcomes_count_while_flows_wait_for_a_drain():
    engine, recorder = opened(attach_receiver(), flow(2))
    (link,) = recorder.links
    engine.send(link, [b"t"], [b"h"], [b"b"], False)
    engine.take_output()

    say(engine, flow(1, delivery_count=1, drain=True), disposition(0, state=accepted()), flow(5))

    assert 1 == len(recorder.of("outcomes"))


# --- limits of the client ---------------------------------------------------------------------------


def test_more_links_than_the_client_takes_end_the_session():
    """The connection did not continue: Proton had no handle for the second link, and wrote nothing more."""
    engine, _ = served()
    begin = frame("begin", None, UInt(0), UInt(100), UInt(100), UInt(0))
    say(engine, HEADER + open_frame() + begin + begin_frame(1))

    answers = say(engine, attach_sender("a", 0) + detach(0) + attach_sender("b", 5))
    assert ["attach", "flow", "detach", "attach", "flow"] == [each.name for each in answers]
    (end,) = say(engine, attach_sender("c", 1))

    assert ("end", "amqp:resource-limit-exceeded") == (end.name, end[0].value[0])
    other = say(engine, attach_sender("d", 0, channel=1))
    assert ["attach", "flow"] == [each.name for each in other]


def test_a_session_before_the_open_is_refused():
    """The client waited: neither the session nor its links were ever answered."""
    engine, recorder = served()

    say(engine, HEADER + begin_frame() + attach_sender() + open_frame())

    assert engine.finished
    assert [("amqp:not-allowed", "A session was begun before the open.")] == recorder.of(
        "transport error"
    )
    assert [] == recorder.of("attach")
