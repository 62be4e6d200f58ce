"""Receivers that want copies, and receivers that want to select, through Proton's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from proton import Timeout
from proton.reactor import AtMostOnce, Copy, LinkOption, Selector
from proton.utils import LinkDetached

from tests.generic.test_proton_client import TIMEOUT_S, bodies, connection, send

if TYPE_CHECKING:
    from proton import Link

    from tests.sdk.conftest import Live


class Durable(LinkOption):
    """The source is to outlive the link, as the one of a JMS subscription."""

    def apply(self, link: Link) -> None:
        link.source.durability = 2


@pytest.mark.parametrize("settle_mode", [[], [AtMostOnce()]], ids=["unsettled", "settled"])
def test_browser_sees_everything_and_leaves_it_there(
    live: Live, settle_mode: list[LinkOption]
) -> None:
    """A browser locks, removes and counts nothing, with any outcome that it sends."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, *[str(number) for number in range(120)])
        browser = conn.create_receiver(
            queue, name="browser", credit=200, options=[Copy(), *settle_mode]
        )
        seen = [browser.receive(timeout=TIMEOUT_S).body for _ in range(120)]
        assert [str(number) for number in range(120)] == seen
        if not settle_mode:
            browser.accept()
        with pytest.raises(Timeout):
            browser.receive(timeout=0.2)
        receiver = conn.create_receiver(queue, credit=1)
        first = receiver.receive(timeout=TIMEOUT_S)
        assert ("0", 0) == (first.body, first.delivery_count)


def test_browser_sees_what_came_meanwhile_when_it_looks_again(live: Live) -> None:
    """It continues after the last message that it has seen."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "a")
        browser = conn.create_receiver(queue, credit=1, options=Copy())
        assert ["a"] == bodies(browser, 1)
        send(conn, queue, "b")
        browser.flow(1)
        assert ["b"] == bodies(browser, 1)


def test_durable_subscriber_gets_messages_not_copies(live: Live) -> None:
    """JMS sets the distribution mode `copy` there, which means copies of the topic's messages, not
    of the subscription's."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "a")
        subscriber = conn.create_receiver(queue, options=[Copy(), Durable()])
        assert ["a"] == bodies(subscriber, 1)
        subscriber.close()
        send(conn, queue, "b")
        assert ["b"] == bodies(conn.create_receiver(queue), 1)


def test_browsing_nowhere_is_refused(live: Live) -> None:
    """As receiving there is."""
    with connection(live) as conn, pytest.raises(LinkDetached, match="could not be found"):
        conn.create_receiver("no-such-queue", credit=1, options=Copy()).receive(timeout=TIMEOUT_S)


def test_selector_is_refused(live: Live) -> None:
    """A client that asked for some messages must not get, and consume, all of them."""
    queue = live.queue()
    with connection(live) as conn:
        send(conn, queue, "a")
        with pytest.raises(LinkDetached, match="selector"):
            conn.create_receiver(queue, name="some", options=Selector("size > 5"))
        assert ["a"] == bodies(conn.create_receiver(queue, credit=1), 1)
