"""Operations of a hostile client that take a broker long.

Has the table of these abuses; each is limited in time. `noisy_neighbour.py` measures the delays of
other clients.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support import amqp_frames
from tests.support.frame_client import ConnectionEnded, FrameClient
from tests.support.server import HOST, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

ABUSE_MAX_S = 60.0
"""After so long an abuse is over, however far it got."""
FILL_BATCH = 5_000
BATCH_LARGEST = 100_000
"""As many messages as the broker takes at once, on all subscriptions together."""
ANSWER_TIMEOUT_S = 120.0
ATOMIC_MAX_MS = 1_000.0
"""The largest batch goes into memory and into the store in one piece: others wait for it."""
SMALL_MESSAGE = b"\x00\x53\x75\xa0\x04body"


class Abuse(NamedTuple):
    """Something a client does that concerns many messages or links at once."""

    entities: Callable[[], list[dict[str, Any]]]
    topics: Callable[[], list[dict[str, Any]]]
    prepare: Callable[[BrokerProcess], Any]
    act: Callable[[BrokerProcess, Any], None]
    p99_max_ms: float = 50.0
    """How long others may wait for it."""


def connect(broker: BrokerProcess) -> FrameClient:
    return FrameClient.opened(broker.amqp_port, incoming_window=1 << 30, timeout_s=ANSWER_TIMEOUT_S)


def _send_batch(
    client: FrameClient, delivery_id: int, count: int, message: bytes = SMALL_MESSAGE
) -> None:
    """Send so many small messages as one batch, and wait until it is accepted."""
    batched = b"\x00\x53\x75\xa0" + bytes([len(message)]) + message
    client.write(
        *amqp_frames.transfers(
            delivery_id, batched * count, message_format=amqp_frames.BATCH_FORMAT
        )
    )
    client.wait_until_settled(delivery_id, time.monotonic() + ANSWER_TIMEOUT_S)


def fill(broker: BrokerProcess, path: str, count: int, message: bytes = SMALL_MESSAGE) -> None:
    """So many small messages in a queue."""
    client = connect(broker)
    client.write(amqp_frames.attach_sender(address=path))
    client.count("flow", 1, time.monotonic() + ANSWER_TIMEOUT_S)
    for number in range(0, count, FILL_BATCH):
        _send_batch(client, number // FILL_BATCH, min(FILL_BATCH, count - number), message)
    client.close()


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


def queue(**properties: Any) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [{"Name": "abused", "Properties": properties}]


def _two_queues() -> list[dict[str, Any]]:
    return [{"Name": "abused"}, {"Name": "spare"}]


def no_entities() -> list[dict[str, Any]]:
    return []


def prepare_nothing(broker: BrokerProcess) -> None:
    del broker


def _wide_topic() -> list[dict[str, Any]]:
    return [{"Name": "wide", "Subscriptions": [{"Name": f"s{n}"} for n in range(2_000)]}]


def _fan_out(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    deadline_s = time.monotonic() + 15
    client = connect(broker)
    client.write(amqp_frames.attach_sender(address="wide"))
    client.count("flow", 1, deadline_s)
    client.write(b"".join(amqp_frames.transfer(number, SMALL_MESSAGE) for number in range(3_000)))
    client.wait_until_settled(2_999, deadline_s)
    client.close()


def filled(count: int, message: bytes = SMALL_MESSAGE) -> Callable[[BrokerProcess], None]:
    """So many messages in the abused queue."""
    return lambda broker: fill(broker, "abused", count, message)


def expire(broker: BrokerProcess, prepared: Any) -> None:
    """Move the clock so far that all messages of the queue expire, and wait for the last."""
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


def _hold_locks(broker: BrokerProcess) -> FrameClient:
    fill(broker, "abused", 200_000)
    client = connect(broker)
    client.write(amqp_frames.attach_receiver(address="abused", rcv_settle_mode=1))
    client.write(amqp_frames.flow(200_000, incoming_window=1 << 30))
    client.count("transfer", 200_000, time.monotonic() + ANSWER_TIMEOUT_S)
    return client


def _drop_holder(broker: BrokerProcess, prepared: FrameClient) -> None:
    del broker
    prepared.close()
    time.sleep(3)


def _delete_queue(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    status = _http(broker, "DELETE", "/abused?api-version=2021-05")
    assert status == http.HTTPStatus.OK, status
    time.sleep(5)


def _post_batch(count: int) -> Callable[[BrokerProcess, Any], None]:
    def post(broker: BrokerProcess, prepared: Any) -> None:
        del prepared
        body = json.dumps([{"Body": ""}] * count).encode()
        kind = "application/vnd.microsoft.servicebus.json"
        _http(broker, "POST", "/abused/messages", body, Content_Type=kind)

    return post


def _batch_to(address: str, count: int) -> Callable[[BrokerProcess, Any], None]:
    def send(broker: BrokerProcess, prepared: Any) -> None:
        del prepared
        client = connect(broker)
        client.write(amqp_frames.attach_sender(address=address))
        client.count("flow", 1, time.monotonic() + ANSWER_TIMEOUT_S)
        _send_batch(client, 0, count)
        client.close()

    return send


def _forward_backlog(broker: BrokerProcess, prepared: Any) -> None:
    """Have a queue forward what it holds to another."""
    del prepared
    description = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    body = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<QueueDescription xmlns="{description}"><ForwardTo>spare</ForwardTo></QueueDescription>'
        "</content></entry>"
    )
    path = "/abused?api-version=2021-05"
    status = _http(
        broker, "PUT", path, body.encode(), If_Match="*", Content_Type="application/atom+xml"
    )
    assert status == http.HTTPStatus.OK, status
    deadline_s = time.monotonic() + ABUSE_MAX_S
    while time.monotonic() < deadline_s and _active_messages(broker):
        time.sleep(0.2)


def _say_all(client: FrameClient, data: bytes) -> None:
    with suppress(ConnectionEnded):  # the broker may end a connection with too many links
        client.write(data)


def _attach_many(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    client = connect(broker)
    attaches = [
        amqp_frames.attach_sender(f"to-{number}", number, "abused") for number in range(20_000)
    ]
    speaking = threading.Thread(target=_say_all, args=(client, b"".join(attaches)))
    speaking.start()
    client.count("attach", 20_000, time.monotonic() + ABUSE_MAX_S)
    client.close()
    speaking.join()
    time.sleep(1)


def _attach_everywhere(broker: BrokerProcess, prepared: Any) -> None:
    """20,000 links on each of four connections."""
    del prepared
    attaches = b"".join(
        amqp_frames.attach_receiver(f"from-{number}", number, "abused") for number in range(20_000)
    )
    _say_on_many(broker, attaches)


def _begin_everywhere(broker: BrokerProcess, prepared: Any) -> None:
    """8,000 AMQP sessions on each of four connections, with a link each."""
    del prepared
    begins = b"".join(
        amqp_frames.begin_frame(channel)
        + amqp_frames.attach_receiver("from", 0, "$cbs", channel=channel)
        for channel in range(1, 8_000)
    )
    _say_on_many(broker, begins)


def _say_on_many(broker: BrokerProcess, data: bytes) -> None:
    """Sends the same on four connections at once. Each reads its answers until the end."""
    clients = [connect(broker) for _ in range(4)]
    speaking = [threading.Thread(target=_say_all, args=(client, data)) for client in clients]
    listening = [threading.Thread(target=_listen_all, args=(client,)) for client in clients]
    for thread in (*speaking, *listening):
        thread.start()
    for thread in speaking:
        thread.join()
    time.sleep(2)
    for client in clients:
        client.close()
    for thread in listening:
        thread.join()
    time.sleep(1)


def _listen_all(client: FrameClient) -> None:
    with suppress(ConnectionEnded):
        while True:
            client.receive()


def _rest(broker: BrokerProcess, prepared: Any) -> None:
    del broker, prepared
    time.sleep(3)


ABUSES: dict[str, Abuse] = {
    "nothing": Abuse(queue(), no_entities, prepare_nothing, _rest),
    "fan-out": Abuse(no_entities, _wide_topic, prepare_nothing, _fan_out),
    "mass-expiry": Abuse(
        queue(DefaultMessageTimeToLive="PT10M", DeadLetteringOnMessageExpiration=True),
        no_entities,
        filled(200_000),
        expire,
    ),
    "lock-holder": Abuse(queue(LockDuration="PT5M"), no_entities, _hold_locks, _drop_holder),
    "deletion": Abuse(queue(), no_entities, filled(500_000), _delete_queue),
    "json-batch": Abuse(queue(), no_entities, prepare_nothing, _post_batch(BATCH_LARGEST + 1)),
    "json-batch-max": Abuse(
        queue(), no_entities, prepare_nothing, _post_batch(BATCH_LARGEST), ATOMIC_MAX_MS
    ),
    "batch-max": Abuse(
        queue(), no_entities, prepare_nothing, _batch_to("abused", BATCH_LARGEST), ATOMIC_MAX_MS
    ),
    "wide-batch-max": Abuse(
        no_entities,
        _wide_topic,
        prepare_nothing,
        _batch_to("wide", BATCH_LARGEST // 2_000),
        ATOMIC_MAX_MS,
    ),
    "forwarding": Abuse(_two_queues, no_entities, filled(200_000), _forward_backlog),
    "attaches": Abuse(queue(), no_entities, prepare_nothing, _attach_many),
    "many-links": Abuse(queue(), no_entities, prepare_nothing, _attach_everywhere),
    "many-sessions": Abuse(queue(), no_entities, prepare_nothing, _begin_everywhere),
}
