"""Sessions and the connection in the engine: how they end, and what goes with them."""

from __future__ import annotations

import pytest

from protocol.amqp.engine.engine import WireError
from tests.support.amqp_frames import (
    HEADER,
    Recorder,
    attach_receiver,
    attach_sender,
    begin_frame,
    described,
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

ERROR = WireError("amqp:not-found", "no such queue", {"com.microsoft:tracking-id": "id"})
WIRE_ERROR = described(0x1D, "amqp:not-found", "no such queue", {"com.microsoft:tracking-id": "id"})


def test_the_links_of_a_session_end_with_it():
    """Only its own links, and only those that have not ended before."""
    engine, recorder = opened(
        attach_sender("a", 0), attach_receiver("b", 1), attach_sender("refused", 2)
    )
    say(engine, begin_frame(1), attach_sender("other", 0, channel=1))
    first, second, ended, other = recorder.links
    engine.detach(ended, ERROR)

    answers = say(engine, frame("end"))

    assert ["detach", "end"] == [answer.name for answer in answers]
    assert [([first, second],)] == recorder.of("session end")
    assert [True, True, True, False] == [link.closed for link in recorder.links]
    assert first.session is second.session
    assert first.session is not other.session
    say(engine, transfer(0, b"x", channel=1))
    assert [b"x"] == recorder.payloads()


def test_a_channel_can_be_used_again_after_its_session_ended():
    engine, recorder = opened(attach_sender("a"))
    say(engine, frame("end"))

    answers = say(engine, begin_frame(), attach_sender("b"))

    assert ["begin", "attach", "flow"] == [answer.name for answer in answers]
    say(engine, transfer(0, b"x"))
    assert [recorder.links[1]] == [call[0] for call in recorder.of("transfers")]


def test_a_client_may_number_channels_and_handles_as_it_likes():
    engine, recorder = opened()

    say(engine, begin_frame(8000), attach_sender("a", 2_000_000_000, channel=8000))
    say(engine, transfer(0, b"x", handle=2_000_000_000, channel=8000))

    assert [b"x"] == recorder.payloads()


def test_a_close_is_answered_and_everything_is_over():
    engine, recorder = opened(attach_sender())

    (close,) = say(engine, frame("close"))

    assert ("close", []) == (close.name, close.fields)
    assert [()] == recorder.of("close")
    assert engine.finished
    assert recorder.links[0].closed


def test_we_can_close_the_connection_with_an_error():
    engine, recorder = opened(attach_sender())

    engine.close(ERROR)

    (close,) = frames(engine.take_output())
    assert [WIRE_ERROR] == close.fields
    at_first = engine.finished
    say(engine, transfer(0, b"under way"))
    assert [] == say(engine, frame("close"))
    assert [False, True] == [at_first, engine.finished]
    assert ["open", "attach"] == recorder.names()


def test_we_can_close_before_the_client_has_opened():
    """The broker answers the client's open with an open and a close. `on_open` is not called."""
    engine, recorder = served()
    engine.close(ERROR)
    engine.close(ERROR)

    answers = say(engine, HEADER + open_frame() + begin_frame() + attach_sender())

    assert ["open", "begin", "close"] == [answer.name for answer in answers]
    assert [WIRE_ERROR] == answers[-1].fields
    assert [] == recorder.names()


def test_nothing_happens_after_the_connection_is_lost():
    engine, recorder = opened(attach_sender("a", 0), attach_receiver("b", 1), flow(1, handle=1))
    incoming, outgoing = recorder.links
    calls = len(recorder.calls)

    engine.connection_lost()
    engine.connection_lost()

    engine.feed(transfer(0, b"x"))
    engine.attach(incoming)
    engine.close(ERROR)
    assert [] == engine.send(outgoing, [b"t"], [b"h"], [b"b"], False)
    assert (b"", 0, True) == (engine.take_output(), engine.tick(1), engine.finished)
    assert calls == len(recorder.calls)


def test_the_connection_may_be_lost_inside_a_call_of_the_handler():
    class Leaving(Recorder):
        def on_transfers(self, link, deliveries, payloads, kind):
            super().on_transfers(link, deliveries, payloads, kind)
            self.engine.connection_lost()

    engine, recorder = opened(attach_sender("a", 0), attach_sender("b", 1), handler=Leaving())

    say(engine, transfer(0, b"x") + transfer(1, b"y", handle=1) + detach(0) + frame("close"))

    assert [b"x"] == recorder.payloads()
    assert ["open", "attach", "attach", "transfers"] == recorder.names()


def test_a_handlers_exception_comes_through_and_the_engine_can_still_be_freed():
    class Failing(Recorder):
        def on_detach(self, link, closed):
            raise RuntimeError("a bug")

    engine, _ = opened(attach_sender(), handler=Failing())

    with pytest.raises(RuntimeError, match="a bug"):
        engine.feed(detach())
    engine.connection_lost()
