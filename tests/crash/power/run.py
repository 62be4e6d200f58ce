"""`make crash ARGS=--power-cuts`: cut the power at any moment of a recorded run, and count what is left.

A broker works through several runs while all its file calls are recorded, with what clients were
told on the same clock. From that, images of torn files are made; each is opened by the broker's
store, some by a whole broker, and must hold what had been answered, and nothing that was gone.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.contract import StorageError
from storage.sqlite.store import SqliteStore
from tests.crash import failing_steps, recovered_state
from tests.crash.injected_bugs import VARIABLE
from tests.crash.ledgers.report import Book, Report
from tests.crash.power.clients import CONFIG, ENTITIES, SESSIONS, Clients
from tests.crash.power.disk import Disk
from tests.crash.power.recording import Kind, Recording
from tests.crash.power.timeline import Found, Timeline
from tests.support.server import BrokerFailed, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.power.recording import Call

IMAGES = 500
RUNS = 8
RUN_S = (2.0, 5.0)
WHOLE_BROKER_EVERY = 50
"""Every so manieth image is opened by a whole broker too."""
NEAR_A_SYNC = 0.6
"""So many of the cuts fall close to the beginning or the end of a sync."""
NEAR = 4
DATABASE = "power.db"
MEMORY_DISK = Path("/dev/shm")
"""Images need no disk; where there is none of memory they go where temporary files go."""


class Images(Book):
    """What is looked for in every image."""

    kinds = (
        "lost",
        "back",
        "unreadable",
        "not sent yet",
        "stored in part",
        "moved in part",
        "value lost",
        "unknown",
    )


def run(images: int, seed: int, folder: Path, injected_bug: str | None) -> Report:
    """Record, rebuild, judge."""
    (store := folder / "store").mkdir()
    recording = Recording(store, folder)
    timeline = Timeline()
    with ExitStack() as stack:
        broker = BrokerProcess(
            config=CONFIG,
            storage=f"sqlite:///{store / DATABASE}",
            testing_api=False,
            environment={
                **recording.environment,
                **failing_steps.REWRITES,
                VARIABLE: injected_bug or "",
            },
        )
        broker.use_module(failing_steps.__name__)
        stack.enter_context(broker)
        kills, stops = _work_in_several_runs(broker, recording, timeline, folder, seed)
    calls = list(recording.calls())
    print(
        f"recorded {len(calls):,} file calls of {RUNS} runs, {kills} killed and {stops} stopped: "
        + ", ".join(f"{count:,} {what}" for what, count in timeline.counts.items()),
        flush=True,
    )
    return _judge_images(calls, timeline, images, seed, folder)


def _work_in_several_runs(
    broker: BrokerProcess, recording: Recording, timeline: Timeline, folder: Path, seed: int
) -> tuple[int, int]:
    """Several runs with clients at work; how many ended by a kill and how many in order."""
    chance = random.Random(f"{seed} runs")
    clients = Clients(broker.amqp_port, broker.http_port, timeline, seed)
    kills = stops = 0
    for broker_run in range(RUNS):
        if broker_run:
            broker.start()
        is_killed = broker_run % 3 > 0
        ending = broker.kill if is_killed else broker.terminate
        asyncio.run(_one_run(clients, chance.uniform(*RUN_S), ending))
        if is_killed:
            kills += 1
            copy = folder / f"after-run-{broker_run}"
            shutil.copytree(folder / "store", copy)
            recording.note_kill(copy)
        else:
            stops += 1
    return kills, stops


async def _one_run(clients: Clients, run_s: float, ending: Callable[[], object]) -> None:
    async with asyncio.TaskGroup() as group:
        work = group.create_task(clients.work())
        await asyncio.wait([work], timeout=run_s)
        if work.done():
            raise BrokerFailed("the clients ended before the broker")
        await asyncio.to_thread(ending)


def moments(calls: list[Call], count: int, chance: random.Random) -> list[int]:
    """After how many calls the power is cut, each time; in order."""
    syncs = [
        number
        for number, call in enumerate(calls)
        if call.kind in (Kind.SYNC_BEGIN, Kind.SYNC_END, Kind.TRUNCATE, Kind.UNLINK)
    ]
    found = []
    for _ in range(count):
        if syncs and chance.random() < NEAR_A_SYNC:
            at = chance.choice(syncs) + chance.randint(-NEAR, NEAR)
        else:
            at = chance.randrange(len(calls))
        found.append(min(max(at, 1), len(calls) - 1))
    return sorted(found)


def _judge_images(
    calls: list[Call], timeline: Timeline, count: int, seed: int, folder: Path
) -> Report:
    chance = random.Random(f"{seed} images")
    book = Images()
    disk = Disk(folder / "store")
    whole_brokers = torn = done = 0
    contradictions = Report({})
    for number, at in enumerate(moments(calls, count, chance)):
        while done < at:
            disk.do(calls[done])
            done += 1
        torn += disk.pending_bytes > 0
        where = MEMORY_DISK if MEMORY_DISK.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="peeklock-image-", dir=where) as name:
            image = Path(name)
            said = f"image {number} after call {at} ({disk.leave(image, chance)})"
            try:
                found = read(image / DATABASE)
                looked = recovered_state.check_database(image / DATABASE)
            except Exception as error:  # noqa: BLE001 -- torn rows can fail anything that reads them
                book.violate("unreadable", f"{error!r}, {said}")
                continue
            timeline.judge(calls[at].time_ns, found, book, said)
            contradictions = contradictions.plus(Report({}, looked.violations))
            if number % WHOLE_BROKER_EVERY == 0:
                whole_brokers += 1
                _open_whole(image, found, book, said)
    counts = {"images": count, "of these torn": torn, "opened by a whole broker": whole_brokers}
    return Report({**counts, **timeline.counts}, book.violations).plus(contradictions)


def read(path: Path) -> Found:
    """What a broker would begin with. Raises `StorageError`."""
    store = SqliteStore(path)
    store.open()
    try:
        snapshot = store.load()
        paths = {entity.entity_id: entity.path.lower() for entity in snapshot.entities}
        rows = [
            (row.entity_id, row.sub_queue, row.payload_id)
            for packed, dead in snapshot.packed_messages
            for row in packed.live_rows(dead)
        ]
        payloads = store.read_payloads([payload_id for *_, payload_id in rows])
        found = Found(values=_values(snapshot, paths))
        for entity_id, sub_queue, payload_id in rows:
            place = paths.get(entity_id, "no entity"), sub_queue
            body, _ = payloads[payload_id]
            found.messages.setdefault(place, set()).add(key_of(bytes(body)))
        return found
    except KeyError as error:
        raise StorageError(f"a message without its body: {error}") from error
    finally:
        store.close()


def key_of(body: bytes) -> tuple[str, int]:
    """Which message it is."""
    data = body.rpartition(b"\x00\x53\x75")[2]
    sender, _, index = data[{0xA0: 2, 0xB0: 5}[data[0]] :].lstrip(b" ").decode().rpartition(":")
    return sender, int(index)


def _values(snapshot: Any, paths: dict[int, str]) -> dict[str, object]:
    values: dict[str, object] = {
        f"session {state.session_id}": bytes(state.state)
        for state in snapshot.session_states
        if paths.get(state.entity_id) == SESSIONS
    }
    for entity in snapshot.entities:
        if entity.path.lower() in ENTITIES:
            values[f"entity {entity.path.lower()}"] = _version(entity.definition)
    return values


def _version(definition: str) -> str:
    """The version that its user metadata tells."""
    return str(json.loads(definition).get("user_metadata"))


def _open_whole(image: Path, found: Found, book: Images, said: str) -> None:
    """A broker starts on it, is healthy, and counts as many messages as the store has."""
    storage = f"sqlite:///{image / DATABASE}"
    try:
        with BrokerProcess(config=CONFIG, storage=storage, testing_api=False) as broker:
            _, metrics = broker.request("GET", "/metrics")
    except BrokerFailed as error:
        book.violate("unreadable", f"{error}, {said}")
        return
    counted = sum(
        map(float, re.findall(r"^peeklock_messages{.*} (\S+)$", metrics.decode(), re.MULTILINE))
    )
    stored = sum(map(len, found.messages.values()))
    if counted != stored:
        book.violate("unreadable", f"a broker counts {counted} messages of {stored}, {said}")
