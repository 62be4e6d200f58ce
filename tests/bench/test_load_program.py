"""The generator in C against a broker: it finds what is wrong with the messages, and both generators agree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.bench.load import measure
from tests.bench.load_program import run_program
from tests.bench.roles import Load
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("load program")
COUNT = 500


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(config={"queues": {"measured": {}}}) as running:
        yield running


@pytest.fixture
def load(broker: BrokerProcess, request: pytest.FixtureRequest) -> Load:
    run = abs(hash(request.node.name)) % (1 << 32)
    return Load(port=broker.amqp_port, address="measured", count=COUNT, run=run)


def test_messages_sent_and_received_at_once_are_all_there(load: Load):
    """Both roles, several connections: every message is accepted and received once, in order."""
    receiver, sender = run_program("both", replace(load, connections=3, credit=10, window=10))
    assert (True, "") == (receiver["is_clean"], receiver["error"])
    assert (True, COUNT) == (sender["is_clean"], sender["accepted"])
    assert sender["latency_us"]["p50"] > 0


def test_python_receives_what_the_program_sent(load: Load):
    """Both generators write and check the same messages."""
    (sender,) = run_program("send", load)
    (receiver,) = measure(("receive", load))
    assert (True, True) == (sender["is_clean"], receiver["is_clean"])


def test_the_program_receives_what_python_sent(load: Load):
    """Both generators write and check the same messages."""
    (sender,) = measure(("send", load))
    (receiver,) = run_program("receive", load)
    assert (True, True) == (sender["is_clean"], receiver["is_clean"])


def test_a_lost_message_is_found(load: Load):
    """The receiver expects one message behind the last, and not the first."""
    run_program("send", load)
    (receiver,) = run_program("receive", replace(load, first_sequence=1))
    assert not receiver["is_clean"]
    assert (1, 1) == (receiver["verdict"]["lost"], receiver["verdict"]["corrupt"])


def test_a_doubled_message_is_found(load: Load):
    """The same messages are sent twice; half of what was expected does not come."""
    half = replace(load, count=COUNT // 2)
    run_program("send", half)
    run_program("send", half)
    (receiver,) = run_program("receive", load)
    assert not receiver["is_clean"]
    assert (COUNT // 2, COUNT // 2) == (
        receiver["verdict"]["duplicate"],
        receiver["verdict"]["lost"],
    )


def test_messages_in_another_order_are_found(load: Load):
    """The second half is sent before the first."""
    half = replace(load, count=COUNT // 2)
    run_program("send", replace(half, first_sequence=COUNT // 2))
    run_program("send", half)
    (receiver,) = run_program("receive", load)
    assert not receiver["is_clean"]
    assert (1, 0) == (receiver["verdict"]["out_of_order"], receiver["verdict"]["lost"])


def test_messages_of_another_run_are_foreign(load: Load):
    """What an earlier run left behind is not taken for the messages of this run."""
    run_program("send", replace(load, run=1))
    (receiver,) = run_program("receive", load)
    assert (COUNT, COUNT) == (receiver["verdict"]["foreign"], receiver["verdict"]["lost"])


def test_a_rate_is_kept(load: Load):
    """Messages are sent when they are due, and latencies count from then."""
    receiver, sender = run_program("both", replace(load, rate_per_s=1_000.0))
    assert receiver["is_clean"]
    assert sender["elapsed_s"] >= (COUNT - 1) / 1_000


def test_a_missing_queue_is_an_error(load: Load):
    """The refusal of the broker is the error of the role."""
    (sender,) = run_program("send", replace(load, address="missing"))
    assert not sender["is_clean"]
    assert "amqp:not-found" in sender["error"]


def test_a_connection_that_is_refused_is_an_error(load: Load):
    """Nobody listens there."""
    (sender,) = run_program("send", replace(load, port=1))
    assert "no connection" in sender["error"]
