"""Connections are looked at only while somebody wants to see them, and what is kept is bounded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from broker.app.network.frame_views import FRAME_BYTES, HELD_MAX_S, FrameViews
from config.model.limits import RELAXED
from protocol.amqp.links.link_context import ClientView
from tests.support.amqp_frames import EMPTY_FRAME, HEADER, open_frame, transfer
from tests.support.virtual_time import on_virtual_time

if TYPE_CHECKING:
    from broker.app.network.amqp_transport import AmqpTransport
    from broker.app.network.frame_views import LiveView
    from protocol.amqp.connection import Connection

LIMITS = replace(RELAXED, frames_recorded_max_bytes=10_000, frames_unread_max_bytes=10_000)


class Transport(SimpleNamespace):
    """A transport and its connection."""

    def __init__(self, number: int, namespace: str | None) -> None:
        super().__init__(unprocessed_input=b"")
        self.tap: Any = None
        self.connection = SimpleNamespace(
            client=ClientView(f"c-{number}", container_id=f"client-{number}"),
            selected_namespace=namespace,
            namespace=namespace or "default",
        )

    def select(self, namespace: str) -> None:
        self.connection.selected_namespace = self.connection.namespace = namespace


def views(*transports: Transport, is_strict: bool = False, last: int = 0) -> FrameViews:
    return FrameViews(
        cast("Any", transports), LIMITS, lambda: 1_000, is_strict=is_strict, last=last
    )


def connect(views: FrameViews, transport: Transport) -> None:
    if views.is_looking:
        views.tap(cast("AmqpTransport", transport), cast("Connection", transport.connection))


def is_tapped(transport: Transport) -> bool:
    return transport.tap is not None


async def shown(view: LiveView) -> list[str]:
    _, frames = await asyncio.wait_for(view.taken(), 5)
    return [FrameViews.describe(one)["performative"] for one in frames]


async def test_nothing_is_looked_at_unless_somebody_looks():
    one = Transport(1, "default")
    made = views(one)
    connect(made, one)
    assert not is_tapped(one)
    with made.watch("default", None, None):
        assert is_tapped(one)
        with made.watch("default", None, None):
            pass
        assert is_tapped(one)
    assert not is_tapped(one)
    made.record("default", 10)
    assert is_tapped(one)
    made.record("default", 0)
    assert not is_tapped(one)


async def test_connections_of_others_are_not_looked_at():
    """After the first frames it is known whose they are."""
    mine, other, elsewhere = Transport(1, "default"), Transport(2, "default"), Transport(3, "b")
    made = views(mine, other, elsewhere)
    with made.watch("default", "c-1", None) as view:
        for one in (mine, other, elsewhere):
            one.tap.received(EMPTY_FRAME)
        assert (False, True, True) == tuple(one.tap is None for one in (mine, other, elsewhere))
        assert ["empty"] == await shown(view)


async def test_frames_wait_until_the_namespace_is_known():
    one = Transport(1, None)
    made = views(one)
    with made.watch("b", None, "client-*") as view, made.watch("default", None, None) as other:
        one.tap.received(HEADER + open_frame())
        one.select("b")
        one.tap.sent(HEADER)
        assert ["header", "open", "header"] == await shown(view)
        other.end()
        assert [] == await shown(other)


@on_virtual_time
async def test_frames_of_a_connection_without_a_namespace_are_shown_in_the_default_one():
    one = Transport(1, None)
    with views(one).watch("default", None, None) as view:
        one.tap.received(HEADER)
        assert ["header"] == await shown(view)
        one.tap.received(EMPTY_FRAME)
        assert ["empty"] == await shown(view)


@on_virtual_time
async def test_in_strict_authorization_they_wait_for_the_end_of_the_connection():
    one = Transport(1, None)
    with views(one, is_strict=True).watch("default", None, None) as view:
        one.tap.received(HEADER)
        waiting = asyncio.get_running_loop().create_task(shown(view))
        await asyncio.sleep(5 * HELD_MAX_S)
        assert not waiting.done()
        one.tap.closed()
        assert ["header"] == await waiting


async def test_the_view_of_one_connection_ends_with_it():
    one = Transport(1, "default")
    with views(one).watch("default", "c-1", None) as view:
        one.tap.received(EMPTY_FRAME)
        one.tap.closed()
        assert ["empty"] == await shown(view)
        assert [] == await shown(view)


async def test_a_view_that_is_not_read_drops_the_oldest_frames():
    one = Transport(1, "default")
    with views(one).watch("default", None, None) as view:
        for number in range(100):
            one.tap.received(transfer(number, b"x" * 600))
        dropped, frames = await view.taken()
        assert 100 == dropped + len(frames)
        assert 5 < len(frames) < 10
        assert 99 == FrameViews.describe(frames[-1])["fields"]["delivery_id"]
        one.tap.received(EMPTY_FRAME)
        assert (0, 1) == tuple(map(_length, await view.taken()))


def _length(one: Any) -> int:
    return one if isinstance(one, int) else len(one)


async def test_a_recording_is_bounded_in_number_and_in_bytes():
    one = Transport(1, "default")
    made = views(one)
    made.record("default", 15)
    for _ in range(20):
        one.tap.received(EMPTY_FRAME)
    assert 15 == len(made.frames("default", None, None, 0, 100))
    for number in range(20):
        one.tap.received(transfer(number, b"x" * 2_000))
    kept = made.frames("default", None, None, 0, 100)
    assert 10_000 // (2_000 + 60 + FRAME_BYTES) == len(kept)
    assert 40 == kept[-1].number
    made.forget("default")
    assert (0, []) == (made.recorded_last("default"), made.frames("default", None, None, 0, 100))


async def test_a_setting_records_every_namespace():
    one = Transport(1, None)
    made = views(one, last=3)
    connect(made, one)
    one.tap.received(HEADER)
    one.select("b")
    one.tap.received(open_frame())
    assert (3, 2) == (made.recorded_last("b"), len(made.frames("b", None, None, 0, 100)))
    made.record("b", 0)
    one.tap.received(EMPTY_FRAME)
    assert (0, True) == (made.recorded_last("b"), one.tap is None)
