"""The engine's ordinary life: opening, messages in, in groups and in order, and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cproton_ffi import lib

from protocol.amqp.engine.engine import ACCEPTED, PLAIN, RELEASED, TransferKind, WireError
from protocol.amqp.engine.interface import OVERSIZE_KEPT_BYTES
from protocol.amqp.engine.outcomes import Modified, Rejected
from protocol.codec import Symbol, UInt, encode
from tests.support.amqp_frames import (
    BATCH_FORMAT,
    HEADER,
    Recorder,
    accepted,
    attach_receiver,
    attach_sender,
    begin_frame,
    described,
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
from tests.support.proton.connection import ProtonConnection

if TYPE_CHECKING:
    from protocol.amqp.engine.engine import Engine


def sending(handler: Recorder | None = None, **settings):
    """A client with one link on which it sends, as handle 0."""
    engine, recorder = opened(attach_sender(), handler=handler, **settings)
    return engine, recorder, recorder.links[0]


# --- open ------------------------------------------------------------------------------------------


def test_open_has_the_limits_of_the_broker():
    engine, _ = served(max_frame_size_bytes=65_536, channel_max=8191, idle_timeout_ms=240_000)

    answer, _ = say(engine, HEADER + open_frame() + begin_frame())

    assert ("open", "broker") == (answer.name, answer[0])
    assert [65_536, 8191, 240_000] == answer.fields[2:5]


def test_on_open_gets_the_clients_properties():
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


class EngineSocket:
    """Joins a Proton client to an engine in memory."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._output = b""

    def fileno(self) -> int:
        return -1

    def send(self, data: bytes, /) -> int:
        self._engine.feed(data)
        return len(data)

    def recv_into(self, buffer: bytearray, /) -> int:
        self._output += self._engine.take_output()
        if not self._output:
            raise BlockingIOError
        size = min(len(buffer), len(self._output))
        buffer[:size], self._output = self._output[:size], self._output[size:]
        return size

    def close(self) -> None:
        """The engine outlives its client."""


def exchange(client: ProtonConnection) -> None:
    """Carry bytes both ways until the client has nothing to write and nothing to read."""
    while client.flush() or client.receive():
        pass


@pytest.mark.parametrize("size", [0, 1, 65_000, 1_000_000, 3_000_000])
def test_a_message_of_any_size_arrives(size):
    engine, recorder = served()
    client = ProtonConnection("localhost", 0, "client", connected=EngineSocket(engine))
    link = client.attach_sender("queue", name="to")
    exchange(client)

    payload = bytes(range(256)) * (size // 256 + 1)
    deliveries = [client.send(link, payload[:size], b"1"), client.send(link, b"next", b"2")]
    exchange(client)

    assert [payload[:size], b"next"] == recorder.payloads()
    for delivery in deliveries:
        assert 0x24 == lib.pn_delivery_remote_state(delivery)
        assert lib.pn_delivery_settled(delivery)
    client.free()
    engine.connection_lost()


def test_a_message_over_the_limit_is_refused_as_soon_as_it_is():
    """Once, with only its beginning kept; the messages around it are not touched."""
    engine, recorder, _ = sending(max_message_size_bytes=2000)
    error = WireError("amqp:link:message-size-exceeded", "too large", {"k": "v"})

    def refuse(link, delivery, size_bytes, settled, beginning):
        recorder.calls.append(("oversize", size_bytes, settled, beginning))
        if settled:
            engine.settle(link, [delivery], None)
        else:
            engine.settle_refused(link, [delivery], error)

    recorder.on_oversize = refuse
    say(engine, transfer(0, b"x" * 2000))
    assert [] == say(engine, transfer(5, b"y" * 1900, more=True))
    (answer,) = say(engine, transfer(5, b"y" * 101, more=True))
    assert [True, 5, 5, True] == answer.fields[:4]
    assert "amqp:link:message-size-exceeded" == answer[4].value[0].value[0]
    assert [] == say(engine, *[transfer(5, b"y" * 5000, more=True)] * 3)
    answers = say(engine, transfer(None, b"y") + transfer(6, b"z" * 2001, settled=True))
    assert [] == [answer for answer in answers if answer.name == "disposition"]
    assert 1 == len(say(engine, transfer(7, b"w" * 1000, more=True) + transfer(7, b"w" * 1000)))
    (answer, *_) = say(engine, transfer(8, b"ok"))

    assert [True, 8] == answer.fields[:2]
    assert [b"x" * 2000, b"w" * 2000, b"ok"] == recorder.payloads()
    kept = OVERSIZE_KEPT_BYTES
    assert [(2001, False, b"y" * kept), (2001, True, b"z" * kept)] == recorder.of("oversize")
    assert lib.pn_link_unsettled(recorder.links[0].pointer) == 0


def test_a_message_whose_link_is_ended_for_its_size_is_let_go():
    engine, recorder, link = sending(max_message_size_bytes=2000)
    error = WireError("amqp:link:message-size-exceeded", "too large", {"k": "v"})

    def refuse(link, *_):
        recorder.calls.append(("oversize",))
        engine.detach(link, error)

    recorder.on_oversize = refuse
    answers = say(engine, transfer(0, b"y" * 2001, more=True))
    assert ["disposition", "detach"] == [answer.name for answer in answers]
    assert [] == say(engine, *[transfer(0, b"y" * 5000, more=True)] * 3)

    assert [()] == recorder.of("oversize")
    assert [] == link.unsettled


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
    address = link.received_deliveries.unsettled[old]
    engine.settle(link, [old], ACCEPTED)
    say(engine)
    say(engine, b"".join(transfer(i, b"later") for i in range(1, 20)))
    later = recorder.of("transfers")[1][1]
    used = [link.received_deliveries.unsettled[each] for each in later]
    assert address in used, "no memory was used again, so this shows nothing"

    engine.settle(link, [old, old], RELEASED)

    assert [] == frames(engine.take_output())
    engine.settle(link, later, ACCEPTED)
    assert [[True, 1, 19, True, accepted()]] == [f.fields for f in frames(engine.take_output())]


# --- time -------------------------------------------------------------------------------------------


def test_an_idle_client_is_closed_with_the_reason():
    engine, recorder = opened(idle_timeout_ms=1000)
    assert 5000 == engine.tick(3000)
    assert 5000 == engine.tick(4999)

    engine.tick(5001)

    (close,) = frames(engine.take_output())
    assert "amqp:resource-limit-exceeded" == close[0].value[0]
    assert close[0].value[2]
    assert ["amqp:resource-limit-exceeded"] == [call[0] for call in recorder.of("transport error")]
    assert engine.finished


def test_an_idle_client_gets_a_heartbeat_within_half_its_timeout():
    engine, _ = served()
    say(engine, HEADER + frame("open", "c", "h", None, None, UInt(1000)) + begin_frame())
    engine.tick(10_000)

    assert b"" == engine.take_output()
    engine.tick(10_501)

    assert b"\x00\x00\x00\x08\x02\x00\x00\x00" == engine.take_output()


@pytest.mark.parametrize(("idle_timeout_ms", "granted"), [(0, True), (499, False), (500, True)])
def test_an_idle_timeout_that_is_too_short_is_refused(idle_timeout_ms, granted):
    """A few hundred clients with 1 ms took most of a core with empty frames."""
    engine, _ = served()

    answers = say(engine, HEADER + frame("open", "c", "h", None, None, UInt(idle_timeout_ms)))

    assert (["open"] if granted else ["open", "close"]) == [each.name for each in answers]
    if not granted:
        assert "amqp:not-allowed" == answers[1][0].value[0]


def test_input_between_two_ticks_does_not_delay_the_next_heartbeat():
    """The .NET SDK drops a connection without input for its timeout, to the millisecond."""
    engine, _ = served()
    say(engine, HEADER + frame("open", "c", "h", None, None, UInt(1000)))
    now_ms, next_ms = 10_000, engine.tick(10_000)
    assert ["begin"] == [one.name for one in say(engine, begin_frame())]

    while not (empty_frame := engine.take_output()):
        now_ms, next_ms = next_ms, engine.tick(next_ms)

    assert b"\x00\x00\x00\x08\x02\x00\x00\x00" == empty_frame
    assert 10_500 <= now_ms <= 10_750
