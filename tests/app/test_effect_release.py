"""Effects that take long are released in parts, and connections take turns."""

from __future__ import annotations

from typing import Any

from broker.app.runtime import effect_release
from broker.app.runtime.effect_release import RELEASE_S, EffectRelease
from broker.core.contract.effects import Drained, PayloadsNeeded

TELLING_S = 0.001


class Told:
    """Peers, and a stopwatch that runs while they receive effects."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.told: list[Any] = []
        self.read: list[Any] = []
        self.failed: list[Any] = []
        self.release = EffectRelease(lambda: self.now_s, self.read.append, self.failed.append)

    def peer(self, name: str, connection: str | None = None) -> Any:
        told = self

        class Peer:
            def receive(self, effect: object) -> None:
                del effect
                told.now_s += TELLING_S
                told.told.append(name)

        peer = Peer()
        if connection is not None:
            peer.connection = connection  # type: ignore[attr-defined]
        return peer


def test_few_effects_are_released_at_once_and_in_order():
    told = Told()
    peers = [told.peer(name) for name in "abc"]
    told.release.release([Drained(peer) for peer in peers])
    assert ["a", "b", "c"] == told.told
    assert told.release.is_done


def test_many_effects_are_released_in_parts_and_others_do_not_wait_for_the_last():
    told = Told()
    busy, small = told.peer("busy", "one"), told.peer("small", "two")
    told.release.release([Drained(busy)] * 1_000 + [Drained(small)])
    parts = [len(told.told)]
    assert "small" not in told.told
    while not told.release.is_done:
        before, began_s = len(told.told), told.now_s
        told.release.continue_release()
        parts.append(len(told.told) - before)
        assert told.now_s - began_s <= RELEASE_S + 2 * TELLING_S
    assert told.told.index("small") < parts[0] + 3
    assert 1_001 == sum(parts)


def test_what_comes_later_of_the_same_connection_stays_behind_and_of_another_does_not():
    told = Told()
    first, second = told.peer("first", "one"), told.peer("second", "one")
    other = told.peer("other", "two")
    told.release.release([Drained(first)] * 20)
    told.release.release([Drained(second), Drained(other)])
    assert "other" == told.told[-1]
    while not told.release.is_done:
        told.release.continue_release()
    assert "second" == told.told[-1]
    assert 22 == len(told.told)


def test_bodies_are_asked_for_without_delay():
    told = Told()
    told.release.release([Drained(told.peer("busy"))] * 20 + [PayloadsNeeded([7])])
    assert [[7]] == told.read
    assert not told.release.is_done


def test_when_too_many_wait_they_are_released_without_a_break(monkeypatch):
    monkeypatch.setattr(effect_release, "WAITING_MAX", 10)
    told = Told()
    told.release.release([Drained(told.peer("busy"))] * 1_000)
    told.release.continue_release()
    assert 1_000 - 10 <= len(told.told)


def test_a_peer_that_fails_is_reported_and_does_not_keep_effects_from_others():
    class Broken:
        def receive(self, effect: object) -> None:
            raise ValueError

    told = Told()
    broken = Broken()
    told.release.release([Drained(broken), Drained(told.peer("after"))])
    assert ["after"] == told.told
    assert [broken] == told.failed
