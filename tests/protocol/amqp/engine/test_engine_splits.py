"""One whole dialogue, cut at every byte: the network's pieces mean nothing."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from protocol.amqp.engine.engine import ACCEPTED
from protocol.amqp.engine.outcomes import Modified, Rejected
from protocol.codec import Symbol, encode
from tests.support.amqp_frames import (
    BATCH_FORMAT,
    EMPTY_FRAME,
    HEADER,
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
    open_frame,
    pieces,
    rejected,
    served,
    transfer,
)

SETUP = b"".join(
    [
        HEADER,
        open_frame(),
        begin_frame(),
        attach_sender("to", 0),
        attach_receiver("from", 1),
        flow(10, handle=1),
    ]
)
"""What a client says before it has to wait for us."""

DIALOGUE = b"".join(
    [
        transfer(0, b"one", tag=b"0123456789abcdef"),
        transfer(1, b"two"),
        transfer(2, b"a batch", message_format=BATCH_FORMAT),
        transfer(3, b"half a", message_format=BATCH_FORMAT, more=True),
        EMPTY_FRAME,
        transfer(None, b" batch"),
        transfer(4, b"never mind", more=True),
        transfer(None, b"", aborted=True),
        transfer(5, b"settled", settled=True),
        disposition(0, 1, state=accepted()),
        disposition(2, state=rejected("com.microsoft:dead-letter", "x", {Symbol("k"): "v"})),
        disposition(3, state=described(0x27, True, True), settled=True),
        flow(0, handle=1, delivery_count=10, drain=True),
        detach(0),
        attach_sender("again", 0),
        transfer(6, b"again"),
        disposition(4, state=accepted()),
        detach(1, closed=False),
    ]
)
"""What it says then, in one breath."""

ENDING = frame("end") + frame("close")
"""In a breath of its own: a session that ends gets no answers any more."""


class Talkative(Recorder):
    """Sends five messages for the first credit and answers drains."""

    def on_flow(self, link):
        super().on_flow(link)
        if link.sent == 0 and self.engine.credit(link):
            tags = [b"%016d" % number for number in range(5)]
            self.engine.send(link, tags, [b"h"] * 5, [b"b"] * 5, False)
        self.engine.drained(link)


def led(
    cuts: list[bytes], *, flush_often: bool, setup: list[bytes] | None = None
) -> tuple[list[Any], list[Any]]:
    """The dialogue in pieces: what the handler heard and what went out, without their grouping."""
    handler = Talkative()
    engine, _ = served(handler)
    for cut in setup or [SETUP]:
        engine.feed(cut)
    output = engine.take_output()
    for cut in cuts:
        engine.feed(cut)
        if flush_often:
            output += engine.take_output()
    output += engine.take_output()
    engine.feed(ENDING)
    output += engine.take_output()
    assert engine.finished
    engine.connection_lost()
    return heard(handler), written(output)


def heard(handler: Recorder) -> list[Any]:
    """The calls, one message at a time."""
    calls: list[Any] = []
    for name, *arguments in handler.calls:
        if name == "transfers":
            link, _, payloads, kind = arguments
            calls += [(link.name, payload, kind) for payload in payloads]
        elif name == "outcomes":
            link, deliveries, outcome, settled = arguments
            calls += [(link.name, outcome, settled)] * len(deliveries)
        elif name in ("detach", "flow"):
            calls.append((name, arguments[0].name))
        else:
            calls.append(name)
    return calls


def written(output: bytes) -> list[Any]:
    """The frames, ranges taken apart, without an order among them."""
    found: list[Any] = []
    for each in frames(output):
        if each.name == "disposition":
            last = each[1] if each[2] is None else each[2]
            found += [(each[0], number, each[3], each[4]) for number in range(each[1], last + 1)]
        elif each.name == "flow":
            if each[8]:  # grants of credit depend on the moment, answers to drains do not
                found.append(("flow", each.fields[4:]))
        elif each.name == "attach":
            found.append((each[0], *each.fields[2:]))  # handles depend on what is free
        else:
            found.append((each.name, each.fields, each.payload))
    return sorted(map(str, found))


WHOLE = led([DIALOGUE], flush_often=True)


def test_the_dialogue_says_what_it_should():
    """So that the other tests do not merely agree on something wrong."""
    calls, output = WHOLE

    told = [call[1] for call in calls if isinstance(call, tuple) and len(call) == 3]
    dead_letter = Rejected("com.microsoft:dead-letter", "x", {"k": encode("v")})
    assert [
        *[b"one", b"two", b"a batch", b"half a batch", b"settled"],
        *[ACCEPTED, ACCEPTED, dead_letter, Modified(True, True)],
        *[b"again", ACCEPTED],
    ] == told
    assert ["open", "attach", "attach", ("flow", "from")] == calls[:4]
    assert [("detach", "from"), "session end", "close"] == calls[-3:]
    assert 5 == sum("'transfer'" in line for line in output)


def test_every_split_point_gives_the_same_dialogue():
    for position in range(1, len(DIALOGUE)):
        cuts = [DIALOGUE[:position], DIALOGUE[position:]]
        assert WHOLE == led(cuts, flush_often=True), position


def test_every_split_point_of_the_beginning_gives_the_same_dialogue():
    for position in range(1, len(SETUP)):
        setup = [SETUP[:position], SETUP[position:]]
        assert WHOLE == led([DIALOGUE], flush_often=True, setup=setup), position


def test_byte_by_byte_gives_the_same_dialogue():
    setup = [SETUP[i : i + 1] for i in range(len(SETUP))]
    cuts = [DIALOGUE[i : i + 1] for i in range(len(DIALOGUE))]

    assert WHOLE == led(cuts, flush_often=True, setup=setup)
    assert WHOLE[0] == led(cuts, flush_often=False, setup=setup)[0]


def test_random_pieces_give_the_same_calls():
    for seed in range(50):
        sizes = random.Random(seed)
        cuts = list(pieces(DIALOGUE, partial(sizes.choice, [1, 5, 40, 200])))
        assert WHOLE[0] == led(cuts, flush_often=sizes.random() < 0.5)[0], seed
