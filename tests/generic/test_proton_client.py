"""Queues through Proton's own client: every outcome, both settle modes, pre-settled both ways."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from proton import Delivery, Message, Timeout
from proton.reactor import AtLeastOnce, AtMostOnce, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, SendException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proton import Link

    from tests.sdk.conftest import Live

TIMEOUT_S = 10

DYING_CONSUMER = """
import os, sys
from proton.utils import BlockingConnection
connection = BlockingConnection("127.0.0.1:" + sys.argv[1], timeout=10)
connection.create_receiver(sys.argv[2], credit=1).receive(timeout=10)
os._exit(0)
"""


class SettlesSecond(LinkOption):
    """The receiver waits for the broker to settle."""

    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = 1


@contextmanager
def connection(live: Live) -> Iterator[BlockingConnection]:
    opened = BlockingConnection(
        f"127.0.0.1:{live.process.amqp_port}",
        timeout=TIMEOUT_S,
        user="RootManageSharedAccessKey",
        password="SAS_KEY_VALUE",
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
    )
    try:
        yield opened
    finally:
        opened.close()


def send(conn: BlockingConnection, queue: str, *texts: str) -> None:
    sender = conn.create_sender(queue)
    for text in texts:
        sender.send(Message(body=text))
    sender.close()


def bodies(receiver: BlockingReceiver, count: int) -> list[str]:
    received = []
    for _ in range(count):
        received.append(receiver.receive(timeout=TIMEOUT_S).body)
        receiver.accept()
    return received


def is_empty(conn: BlockingConnection, queue: str) -> bool:
    """Nothing is waiting: a message sent now is the next to come."""
    send(conn, queue, "marker")
    receiver = conn.create_receiver(queue)
    found = bodies(receiver, 1)
    receiver.close()
    return found == ["marker"]


@pytest.mark.parametrize("mode", [None, SettlesSecond()], ids=["first", "second"])
def test_accepted_completes(live: Live, mode: LinkOption | None) -> None:
    """An accepted message is deleted, regardless of which side settles first."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "a", "b")
        receiver = conn.create_receiver(queue, credit=2, options=mode or AtLeastOnce())
        assert ["a", "b"] == bodies(receiver, 2)
        receiver.close()
        assert is_empty(conn, queue)


@pytest.mark.parametrize(
    ("outcome", "delivered", "count"),
    [
        pytest.param(Delivery.RELEASED, False, 0, id="released"),
        pytest.param(Delivery.MODIFIED, True, 1, id="modified-failed"),
    ],
)
def test_given_back_message_returns_first(
    live: Live, outcome: int, delivered: bool, count: int
) -> None:
    """Released does not count as a failed delivery, modified does."""
    del outcome
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "a", "b")
        receiver = conn.create_receiver(queue)
        assert "a" == receiver.receive(timeout=TIMEOUT_S).body
        receiver.release(delivered=delivered)
        again = receiver.receive(timeout=TIMEOUT_S)
        assert ("a", count) == (again.body, again.delivery_count)
        receiver.accept()
        assert ["b"] == bodies(receiver, 1)


def test_modified_without_failure_is_an_abandon_too(live: Live) -> None:
    """Every SDK abandons with modified, failed or not: all count."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "a")
        receiver = conn.create_receiver(queue)
        receiver.receive(timeout=TIMEOUT_S)
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.failed = False
        delivery.local.undeliverable = False
        delivery.update(Delivery.MODIFIED)
        delivery.settle()
        again = receiver.receive(timeout=TIMEOUT_S)
        assert ("a", 1) == (again.body, again.delivery_count)
        receiver.accept()


def test_rejected_dead_letters(live: Live) -> None:
    """A rejected message is read from the dead-letter queue."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "bad")
        receiver = conn.create_receiver(queue)
        receiver.receive(timeout=TIMEOUT_S)
        receiver.reject()
        receiver.close()
        dead = conn.create_receiver(f"{queue}/$DeadLetterQueue")
        assert ["bad"] == bodies(dead, 1)


def test_presettled_sends_are_stored(live: Live) -> None:
    """A pre-settled transfer is stored like any other, without an answer."""
    queue = live.queue()
    with connection(live) as conn:
        sender = conn.create_sender(queue, options=AtMostOnce())
        for text in ("a", "b", "c"):
            sender.link.send(Message(body=text))
        receiver = conn.create_receiver(queue, credit=3)
        assert ["a", "b", "c"] == bodies(receiver, 3)


def test_presettled_receiver_takes_for_good(live: Live) -> None:
    """A receiver that requests settled deliveries receives and deletes."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "a", "b")
        receiver = conn.create_receiver(queue, credit=2, options=AtMostOnce())
        assert ["a", "b"] == [receiver.receive(timeout=TIMEOUT_S).body for _ in range(2)]
        receiver.close()
        assert is_empty(conn, queue)


def test_lost_connection_gives_its_locks_back_and_counts(live: Live) -> None:
    """A lost connection counts as a failed delivery of the messages that it has locked."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "a")
    subprocess.run(
        [sys.executable, "-c", DYING_CONSUMER, str(live.process.amqp_port), queue],
        check=True,
        timeout=30,
    )
    with connection(live) as conn:
        receiver = conn.create_receiver(queue)
        again = receiver.receive(timeout=TIMEOUT_S)
        assert ("a", 1) == (again.body, again.delivery_count)
        receiver.accept()


def test_closed_connection_leaves_its_locks_standing(live: Live) -> None:
    """Whether or not its links were detached before: they expire in their time."""
    queue = live.queue()
    with connection(live) as leaving, connection(live) as staying:
        send(leaving, queue, "detached", "attached")
        detached = leaving.create_receiver(queue)
        detached.receive(timeout=TIMEOUT_S)
        detached.close()
        leaving.create_receiver(queue).receive(timeout=TIMEOUT_S)
        leaving.close()
        receiver = staying.create_receiver(queue)
        with pytest.raises(Timeout):
            receiver.receive(timeout=0.2)
        live.advance(seconds=31)
        again = [receiver.receive(timeout=TIMEOUT_S) for _ in range(2)]
        assert [("detached", 1), ("attached", 1)] == [(m.body, m.delivery_count) for m in again]


def test_undecodable_message_is_rejected(live: Live) -> None:
    """Bytes that are not a message are rejected, and the link stays attached."""
    queue = live.queue()
    with connection(live) as conn:
        sender = conn.create_sender(queue)
        delivery = sender.link.delivery(sender.link.delivery_tag())
        sender.link.stream(b"\x00\x53\x75\xa0\xff")
        sender.link.advance()
        conn.wait(lambda: delivery.remote_state, msg="outcome of the broken message")
        assert Delivery.REJECTED == delivery.remote_state
        assert "amqp:decode-error" == delivery.remote.condition.name
        sender.send(Message(body="fine"))
        assert ["fine"] == bodies(conn.create_receiver(queue), 1)


def test_send_to_nowhere_is_refused(live: Live) -> None:
    """A link to a missing entity is refused with the cause."""
    with connection(live) as conn, pytest.raises((SendException, Exception), match="not-found"):
        conn.create_sender("nowhere")
