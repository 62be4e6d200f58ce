"""Clients whose every word has its time: messages sent, completed and dead-lettered; states; entities.

One object over all runs of the broker; `work` runs until the connections break. What is promised is
written into the timeline and judged there.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.crash.client_workload import Pace
from tests.crash.clients.administration import AdministrationClient, Version, read_version
from tests.crash.clients.messages import decode_message, encode_message
from tests.crash.workload import LOCK
from tests.support.proton.answers import REJECTED, Refused
from tests.support.proton.client import ProtonClient
from tests.support.proton.connection import PeerFailed
from tests.support.server import HOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.crash.ledgers.messages import MessageKey
    from tests.crash.power.timeline import Place, Timeline
    from tests.support.proton.answers import Outcome

QUEUE, TOPIC, SCHEDULED, SESSIONS = "cut-queue", "cut-topic", "cut-scheduled", "cut-sessions"
SUBSCRIPTIONS = ("one", "two")
ENTITIES = ("cut-made-0", "cut-made-1")
SESSION_IDS = ("a", "b")
CONFIG: dict[str, Any] = {
    "queues": {QUEUE: LOCK, SCHEDULED: LOCK, SESSIONS: {**LOCK, "requires_session": True}},
    "topics": {TOPIC: {"subscriptions": dict.fromkeys(SUBSCRIPTIONS, LOCK)}},
}
DEAD = 1
LARGEST_BODY_BYTES = 9_000
WINDOW = 15
CREDIT = 50
SENDS_PER_S, CHANGES_PER_S = 120, 15
MOST_WAITING = 400
"""Messages in a place; more are completed than sent beyond it."""
WAIT_S = 0.2
DUE_MS = 1 << 42
COMPLETED, DEAD_LETTERED = 0.8, 0.9
"""Up to here of all that is received is completed; up to there dead-lettered; the rest is kept."""
OK, CREATED = 200, 201


class Clients:
    """All clients of a run."""

    def __init__(self, amqp_port: int, http_port: int, timeline: Timeline, seed: int) -> None:
        self._amqp_port, self._http_port = amqp_port, http_port
        self._timeline = timeline
        self._chance = random.Random(f"{seed} clients")
        self._index = 0
        self._waiting = 0
        self._open: list[ProtonClient] = []

    async def work(self) -> None:
        """Until the broker goes."""
        queue: Place = (QUEUE, 0)
        copies = [(f"{TOPIC}/subscriptions/{name}", 0) for name in SUBSCRIPTIONS]
        tasks = [
            self._send(QUEUE, [queue]),
            self._send(TOPIC, copies),
            *(self._receive(place) for place in (queue, *copies)),
            self._schedule(),
            *(self._set_states(session) for session in SESSION_IDS),
            *(self._change_entity(name) for name in ENTITIES),
        ]
        self._waiting = 0
        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(task)
        except* (PeerFailed, OSError, Refused):
            pass  # that is how a run ends
        finally:
            for client in self._open:
                client.close()
            self._open.clear()

    def _connect(self, name: str) -> ProtonClient:
        client = ProtonClient(HOST, self._amqp_port, name)
        self._open.append(client)
        return client

    def _next_key(self, sender: str) -> MessageKey:
        self._index += 1
        return sender, self._index

    # ---- messages -----------------------------------------------------------------------------

    async def _send(self, address: str, places: Sequence[Place]) -> None:
        sender = await self._connect(f"{address} sender").sender(address)
        pace = Pace(SENDS_PER_S)
        awaited = 0

        def note(key: MessageKey, outcome: Outcome) -> None:
            nonlocal awaited
            awaited -= 1
            if outcome.is_accepted:
                self._waiting += len(places)
                self._timeline.accepted(places, [key])

        while True:
            await pace.turn()
            sender.client.check()
            if awaited >= WINDOW or sender.credit <= 0 or self._waiting > MOST_WAITING:
                continue
            key = self._next_key(address)
            size_bytes = int(self._chance.random() ** 3 * LARGEST_BODY_BYTES)
            self._timeline.sending(places, [key])
            awaited += 1
            sender.put(encode_message(key, size_bytes=size_bytes), partial(note, key))

    async def _receive(self, place: Place) -> None:
        client = self._connect(f"{place[0]} receiver")
        receiver = await client.receiver(place[0], CREDIT)
        while True:
            arrival = await receiver.next(WAIT_S)
            if arrival is None:
                continue
            key, _ = decode_message(arrival.message)
            self._timeline.delivered(place, key)
            chosen = self._chance.random()
            if chosen > DEAD_LETTERED:
                continue
            self._waiting -= 1
            moved_to = (place[0], DEAD) if chosen > COMPLETED else None
            self._timeline.removing(place, key, moved_to)
            note = partial(self._note_removal, place, key)
            if moved_to is None:
                client.settle(arrival.delivery, note)
            else:
                client.settle(arrival.delivery, note, outcome=REJECTED)

    def _note_removal(self, place: Place, key: MessageKey, outcome: Outcome) -> None:
        if outcome.is_accepted or outcome.state == REJECTED:
            self._timeline.removed(place, key)

    async def _schedule(self) -> None:
        """Several in one request, for a time that never comes."""
        management = await self._connect("scheduler").management(SCHEDULED)
        pace = Pace(CHANGES_PER_S)
        place: Place = (SCHEDULED, 0)
        while True:
            await pace.turn()
            keys = [self._next_key(SCHEDULED) for _ in range(self._chance.randint(1, 5))]
            self._timeline.sending([place], keys)
            messages = [{"message": encode_message(key, due_ms=DUE_MS)} for key in keys]
            status, _ = await management.request("schedule-message", {"messages": messages})
            if status == OK:
                self._timeline.accepted([place], keys)

    # ---- values -------------------------------------------------------------------------------

    async def _set_states(self, session: str) -> None:
        client = self._connect(f"holder of {session}")
        _, receiver = await client.accept_session(SESSIONS, session, 1, 10_000)
        management = await client.management(SESSIONS)
        pace = Pace(CHANGES_PER_S)
        while True:
            await pace.turn()
            self._index += 1
            state = f"state {self._index}".encode() if self._chance.random() < 0.8 else None
            self._timeline.setting(f"session {session}", state)
            body = {"session-id": session, "session-state": state}
            status, answer = await management.request("set-session-state", body)
            assert status == OK, answer
            self._timeline.was_set(f"session {session}")
            receiver.client.check()

    async def _change_entity(self, name: str) -> None:
        """Create, update, delete, over HTTP."""
        client = AdministrationClient(self._http_port)
        pace = Pace(CHANGES_PER_S)
        try:
            found = await client.entries(name)
            version = read_version("Queue", found[name]) if found else None
            while True:
                await pace.turn()
                self._index += 1
                if version is None:
                    wanted: Version | None = Version(self._index, self._index)
                elif self._chance.random() < 0.3:
                    wanted = None
                else:
                    assert isinstance(version, Version)
                    wanted = version._replace(changed=self._index)
                text = f"{wanted.born}.{wanted.changed}" if wanted else None
                self._timeline.setting(f"entity {name}", text)
                if wanted is None:
                    status, answer = await client.request("DELETE", name)
                else:
                    is_update = version is not None
                    status, answer = await client.put_entity(
                        name, "Queue", wanted, update=is_update
                    )
                assert status in {OK, CREATED}, answer
                self._timeline.was_set(f"entity {name}")
                version = wanted
        finally:
            with suppress(Exception):
                await client.close()
