"""What a well-behaved client feels of its neighbours.

One client sends and receives a message at a time, from a process of its own, while another does on
purpose what takes a broker long. Owns the table of such abuses; each is bounded in time. The figures
are the first client's round trips during the abuse, and how large the broker got.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import socket
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cproton_ffi import lib

from tests.bench.observe import resident_megabytes
from tests.support import wire
from tests.support.proton_client import ProtonClient
from tests.support.server import HOST, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

VICTIM = "victim"
LATENCY_LIMIT_MS = 50.0
MEMORY_LIMIT_MEGABYTES = 300.0
ABUSE_MAX_S = 60.0
"""After so long an abuse is over, however far it got."""
CALM_S = 1.0
"""How long the victim goes on after an abuse: parts of it may be left to do."""
ARRIVALS_EVERY_S = 0.005
FILL_BATCH = 5_000
ANSWER_TIMEOUT_S = 120.0
_BODY = b"\x00\x53\x75\xa0\x04body"
_BATCHED = b"\x00\x53\x75\xa0" + bytes([len(_BODY)]) + _BODY


class Felt(NamedTuple):
    """What the victim felt of one abuse."""

    name: str
    seconds: float
    rounds: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    megabytes_before: float
    megabytes: float
    """The most there was during it."""

    @property
    def failed(self) -> bool:
        return self.p99_ms > LATENCY_LIMIT_MS

    def __str__(self) -> str:
        return (
            f"{self.name:<16} {self.seconds:6.1f} s {self.rounds:>6} rounds  "
            f"p50 {self.p50_ms:7.1f}  p99 {self.p99_ms:8.1f}  max {self.max_ms:8.1f} ms  "
            f"{self.megabytes_before:6.0f} -> {self.megabytes:6.0f} MB"
        )


class Abuse(NamedTuple):
    """Something a client does that concerns many messages or links at once."""

    entities: Callable[[], list[dict[str, Any]]]
    topics: Callable[[], list[dict[str, Any]]]
    prepare: Callable[[BrokerProcess], Any]
    act: Callable[[BrokerProcess, Any], None]


# --- a client by hand: nothing on its side takes time ------------------------------------------


class RawClient:
    """A connection whose frames are written by hand."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self.is_closed = False
        self.say(wire.HEADER + wire.open_frame() + wire.begin_frame(incoming_window=1 << 30))

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def listen(self) -> list[tuple[int, bytes]]:
        """The next whole frames: performative code and frame."""
        read = self._socket.recv(1 << 20)
        self.is_closed = not read
        data = self._rest + read
        found = []
        position = 0
        while len(data) - position >= 8:
            if data[position : position + 4] == b"AMQP":
                position += 8
                continue
            size = int.from_bytes(data[position : position + 4])
            if len(data) - position < size:
                break
            if size > 11:
                found.append((data[position + 10], data[position : position + size]))
            position += size
        self._rest = data[position:]
        return found

    def wait_for(self, name: str, count: int, deadline_s: float) -> int:
        """Until so many frames of a kind have come, or the time is over; how many came."""
        code = wire.PERFORMATIVES[name]
        seen = 0
        while seen < count and time.monotonic() < deadline_s and not self.is_closed:
            seen += sum(1 for kind, _ in self.listen() if kind == code)
        return seen

    def wait_until_settled(self, last_id: int, deadline_s: float) -> None:
        """Until the broker has accepted the delivery with this id."""
        code = wire.PERFORMATIVES["disposition"]
        while time.monotonic() < deadline_s and not self.is_closed:
            for kind, data in self.listen():
                if kind == code:
                    disposition = wire.frames(data)[0]
                    if max(disposition[1], disposition[2] or 0) >= last_id:
                        return

    def drop(self) -> None:
        self._socket.close()


def fill(broker: BrokerProcess, path: str, count: int) -> None:
    """So many small messages in a queue."""
    client = RawClient(broker.amqp_port)
    client.say(wire.attach_sender(address=path))
    client.wait_for("flow", 1, time.monotonic() + ANSWER_TIMEOUT_S)
    for number in range(0, count, FILL_BATCH):
        size = min(FILL_BATCH, count - number)
        payload = _BATCHED * size
        delivery_id = number // FILL_BATCH
        pieces = [payload[at : at + 60_000] for at in range(0, len(payload), 60_000)]
        for index, piece in enumerate(pieces):
            client.say(
                wire.transfer(
                    delivery_id,
                    piece,
                    message_format=wire.BATCH_FORMAT,
                    more=True if index < len(pieces) - 1 else None,
                )
            )
        client.wait_until_settled(delivery_id, time.monotonic() + ANSWER_TIMEOUT_S)
    client.drop()


def _http(broker: BrokerProcess, method: str, path: str, body: bytes = b"", **headers: str) -> int:
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=ANSWER_TIMEOUT_S)
    try:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


# --- the abuses --------------------------------------------------------------------------------


def _queue(**properties: Any) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [{"Name": "abused", "Properties": properties}]


def _nothing() -> list[dict[str, Any]]:
    return []


def _prepare_nothing(broker: BrokerProcess) -> None:
    del broker


def _wide_topic() -> list[dict[str, Any]]:
    return [{"Name": "wide", "Subscriptions": [{"Name": f"s{n}"} for n in range(2_000)]}]


def _fan_out(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    deadline_s = time.monotonic() + 15
    client = RawClient(broker.amqp_port)
    client.say(wire.attach_sender(address="wide"))
    client.wait_for("flow", 1, deadline_s)
    client.say(b"".join(wire.transfer(number, _BODY) for number in range(3_000)))
    client.wait_until_settled(2_999, deadline_s)
    client.drop()


def _filled(count: int) -> Callable[[BrokerProcess], None]:
    return lambda broker: fill(broker, "abused", count)


def _expire(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    broker.request("POST", "/$peeklock/clock", {"advance_ms": 3_600_000}, timeout_s=60)
    deadline_s = time.monotonic() + ABUSE_MAX_S
    while time.monotonic() < deadline_s and _active_messages(broker):
        time.sleep(0.2)


def _active_messages(broker: BrokerProcess) -> bool:
    """Whether the abused queue still has any but dead letters."""
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/abused?api-version=2021-05")
        return b"ActiveMessageCount>0<" not in connection.getresponse().read()
    finally:
        connection.close()


def _hold_locks(broker: BrokerProcess) -> RawClient:
    fill(broker, "abused", 200_000)
    client = RawClient(broker.amqp_port)
    client.say(wire.attach_receiver(address="abused", rcv_settle_mode=1))
    client.say(wire.flow(200_000, incoming_window=1 << 30))
    client.wait_for("transfer", 200_000, time.monotonic() + ANSWER_TIMEOUT_S)
    return client


def _drop_holder(broker: BrokerProcess, prepared: RawClient) -> None:
    del broker
    prepared.drop()
    time.sleep(3)


def _delete_queue(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    status = _http(broker, "DELETE", "/abused?api-version=2021-05")
    assert status == http.HTTPStatus.OK, status
    time.sleep(5)


def _post_batch(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    body = json.dumps([{"Body": ""}] * 100_001).encode()
    kind = "application/vnd.microsoft.servicebus.json"
    _http(broker, "POST", "/abused/messages", body, Content_Type=kind)


def _say_all(client: RawClient, data: bytes) -> None:
    with suppress(OSError):  # the broker may end a connection with too many links
        client.say(data)


def _attach_many(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    client = RawClient(broker.amqp_port)
    attaches = [wire.attach_sender(f"to-{number}", number, "abused") for number in range(20_000)]
    speaking = threading.Thread(target=_say_all, args=(client, b"".join(attaches)))
    speaking.start()
    client.wait_for("attach", 20_000, time.monotonic() + ABUSE_MAX_S)
    client.drop()
    speaking.join()
    time.sleep(1)


def _rest(broker: BrokerProcess, prepared: Any) -> None:
    del broker, prepared
    time.sleep(3)


ABUSES: dict[str, Abuse] = {
    "nothing": Abuse(_queue(), _nothing, _prepare_nothing, _rest),
    "fan-out": Abuse(_nothing, _wide_topic, _prepare_nothing, _fan_out),
    "mass-expiry": Abuse(
        _queue(DefaultMessageTimeToLive="PT10M", DeadLetteringOnMessageExpiration=True),
        _nothing,
        _filled(200_000),
        _expire,
    ),
    "lock-holder": Abuse(_queue(LockDuration="PT5M"), _nothing, _hold_locks, _drop_holder),
    "deletion": Abuse(_queue(), _nothing, _filled(500_000), _delete_queue),
    "json-batch": Abuse(_queue(), _nothing, _prepare_nothing, _post_batch),
    "attaches": Abuse(_queue(), _nothing, _prepare_nothing, _attach_many),
}


# --- the victim --------------------------------------------------------------------------------


def _live(port: int, pipe: Connection) -> None:
    """Send and receive one message at a time until told to stop; give back each round's time."""
    client = ProtonClient(HOST, port, "victim")
    sender = client.attach_sender(VICTIM, name="to")
    client.wait_until_attached(sender, 30)
    receiver = client.attach_receiver(VICTIM, name="from")
    client.wait_until_attached(receiver, 30)
    lib.pn_link_flow(receiver, 1)
    client.flush()
    rounds: list[tuple[float, float]] = []
    number = 0
    pipe.send("ready")
    while not pipe.poll():
        number += 1
        began_s = time.monotonic()
        client.send(sender, _BODY, b"%d" % number)
        client.flush()
        accepted = received = False
        while not (accepted and received):
            client.wait(1.0)
            client.receive()
            while event := lib.pn_collector_peek(client.collector):
                if lib.pn_event_type(event) == lib.PN_DELIVERY:
                    delivery = lib.pn_event_delivery(event)
                    link = lib.pn_delivery_link(delivery)
                    if lib.pn_link_is_sender(link):
                        accepted = True
                    elif not received:
                        client.take(link, delivery)
                        lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
                        received = True
                        lib.pn_link_flow(receiver, 1)
                    lib.pn_delivery_settle(delivery)
                else:
                    client.check(event)
                lib.pn_collector_pop(client.collector)
            client.flush()
        rounds.append((began_s, time.monotonic() - began_s))
        time.sleep(0.001)
    pipe.send(rounds)


def feel(name: str, storage: str | None = None) -> Felt:
    """Run one abuse beside a victim."""
    abuse = ABUSES[name]
    config = {
        "UserConfig": {
            "Namespaces": [
                {
                    "Name": "sbemulatorns",
                    "Queues": [{"Name": VICTIM}, *abuse.entities()],
                    "Topics": abuse.topics(),
                }
            ]
        }
    }
    with tempfile.TemporaryDirectory(prefix="peeklock-neighbours-") as folder:
        url = storage or f"sqlite:///{Path(folder) / 'store.db'}"
        with BrokerProcess(config=config, storage=url) as broker:
            prepared = abuse.prepare(broker)
            return _feel(name, broker, lambda: abuse.act(broker, prepared))


def _feel(name: str, broker: BrokerProcess, act: Callable[[], None]) -> Felt:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    victim = context.Process(target=_live, args=(broker.amqp_port, theirs), daemon=True)
    victim.start()
    assert ours.recv() == "ready"
    time.sleep(CALM_S)
    before = resident_megabytes(broker.process_id)
    sizes = [before]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            sizes.append(resident_megabytes(broker.process_id))

    watching = threading.Thread(target=watch)
    watching.start()
    began_s = time.monotonic()
    try:
        act()
        ended_s = time.monotonic()
        time.sleep(CALM_S)
    finally:
        over.set()
        watching.join()
        ours.send("stop")
    rounds: list[tuple[float, float]] = ours.recv()
    victim.join()
    during = [took_s for at_s, took_s in rounds if at_s + took_s >= began_s and at_s <= ended_s]
    felt = sorted(waited_s * 1e3 for took_s in during for waited_s in _waits(took_s))
    return Felt(
        name,
        ended_s - began_s,
        len(during),
        statistics.median(felt),
        felt[min(len(felt) - 1, int(len(felt) * 0.99))],
        felt[-1],
        before,
        max(sizes),
    )


def _waits(took_s: float) -> list[float]:
    """What clients would have waited that came steadily while one round lasted: the victim itself
    asks for nothing more while it waits, and so would count a standstill only once."""
    return [took_s - late * ARRIVALS_EVERY_S for late in range(int(took_s / ARRIVALS_EVERY_S) + 1)]


def run_neighbours(names: list[str] | None = None) -> list[Felt]:
    """Each abuse of the table, or of these, with a broker of its own on a file."""
    results = []
    for name in names or ABUSES:
        felt = feel(name)
        print(f"{'FAILED' if felt.failed else 'ok':<6} {felt}", flush=True)
        results.append(felt)
    return results
