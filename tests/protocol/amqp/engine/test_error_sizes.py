"""Errors to clients that accept only small frames."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.amqp.engine.engine import Engine, EngineLink, WireError
from protocol.codec import Described, UInt
from tests.support.amqp_frames import (
    HEADER,
    Recorder,
    attach_sender,
    begin_frame,
    frame,
    frames,
    served,
    transfer,
)
from tests.support.frame_client import FrameSplitter

FRAME_MIN_BYTES = 512
"""The smallest limit that AMQP 1.0 allows a client (§2.4.1)."""
REJECTED = 0x25
TEXT = "Die Warteschlange für Aufträge fehlt. " * 200
ERROR = WireError(
    "com.microsoft:server-busy-with-a-condition-that-is-long",
    TEXT,
    {"com.microsoft:tracking-id": "01234567-89ab-cdef-0123-456789abcdef"},
)


def client(frame_max_bytes: int | None, handler: Recorder) -> tuple[Engine, Recorder]:
    """A client with one link on which it sends, and with one message that is not answered."""
    engine, recorder = served(handler)
    limit = None if frame_max_bytes is None else UInt(frame_max_bytes)
    engine.feed(HEADER + frame("open", "client", "localhost", limit) + begin_frame())
    engine.feed(attach_sender())
    if handler.grants:
        engine.feed(transfer(0, b"message"))
    engine.take_output()
    return engine, recorder


def text_in(answer: bytes) -> Any:
    """Returns the text of the error in a frame."""
    (ended,) = frames(answer)
    (state,) = [field for field in ended.fields if isinstance(field, Described)]
    error: Any = state
    if state.descriptor == REJECTED:
        (error,) = error.value
    return error.value[1]


def refuse(engine: Engine, link: EngineLink) -> None:
    engine.refuse(link, ERROR)


def detach(engine: Engine, link: EngineLink) -> None:
    engine.detach(link, ERROR)


def reject(engine: Engine, link: EngineLink) -> None:
    engine.settle_refused(link, link.unsettled, ERROR)


def close(engine: Engine, _: EngineLink) -> None:
    engine.close(ERROR)


ENDS = [refuse, detach, reject, close]


@pytest.mark.parametrize("end", ENDS)
def test_the_text_of_an_error_is_cut_to_the_clients_frame_size(end):
    """A client ends the connection if a frame is too large, and its user would not see the error."""
    engine, recorder = client(FRAME_MIN_BYTES, Recorder(grants=end is not refuse, accepts=False))

    end(engine, recorder.links[0])

    answers = FrameSplitter().feed(engine.take_output())
    assert all(len(answer) <= FRAME_MIN_BYTES for answer in answers)
    text = text_in(answers[-1])
    assert TEXT.startswith(text)
    assert len(text) > 200


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("frame_max_bytes", [None, 0, 65_536])
def test_the_text_of_an_error_is_whole_in_larger_frames(end, frame_max_bytes):
    engine, recorder = client(frame_max_bytes, Recorder(grants=end is not refuse, accepts=False))

    end(engine, recorder.links[0])

    answers = FrameSplitter().feed(engine.take_output())
    assert TEXT == text_in(answers[-1])
