"""Credit, drain and the session window on links on which the broker sends."""

from __future__ import annotations

import pytest

from tests.support.amqp_frames import (
    HEADER,
    Recorder,
    attach_receiver,
    begin_frame,
    detach,
    flow,
    frame,
    frames,
    open_frame,
    opened,
    say,
    served,
    transfer,
)


def receiving(*, handle: int = 0, count: int = 1):
    """A client with receiving links from `handle` on; the last one is returned."""
    engine, recorder = opened(
        *(attach_receiver(f"link {number}", handle + number) for number in range(count))
    )
    return engine, recorder, recorder.links[-1]


def send(engine, link, count: int) -> None:
    tags = [b"%016d" % (link.sent + number) for number in range(count)]
    engine.send(link, tags, [b"head"] * count, [b"body"] * count, False)


def test_credit_is_counted_from_what_has_been_sent():
    engine, recorder, link = receiving()
    say(engine, flow(5))
    assert 5 == engine.credit(link)

    send(engine, link, 3)
    assert 2 == engine.credit(link)
    engine.take_output()
    say(engine, flow(10, delivery_count=3))

    assert 10 == engine.credit(link)
    assert [(link,), (link,)] == recorder.of("flow")


def test_a_flow_that_crossed_our_messages_does_not_count_them_twice():
    """The client's delivery count is older than the broker's: its credit includes messages in
    flight."""
    engine, _, link = receiving()
    say(engine, flow(5))
    send(engine, link, 3)
    engine.take_output()

    say(engine, flow(5, delivery_count=1))

    assert 3 == engine.credit(link)


def test_a_client_may_take_credit_back():
    engine, _, link = receiving()
    say(engine, flow(5))

    say(engine, flow(0))

    assert 0 == engine.credit(link)


def test_sending_does_not_call_the_handler_back():
    """Only the client's flows do; else each write would ask for more to send."""
    engine, recorder, link = receiving()
    say(engine, flow(50))
    send(engine, link, 10)
    engine.take_output()

    assert 1 == len(recorder.of("flow"))


# --- drain ------------------------------------------------------------------------------------------


def test_a_drain_with_credit_left_gives_it_back():
    """AMQP 1.0 §2.6.7: the delivery count advances over the unused credit."""
    engine, _, link = receiving()
    say(engine, flow(5))
    send(engine, link, 2)
    engine.take_output()
    assert not engine.draining(link)
    assert [] == say(engine, flow(3, delivery_count=2, drain=True))
    assert engine.draining(link)

    engine.drained(link)

    (answer,) = frames(engine.take_output())
    assert [0, 5, 0, None, True] == answer.fields[4:]
    assert 0 == engine.credit(link)


def test_messages_sent_for_a_drain_come_before_its_answer():
    engine, _, link = receiving()
    say(engine, flow(5, drain=True))
    send(engine, link, 2)

    engine.drained(link)

    answers = frames(engine.take_output())
    assert ["transfer", "transfer", "flow"] == [answer.name for answer in answers]
    assert [0, 5, 0, None, True] == answers[-1].fields[4:]


def test_a_drain_without_credit_is_answered_too():
    """One SDK sends it on every close and waits for the answer."""
    engine, recorder, link = receiving()

    say(engine, flow(0, drain=True))
    assert [(link,)] == recorder.of("flow")
    engine.drained(link)

    (answer,) = frames(engine.take_output())
    assert ("flow", [0, 0, 0, None, True]) == (answer.name, answer.fields[4:])
    assert b"" == engine.take_output()


def test_a_drain_after_all_credit_was_used_has_the_true_delivery_count():
    engine, _, link = receiving()
    say(engine, flow(3))
    send(engine, link, 3)
    engine.take_output()

    say(engine, flow(0, delivery_count=3, drain=True))
    engine.drained(link)

    assert [0, 3, 0, None, True] == frames(engine.take_output())[0].fields[4:]


def test_credit_taken_back_by_a_drain_is_not_given_again():
    """The client has not yet seen three messages when it takes its credit back. The broker counted them a second time, so
    that a client which later gave credit for five messages got eight."""
    engine, _, link = receiving()
    say(engine, flow(5))
    send(engine, link, 3)
    engine.take_output()

    say(engine, flow(0, drain=True))
    engine.drained(link)

    (answer,) = frames(engine.take_output())
    assert [0, 3, 0, None, True] == answer.fields[4:]
    say(engine, flow(5, delivery_count=3))
    assert 5 == engine.credit(link)


def test_drains_can_follow_one_another():
    """With credit and without, the count stays true and credit works again afterwards."""
    engine, _, link = receiving()
    say(engine, flow(4, drain=True))
    engine.drained(link)
    assert 4 == frames(engine.take_output())[0][5]
    say(engine, flow(0, delivery_count=4, drain=True))
    engine.drained(link)
    assert 4 == frames(engine.take_output())[0][5]
    say(engine, flow(2, delivery_count=4))
    assert 2 == engine.credit(link)
    send(engine, link, 1)

    (message,) = frames(engine.take_output())
    assert ("transfer", 0) == (message.name, message[1])
    say(engine, flow(0, delivery_count=5, drain=True))
    engine.drained(link)
    assert [0, 5, 0, None, True] == frames(engine.take_output())[0].fields[4:]


def test_several_links_and_sessions_can_be_drained_at_once():
    """Each answer names its own link on its own channel."""
    engine, recorder = served()
    say(engine, HEADER + open_frame())
    for channel in (0, 3):
        say(engine, begin_frame(channel))
        for handle in (0, 1):
            say(engine, attach_receiver(f"{channel}.{handle}", handle, channel=channel))
    for channel in (0, 3):
        for handle in (0, 1):
            say(engine, flow(0, handle=handle, channel=channel, drain=True))

    for link in reversed(recorder.links):
        engine.drained(link)

    answers = frames(engine.take_output())
    assert [(1, 1), (1, 0), (0, 1), (0, 0)] == [(a.channel, a[4]) for a in answers]
    assert [[0, 0, None, True]] * 4 == [answer.fields[5:] for answer in answers]


def test_a_drain_answer_leaves_other_output_alone():
    engine, recorder, link = receiving(count=2)
    other = recorder.links[0]
    say(engine, flow(3, handle=0), flow(0, handle=1, drain=True))

    engine.drained(link)
    send(engine, other, 2)

    answers = frames(engine.take_output())
    assert ["transfer", "transfer", "flow"] == [answer.name for answer in answers]
    assert [b"headbody"] * 2 == [answer.payload for answer in answers[:2]]
    assert [1, 0, 0, None, True] == answers[2].fields[4:]


def test_a_link_that_does_not_drain_is_not_answered():
    engine, _, link = receiving()
    say(engine, flow(5))

    engine.drained(link)

    assert b"" == engine.take_output()
    assert 5 == engine.credit(link)


def test_a_drain_answer_for_a_link_that_left_meanwhile_is_dropped():
    engine, _, link = receiving()
    say(engine, flow(0, drain=True))
    engine.drained(link)
    engine.feed(detach())

    assert ["detach"] == [answer.name for answer in frames(engine.take_output())]


def test_handles_are_our_own_and_not_the_clients():
    """A drain answer names the link as our attach did."""
    engine, _, link = receiving(handle=70)

    say(engine, flow(0, handle=70, drain=True))
    engine.drained(link)

    assert 0 == frames(engine.take_output())[0][4]


# --- the session window --------------------------------------------------------------------------


def windowed(incoming_window: int):
    """A client whose session takes only so many transfers."""
    engine, recorder = served(Recorder())
    say(engine, HEADER + open_frame() + begin_frame(incoming_window=incoming_window))
    say(engine, attach_receiver(), flow(100, incoming_window=incoming_window))
    return engine, recorder, recorder.links[0]


def test_deliveries_behind_a_full_window_are_counted_and_reported_when_sent():
    engine, recorder, link = windowed(2)
    send(engine, link, 5)
    assert 2 == len(frames(engine.take_output()))
    assert 3 == engine.queued(link)
    flows = len(recorder.of("flow"))

    messages = say(engine, flow(incoming_window=2, next_incoming_id=2))
    assert (2, 1) == (len(messages), engine.queued(link))
    assert flows == len(recorder.of("flow"))
    messages = say(engine, flow(incoming_window=2, next_incoming_id=4))

    assert (1, 0) == (len(messages), engine.queued(link))
    assert flows + 1 == len(recorder.of("flow"))


def test_a_drain_waits_for_what_a_shut_window_holds_back():
    engine, _, link = windowed(2)
    say(engine, flow(3, incoming_window=2, drain=True))
    send(engine, link, 3)
    engine.drained(link)
    assert ["transfer"] * 2 == [answer.name for answer in frames(engine.take_output())]

    answers = say(
        engine, flow(1, delivery_count=2, incoming_window=9, next_incoming_id=2, drain=True)
    )

    assert ["transfer", "flow"] == [answer.name for answer in answers]
    assert [0, 3, 0, None, True] == answers[-1].fields[4:]


def test_a_drain_is_answered_when_a_flow_of_the_session_opens_the_window():
    """The broker answered only after another flow of the link, for which a client that drains does not wait."""
    engine, _, link = windowed(2)
    say(engine, flow(5, incoming_window=2, drain=True))
    send(engine, link, 3)
    engine.drained(link)
    assert ["transfer"] * 2 == [answer.name for answer in frames(engine.take_output())]

    answers = say(engine, flow(incoming_window=9, next_incoming_id=2))

    assert ["transfer", "flow"] == [answer.name for answer in answers]
    assert [0, 5, 0, None, True] == answers[-1].fields[4:]
    assert 0 == engine.credit(link)


def test_a_drain_takes_back_the_credit_of_messages_behind_a_full_window():
    """It is answered at once, because these messages cannot be sent. The link never continued: later flows waited for the
    answer to the drain, which waited for the messages, which waited for credit."""
    engine, recorder, link = windowed(2)
    send(engine, link, 5)
    assert 2 == len(frames(engine.take_output()))

    say(engine, flow(0, delivery_count=2, incoming_window=9, next_incoming_id=2, drain=True))
    assert 0 == engine.queued(link)
    engine.drained(link)

    (answer,) = frames(engine.take_output())
    assert [0, 2, 0, None, True] == answer.fields[4:]
    credit = flow(2, delivery_count=2, incoming_window=9, next_incoming_id=2)
    assert ["transfer"] * 2 == [answer.name for answer in say(engine, credit)]
    assert (link,) == recorder.of("flow")[-1]


def test_an_echo_counts_only_messages_that_are_sent():
    engine, _, link = windowed(2)
    send(engine, link, 5)
    engine.take_output()

    (answer,) = say(
        engine, flow(8, delivery_count=2, incoming_window=0, next_incoming_id=2, echo=True)
    )

    assert [0, 2, 8, None, False] == answer.fields[4:]


@pytest.mark.parametrize(
    "end",
    [detach(0), frame("end"), transfer(0, b"", handle=9)],
    ids=["detach", "end", "violation in the session"],
)
def test_messages_that_a_flow_releases_before_the_end_are_not_settled(end):
    """The client took the messages for settled if it opened the window and ended the link in one read."""
    engine, _, link = windowed(0)
    send(engine, link, 2)
    assert [] == frames(engine.take_output())

    answers = say(engine, flow(incoming_window=2, next_incoming_id=0) + end)

    assert ["transfer", "transfer"] == [answer.name for answer in answers[:2]]
    assert [False, False] == [answer[4] for answer in answers[:2]]
    assert answers[2].name in ("detach", "end")


def test_a_flow_after_the_detach_releases_no_message():
    engine, _, link = windowed(0)
    send(engine, link, 3)

    answers = say(engine, detach(0) + flow(incoming_window=2, next_incoming_id=0))

    assert ["detach"] == [answer.name for answer in answers]
