"""A broker that is killed during a restore or a snapshot: the namespace has one state or the other, never a mixture.
Clients that send meanwhile find everything that was accepted after the restore."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.control.client import ControlClient
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.control.client import Answer

KILLS = 6
COUNT = 3_000
TOPOLOGY: dict[str, Any] = {"queues": {"orders": {}, "done": {}}}


def bulk(api: ControlClient, queue: str, count: int) -> None:
    messages = [{"body": f"{number}" * 20} for number in range(count)]
    api.post("/messages", entity=queue, messages=messages)


def counts(api: ControlClient) -> tuple[int, int]:
    entities = api.get("/entities")["entities"]
    found = {entity["path"]: entity["counts"]["active"] for entity in entities}
    return found["orders"], found["done"]


def test_a_killed_broker_has_restored_all_or_nothing(tmp_path: Path):
    """In whichever part of the copy it was killed. Snapshots stay usable, and nothing is left behind."""
    with BrokerProcess(storage=f"sqlite:///{tmp_path / 'peeklock.db'}") as broker:
        root = ControlClient(broker.http_port)
        root.post("/namespaces", name="killed", topology=TOPOLOGY)
        api = ControlClient(broker.http_port, "killed")
        bulk(api, "orders", COUNT)
        api.post("/snapshots", name="full")
        api.post("/purge", entity="orders")
        bulk(api, "done", 2)
        api.post("/snapshots", name="done")
        states = {"full": (COUNT, 0), "done": (0, 2)}
        before = "done"
        seen = set()
        began_s = time.monotonic()
        api.post("/snapshots/full/restore")
        takes_s = time.monotonic() - began_s
        api.post("/snapshots/done/restore")
        for number in range(KILLS):
            target = "full" if before == "done" else "done"

            def restore(name: str = target) -> None:
                with suppress(OSError):  # the broker was killed
                    api.post(f"/snapshots/{name}/restore")

            running = threading.Thread(target=restore)
            running.start()
            time.sleep(takes_s * (number + 0.5) / (KILLS - 2))
            broker.kill()
            running.join()
            broker.start()
            found = counts(api)
            assert found in states.values()
            seen.add(found == states[target])
            before = next(name for name, state in states.items() if state == found)
            names = [one["name"] for one in api.get("/snapshots")["snapshots"]]
            assert ["done", "full"] == names
        for name, state in states.items():
            api.post(f"/snapshots/{name}/restore")
            assert state == counts(api)
        print(f"both outcomes: {seen}")


def test_what_is_accepted_after_a_restore_is_there():
    """Senders never stop. What was accepted before the restore was answered may be gone, nothing else."""
    with BrokerProcess() as broker:
        root = ControlClient(broker.http_port)
        created = root.post("/namespaces", topology=TOPOLOGY)
        api = ControlClient(broker.http_port, created["name"])
        api.post("/snapshots", name="empty")
        accepted: list[tuple[float, str]] = []
        failures: list[Exception] = []
        stop = threading.Event()

        def keep_sending(sender_number: int) -> None:
            number = 0
            try:
                with (
                    ServiceBusClient.from_connection_string(created["connection_string"]) as client,
                    client.get_queue_sender("orders") as sender,
                ):
                    while not stop.is_set():
                        text = f"{sender_number}-{number}"
                        begun_s = time.monotonic()
                        sender.send_messages(ServiceBusMessage(text))
                        accepted.append((begun_s, text))
                        number += 1
            except ServiceBusError as error:
                failures.append(error)

        senders = [threading.Thread(target=keep_sending, args=(one,)) for one in range(3)]
        for sender in senders:
            sender.start()
        restored_s = 0.0
        for _ in range(4):
            time.sleep(0.4)
            answer: Answer = api.request("POST", "/snapshots/empty/restore", {})
            assert 200 == answer.status
            restored_s = time.monotonic()
        deadline_s = time.monotonic() + 30
        while (
            sum(begun_s > restored_s for begun_s, _ in accepted) < 20
        ):  # clients retry after a second or so
            assert time.monotonic() < deadline_s
            assert [] == failures
            time.sleep(0.05)
        stop.set()
        for sender in senders:
            sender.join()
        assert [] == failures
        found = {one["body"] for page in pages(api) for one in page["messages"]}
        after = {text for begun_s, text in accepted if begun_s > restored_s}
        assert len(after) >= 20
        assert set() == after - found


def pages(api: ControlClient):
    """All messages of `orders`."""
    after = None
    while True:
        query = {"entity": "orders", "limit": 500} | ({} if after is None else {"after": after})
        page = api.get("/messages", **query)
        yield page
        after = page["next"]
        if after is None:
            return


def test_an_operation_ends_though_the_client_that_asked_for_it_is_gone(tmp_path: Path):
    """A restore is completed, and its clients come back; a snapshot that nobody waits for is there."""
    with BrokerProcess(storage=f"sqlite:///{tmp_path / 'peeklock.db'}") as broker:
        root = ControlClient(broker.http_port)
        created = root.post("/namespaces", name="left", topology=TOPOLOGY)
        api = ControlClient(broker.http_port, "left")
        bulk(api, "orders", COUNT)
        _ask_and_leave(broker.http_port, "/snapshots", b'{"name": "s"}')
        assert COUNT == _eventually(lambda: _snapshot_messages(api))
        api.post("/purge", entity="orders")
        with ServiceBusClient.from_connection_string(created["connection_string"]) as client:
            sender = client.get_queue_sender("orders")
            sender.send_messages(ServiceBusMessage("before"))
            _ask_and_leave(broker.http_port, "/snapshots/s/restore", b"{}")
            assert _eventually(lambda: counts(api)[0] == COUNT)
            sender.send_messages(ServiceBusMessage("after"))
        assert COUNT + 1 == counts(api)[0]


def test_http_requests_are_answered_though_their_namespace_is_replaced(tmp_path: Path):
    """A request that attaches or sends during a restore is refused, and its client tries again. It does not wait for
    ever."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(config=TOPOLOGY, storage=storage) as broker:
        api = ControlClient(broker.http_port)
        bulk(api, "orders", COUNT)
        api.post("/snapshots", name="s")
        statuses: list[int] = []
        stop = threading.Event()

        def keep_sending() -> None:
            while not stop.is_set():
                statuses.append(_send_over_http(broker.http_port))

        with ThreadPoolExecutor(4) as threads:
            senders = [threads.submit(keep_sending) for _ in range(4)]
            try:
                _eventually(lambda: 201 in statuses)
                for _ in range(3):
                    api.post("/snapshots/s/restore")
            finally:
                stop.set()
            for sender in senders:
                sender.result()  # raises TimeoutError if a request got no answer
        assert {201, 503} == set(statuses)
        assert 201 == _send_over_http(broker.http_port)


def _send_over_http(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/done/messages", b"sent")
        return connection.getresponse().status
    finally:
        connection.close()


def _ask_and_leave(port: int, path: str, body: bytes) -> None:
    head = f"POST /$peeklock/v1/namespaces/left{path} HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as asking:
        asking.sendall(head.encode() + body)
        time.sleep(0.02)


def _snapshot_messages(api: ControlClient) -> int:
    return sum(one["messages"] for one in api.get("/snapshots")["snapshots"])


def _eventually(look: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found
