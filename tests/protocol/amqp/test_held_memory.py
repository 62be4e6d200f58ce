"""What clients make the broker hold has a bound: for each connection, and for all of them together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from config.model.limits import RELAXED
from protocol.amqp.held_memory import (
    CONNECTION_BYTES,
    LINK_BYTES,
    SESSION_BYTES,
    HeldMemory,
    MemoryBudgets,
)
from protocol.codec import Int, Symbol
from tests.support import amqp_frames
from tests.support.memory_broker import ROOT_KEY, ROOT_NAME, MemoryBroker, MemoryClient

if TYPE_CHECKING:
    from tests.support.amqp_frames import Frame

PART = b"x" * 60_000
EXCEEDED = "amqp:resource-limit-exceeded"


def broker_with(authorization: str = "development", **limits: Any) -> MemoryBroker:
    broker = MemoryBroker("queues: {orders: }", authorization=authorization)
    broker.memory = MemoryBudgets(replace(RELAXED, **limits))
    return broker


def close_of(frames: list[Frame]) -> str | None:
    """The condition with which the connection was closed."""
    found = [frame[0].value[0] for frame in frames if frame.name == "close"]
    return str(found[0]) if found else None


def begin_token(client: MemoryClient) -> None:
    """Begin to put a token."""
    client.say(amqp_frames.attach_sender(address="$cbs"), amqp_frames.transfer(0, PART, more=True))


# --- accounts --------------------------------------------------------------------------------------


def test_the_connection_that_holds_most_makes_room_for_others():
    budgets = MemoryBudgets(replace(RELAXED, held_max_bytes=1000))
    evicted: list[str] = []
    small, large, other = (
        HeldMemory(budgets, lambda name=name: evicted.append(name), needs_token=False)  # type: ignore[misc]
        for name in ("small", "large", "other")
    )
    assert small.hold(100)
    assert large.hold(800)
    assert other.hold(300)
    assert ["large"] == evicted
    assert 400 == budgets.authenticated.used_bytes
    assert not other.hold(700), "nobody holds more than the one that asks"
    assert ["large"] == evicted


def test_a_connection_that_is_over_counts_no_more():
    budgets = MemoryBudgets(RELAXED)
    memory = HeldMemory(budgets, lambda: None, needs_token=True)
    memory.hold(100)
    memory.end()
    memory.release(100)
    memory.use_authenticated_budget()
    assert 0 == budgets.authenticated.used_bytes == budgets.unauthenticated.used_bytes
    assert not budgets.authenticated.holders
    assert not budgets.unauthenticated.holders


# --- before a token ----------------------------------------------------------------------------------


def test_a_connection_has_one_link_for_tokens():
    """Eight connections with unfinished tokens held 2.9 GB. The Go SDK expects that a second link is refused while
    the first is attached."""
    client = broker_with("strict").connect()
    frames = client.say(
        amqp_frames.attach_sender("first", 0, "$cbs"),
        amqp_frames.transfer(0, PART, handle=0, more=True),
        amqp_frames.attach_sender("second", 1, "$cbs"),
    )
    refusals = [frame for frame in frames if frame.name == "detach"]
    assert ["amqp:not-allowed"] == [str(frame[2].value[0]) for frame in refusals]
    client.say(amqp_frames.detach(1), amqp_frames.detach(0))
    frames = client.say(amqp_frames.attach_sender("third", 2, "$cbs"))
    assert ["attach", "flow"] == [frame.name for frame in frames]


@pytest.mark.parametrize("kind", ["links", "sessions"])
def test_few_links_and_sessions_are_made_before_a_token(kind: str):
    broker = broker_with("strict")
    client = broker.connect()
    frames = []
    for number in range(1, 200):
        if kind == "links":
            frames += client.say(amqp_frames.attach_receiver(f"{number}", number, "$cbs"))
        else:
            frames += client.say(amqp_frames.begin_frame(number))
    assert EXCEEDED == close_of(frames)


def test_refused_links_count_until_the_client_has_detached_them():
    """A client that reads its refusals detaches. 40,000 refusals that were not read made all
    clients wait."""
    broker = broker_with("strict")
    client = broker.connect()
    frames = []
    for _ in range(200):
        attach = amqp_frames.attach_receiver("same name", 0, "orders")
        frames += client.say(attach, amqp_frames.detach(0))
    assert close_of(frames) is None
    for number in range(200):
        frames += client.say(amqp_frames.attach_receiver(f"{number}", number, "orders"))
    assert EXCEEDED == close_of(frames)


def test_refused_links_have_a_number():
    """Proton looks through all of them for each new name."""
    broker = broker_with()
    client = broker.connect()
    frames = []
    for number in range(2 * RELAXED.links_per_connection_max + 1):
        client.connection.receive_data(amqp_frames.attach_receiver(f"{number}", number, "missing"))
    frames += client.say()
    assert EXCEEDED == close_of(frames)


def test_a_token_opens_the_whole_budget():
    broker = broker_with("strict")
    client = broker.connect()
    assert 202 == client.authenticate("", ROOT_NAME, ROOT_KEY)[0]
    frames = []
    for number in range(10, 400):
        frames += client.say(amqp_frames.attach_receiver(f"{number}", number, "orders"))
    assert close_of(frames) is None
    assert 392 * LINK_BYTES + SESSION_BYTES == broker.memory.authenticated.used_bytes
    assert 0 == broker.memory.unauthenticated.used_bytes


def test_a_key_in_sasl_plain_opens_the_whole_budget():
    broker = broker_with("strict")
    broker.connect(plain=(ROOT_NAME, ROOT_KEY))
    assert 0 == broker.memory.unauthenticated.used_bytes
    assert SESSION_BYTES == broker.memory.authenticated.used_bytes


def test_a_wrong_token_opens_nothing():
    broker = broker_with("strict")
    client = broker.connect()
    assert 401 == client.authenticate("", ROOT_NAME, "wrong")[0]
    assert 0 == broker.memory.authenticated.used_bytes


def test_clients_without_a_token_share_little_and_do_not_shut_others_out():
    """The largest of them go, so that a client that is about to put its token can."""
    broker = broker_with("strict", held_without_token_max_bytes=20 * CONNECTION_BYTES)
    hoarders = [broker.connect() for _ in range(15)]
    for hoarder in hoarders:
        begin_token(hoarder)
    assert broker.memory.unauthenticated.used_bytes <= 20 * CONNECTION_BYTES
    client = broker.connect()
    assert 202 == client.authenticate("", ROOT_NAME, ROOT_KEY)[0]
    assert client.attach_sender("orders") is None
    closed = [close_of(hoarder.listen()) for hoarder in hoarders]
    assert EXCEEDED in closed
    finished = [hoarder.connection.finished for hoarder in hoarders]
    assert [condition == EXCEEDED for condition in closed] == finished


# --- of any client -----------------------------------------------------------------------------------


def test_unfinished_messages_of_all_connections_share_a_budget():
    broker = broker_with(held_max_bytes=1_000_000)
    small = broker.connect()
    small.say(
        amqp_frames.attach_sender(address="orders"), amqp_frames.transfer(0, b"x" * 1000, more=True)
    )
    hoarder = broker.connect()
    frames = hoarder.say(amqp_frames.attach_sender(address="orders"))
    for number in range(20):
        frames += hoarder.say(amqp_frames.transfer(0 if number == 0 else None, PART, more=True))
    assert EXCEEDED == close_of(frames)
    assert hoarder.connection.finished
    assert close_of(small.say(amqp_frames.transfer(None, b""))) is None


def test_a_closed_connection_gives_back_what_it_held():
    broker = broker_with()
    client = broker.connect()
    client.say(amqp_frames.begin_frame(1), amqp_frames.attach_sender(address="orders"))
    client.say(amqp_frames.transfer(0, PART, more=True))
    assert 2 * SESSION_BYTES + LINK_BYTES + len(PART) == broker.memory.authenticated.used_bytes
    client.connection.lost()
    assert 0 == broker.memory.authenticated.used_bytes


def test_links_and_sessions_are_given_back_when_they_end():
    broker = broker_with()
    client = broker.connect()
    before = broker.memory.authenticated.used_bytes
    for _ in range(3):
        client.say(
            amqp_frames.begin_frame(1), amqp_frames.attach_sender(address="orders", channel=1)
        )
        client.say(amqp_frames.transfer(0, PART, more=True, channel=1))
        client.say(amqp_frames.frame("end", channel=1))
        assert before == broker.memory.authenticated.used_bytes


@pytest.mark.parametrize("name", ["attach", "begin", "open", "flow"])
def test_control_frames_have_a_size(name: str):
    """Proton keeps their properties decoded, at many times their size on the wire."""
    client = broker_with().connect()
    words: dict[Any, object] = {Symbol(f"p{number}"): Int(1000) for number in range(4_000)}
    said = {
        "attach": amqp_frames.attach_sender(address="orders", properties=words),
        "begin": amqp_frames.frame("begin", None, 0, 100, 100, None, None, None, words, channel=1),
        "open": amqp_frames.open_frame(properties=words),
        "flow": amqp_frames.frame("flow", 0, 100, 0, 100, *[None] * 6, words),
    }
    assert EXCEEDED == close_of(client.say(said[name]))


def test_a_large_outcome_is_for_few_deliveries():
    """What a client says of many deliveries is kept with each of them."""
    client = broker_with().connect()
    words = {Symbol(f"p{number}"): "x" * 100 for number in range(400)}
    modified = amqp_frames.described(0x27, None, None, words)
    client.say(amqp_frames.attach_receiver(address="orders"))
    assert [] == client.say(amqp_frames.disposition(0, 9, state=modified, settled=True))
    (end,) = client.say(amqp_frames.disposition(0, 10_000, state=modified, settled=True))
    assert ("end", EXCEEDED) == (end.name, end[0].value[0])


def test_the_state_of_a_transfer_has_a_size():
    client = broker_with().connect()
    assert client.attach_sender("orders") is None
    state = amqp_frames.described(0x34, b"x" * 2_000)
    assert EXCEEDED == close_of(client.say(amqp_frames.transfer(0, b"x", state=state)))
