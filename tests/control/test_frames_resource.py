"""The frames of stock clients and of hand-written ones, live and recorded, over every transport."""

from __future__ import annotations

import json
import ssl
from collections import Counter
from itertools import islice, takewhile
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from protocol.codec import Described, Symbol, ULong, encode
from tests.control.client import ControlClient
from tests.support.amqp_frames import (
    HEADER,
    SASL_HEADER,
    attach_sender,
    begin_frame,
    frame,
    open_frame,
    raw_frame,
    transfer,
)
from tests.support.frame_client import FrameClient, connect
from tests.support.server import HOST, BrokerProcess, root_token

BEGINNING = {
    "in": ["header", "sasl_init", "header", "open"],
    "out": ["header", "sasl_mechanisms", "sasl_outcome", "header", "open"],
}


def until(events, is_last):
    """Returns the frames up to the one that is asked for. The last frames of the SDK may be lost: it closes its
    socket without reading the answers, which resets the connection."""
    found = []
    for one in events:
        found.append(one)
        if is_last(one):
            return found
    raise AssertionError(found)


def until_closed(events, by: str = "in"):
    return until(events, lambda one: (by, "close") == (one["direction"], one["performative"]))


def until_accepted(events):
    """Returns the frames of the connection on which a message was accepted; before, its token was. Connections of
    earlier tests may still be ending."""
    accepted: Counter[str] = Counter()

    def is_last(one) -> bool:
        if ("out", "disposition") == (one["direction"], one["performative"]):
            accepted[one["connection"]] += 1
        return 2 in accepted.values()

    found = until(events, is_last)
    return [one for one in found if one["connection"] == found[-1]["connection"]]


def is_answer_of_management(frame) -> bool:
    properties = (frame["message"] or {}).get("application_properties", {})
    return frame["direction"] == "out" and "statusCode" in properties


def names(frames, direction: str):
    return [one["performative"] for one in frames if one["direction"] == direction]


def begins_with_the_first_byte(frames) -> bool:
    return all(
        expected == names(frames, direction)[: len(expected)]
        for direction, expected in BEGINNING.items()
    )


def opened(client: FrameClient, container_id: str, *after: bytes) -> None:
    client.write(HEADER, open_frame(container_id, HOST), begin_frame(), *after)
    client.skip_to("begin")


@pytest.fixture
def client(broker):
    with FrameClient(connect(broker.amqp_port)) as connected:
        yield connected


def test_a_stream_shows_what_the_sdk_does_from_its_first_byte(api, broker):
    """The stream is open before the client connects, and blanks what is secret."""
    container = f"test-{uuid4()}"
    with api.stream("/frames/stream", container_id="SBSender-*") as events:
        with ServiceBusClient.from_connection_string(broker.connection_string) as sdk:
            with sdk.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("hello", message_id=container))
        frames = until_accepted(events)
    assert begins_with_the_first_byte(frames)
    assert all(one["container_id"].startswith("SBSender-") for one in frames)
    sent = [one for one in frames if ("in", "transfer") == (one["direction"], one["performative"])]
    token, message = (one["message"] for one in sent)
    assert "put-token" == token["application_properties"]["operation"]
    assert "sig=***" in token["body"]["preview"]
    assert container == message["properties"]["message_id"]
    assert {"type": "data", "bytes": 5, "preview": "hello"} == message["body"]
    accepted = next(one for one in reversed(frames) if one["performative"] == "disposition")
    assert ("out", {"type": "accepted"}) == (accepted["direction"], accepted["fields"]["state"])
    assert "SAS_KEY_VALUE" not in json.dumps(frames)


def test_deliveries_settlements_and_requests_are_shown(api, broker, sdk):
    with sdk.get_queue_sender("retries") as sender:
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    with api.stream("/frames/stream", container_id="SBReceiver-*") as events:
        with sdk.get_queue_receiver("retries") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=10)
            token = str(message.lock_token)
            receiver.dead_letter_message(message, reason="Bad")
            receiver.peek_messages(1)
        frames = until(events, is_answer_of_management)
    delivered = [one["fields"] for one in frames if one["fields"].get("lock_token") == token]
    assert 1 == len(delivered)
    rejected = [one["fields"]["state"] for one in frames if one["performative"] == "disposition"]
    assert "Bad" in json.dumps(rejected)
    assert "com.microsoft:peek-message" in json.dumps(frames)


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated")  # the client's own doing
async def test_frames_over_a_websocket_are_shown(api, broker):
    with api.stream("/frames/stream", container_id="SBSender-*") as events:
        async with AsyncServiceBusClient.from_connection_string(
            broker.admin_connection_string,
            transport_type=TransportType.AmqpOverWebsocket,
            custom_endpoint_address=f"sb://127.0.0.1:{broker.http_port}",
        ) as sdk:
            async with sdk.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("x" * 100_000))
        frames = until_accepted(events)
    assert begins_with_the_first_byte(frames)
    assert 100_000 < sum(one["payload_bytes"] for one in frames)


def test_frames_over_tls_are_shown(api, broker, tls_folder):
    context = ssl.create_default_context(cafile=str(tls_folder / "ca.pem"))
    with api.stream("/frames/stream", container_id="over-tls") as events:
        wrapped = context.wrap_socket(connect(broker.amqp_port), server_hostname="localhost")
        with FrameClient(wrapped) as client:
            opened(client, "over-tls")
            client.write(attach_sender(address="orders"), frame("close"))
            client.skip_to("close")
        frames = until_closed(events)
    assert ["header", "open"] == names(frames, "in")[:2]


def test_what_is_shown_is_what_was_on_the_wire(api, client):
    """Delivery ids of the client before they are renumbered, and of the broker after."""
    with api.stream("/frames/stream", container_id="odd-ids") as events:
        opened(client, "odd-ids", attach_sender(address="retries"))
        client.skip_to("flow")
        payload = encode(Described(ULong(0x75), b"x"))
        client.write(transfer(7, payload), transfer(7, payload), transfer(3, payload))
        for _ in range(2):
            client.skip_to("disposition")
        client.write(frame("close"))
        frames = until_closed(events)
    numbers = {
        direction: [
            one["fields"].get("delivery_id", one["fields"].get("first"))
            for one in frames
            if one["direction"] == direction and one["performative"] in {"transfer", "disposition"}
        ]
        for direction in ("in", "out")
    }
    assert [7, 7, 3] == numbers["in"]
    assert {7, 3} == set(numbers["out"])


def test_a_view_can_begin_at_any_time(api, client):
    """Also within a frame of the client."""
    opened(client, "later", attach_sender(address="retries"))
    client.skip_to("flow")
    (connection,) = [
        one for one in api.get("/connections")["connections"] if one["container_id"] == "later"
    ]
    payload = encode(Described(ULong(0x75), b"x" * 1000))
    sent = transfer(0, payload) + transfer(1, payload)
    client.write(sent[:1500])
    client.skip_to("disposition")
    with api.stream(f"/connections/{connection['id']}/frames/stream") as events:
        client.write(sent[1500:])
        first, second = islice(events, 2)
        assert ("in", "transfer", 1) == (
            first["direction"],
            first["performative"],
            first["fields"]["delivery_id"],
        )
        assert ("out", "disposition") == (second["direction"], second["performative"])
        client.write(frame("close"))
        client.skip_to("close")
        client.close()
        assert ["close", "close"] == [one["performative"] for one in events]  # it ends


def test_the_last_frames_are_recorded_if_somebody_asks_for_it(api, broker):
    assert {"recording": False, "last": 0, "frames": []} == api.get("/frames")
    assert {"recording": True, "last": 5} == api.request(
        "PUT", "/frames", {"recording": True, "last": 5}
    ).content
    with FrameClient(connect(broker.amqp_port)) as client:
        opened(client, "recorded", attach_sender(address="orders"))
        client.skip_to("flow")
        client.write(frame("close"))
        client.skip_to("close")
    found = api.get("/frames", container_id="recorded")["frames"]
    assert 5 == len(found)
    assert "close" == names(found, "out")[-1]
    connection = found[0]["connection"]
    assert found == api.get(f"/connections/{connection}/frames", last=5)["frames"]
    assert found[-2:] == api.get("/frames", last=2, connection=connection)["frames"]
    assert found[2:] == api.get("/frames", after=found[1]["number"])["frames"]
    assert [] == api.get("/frames", container_id="other")["frames"]
    shorter = api.request("PUT", "/frames", {"recording": True, "last": 2}).content
    assert {"recording": True, "last": 2} == shorter
    assert found[-2:] == api.get("/frames")["frames"]
    assert {"recording": False, "last": 0} == api.request(
        "PUT", "/frames", {"recording": False}
    ).content
    assert [] == api.get("/frames")["frames"]
    missing = api.refused("GET", f"/connections/{connection}/frames")
    assert (404, "connection_not_found") == (missing.status, missing.error["code"])


def test_a_connection_that_is_not_recorded_has_no_frames(api, client):
    opened(client, "quiet")
    (connection,) = [
        one for one in api.get("/connections")["connections"] if one["container_id"] == "quiet"
    ]
    assert {"recording": False, "last": 0, "frames": []} == api.get(
        f"/connections/{connection['id']}/frames"
    )


def test_a_password_is_not_shown(api, broker):
    """The connection is refused, so the stream shows it when it has ended."""
    with api.stream("/frames/stream") as events:
        with FrameClient(connect(broker.amqp_port)) as client:
            init = Described(ULong(0x41), [Symbol("PLAIN"), b"\0RootKey\0hunter2", "host"])
            client.write(SASL_HEADER, raw_frame(encode(init), kind=1))
            client.skip_to("sasl-outcome")
        frames = list(islice(events, 5))
    assert BEGINNING["in"][:2] == names(frames, "in")
    assert BEGINNING["out"][:3] == names(frames, "out")
    fields = {one["performative"]: one["fields"] for one in frames}
    assert ("RootKey", "auth") == (fields["sasl_init"]["user"], fields["sasl_outcome"]["code"])
    assert "hunter2" not in json.dumps(frames)


def test_malformed_frames_are_shown_and_break_nothing(api, client):
    with api.stream("/frames/stream", container_id="broken") as events:
        opened(client, "broken", attach_sender(address="orders"))
        client.skip_to("flow")
        client.write(raw_frame(b"\x00\x53\x14\xc0\x50\x01\x43"), b"\xff" * 100)
        client.skip_to("close")
        frames = until_closed(events, by="out")
    malformed = [one for one in frames if one["performative"] == "malformed"]
    assert ["in", "in"] == [one["direction"] for one in malformed]
    assert all(one["error"] for one in malformed)
    assert 200 == api.request("GET", "/entities").status


def test_each_namespace_sees_its_own_clients(api, broker):
    """A key selects the namespace, so the frames before its token belong to it, too."""
    created = api.post("/namespaces", topology={"queues": {"orders": {}}})
    other = ControlClient(broker.http_port, created["name"])
    try:
        with other.stream("/frames/stream") as events, api.stream("/frames/stream") as elsewhere:
            with ServiceBusClient.from_connection_string(created["connection_string"]) as sdk:
                with sdk.get_queue_sender("orders") as sender:
                    sender.send_messages(ServiceBusMessage("hello"))
            frames = until_accepted(events)
            assert begins_with_the_first_byte(frames)
            with FrameClient(connect(broker.amqp_port)) as client:
                opened(client, "default", attach_sender(address="orders"))
                client.skip_to("flow")
                shown = next(iter(elsewhere))
            assert "default" == shown["container_id"]
    finally:
        api.request("DELETE", f"/namespaces/{created['name']}")


def test_a_recording_ends_with_its_namespace(api, broker):
    created = api.post("/namespaces", name="short-lived")
    other = ControlClient(broker.http_port, "short-lived")
    other.request("PUT", "/frames", {"recording": True})
    assert other.get("/frames")["recording"]
    assert 200 == api.request("DELETE", f"/namespaces/{created['name']}").status
    api.post("/namespaces", name="short-lived")
    assert not other.get("/frames")["recording"]
    api.request("DELETE", "/namespaces/short-lived")


def test_a_view_that_is_not_read_loses_the_oldest_frames(api, broker, client):
    """It holds no more than its share, and the broker serves its clients meanwhile."""
    with api.stream("/frames/stream", container_id="many") as events:
        opened(client, "many", attach_sender(address="retries"))
        client.skip_to("flow")
        payload = encode(Described(ULong(0x75), b"x" * 10_000))
        for start in range(0, 4_000, 500):
            batch = range(start, start + 500)
            client.write(*(transfer(number, payload, settled=True) for number in batch))
        client.write(transfer(4_000, payload))
        client.skip_to("disposition")
        client.write(frame("close"))
        client.skip_to("close")
        dropped = sum(one["count"] for one in takewhile(is_not_close, events) if "count" in one)
    assert 0 < dropped < 4_000
    api.post("/purge", entity="retries")


def is_not_close(event) -> bool:
    return ("out", "close") != (event.get("direction"), event.get("performative"))


def test_strict_authorization_asks_for_manage():
    with BrokerProcess(
        config={"queues": {"orders": {}}},
        testing_api=False,
        arguments=["--authorization", "strict", "--control-api", "true"],
    ) as broker:
        for path in ("/frames", "/frames/stream", "/connections/x/frames"):
            answer = ControlClient(broker.http_port).refused("GET", path)
            assert (401, "unauthorized") == (answer.status, answer.error["code"])
        api = ControlClient(broker.http_port, token=root_token())
        with api.stream("/frames/stream") as events:
            with ServiceBusClient.from_connection_string(broker.connection_string) as sdk:
                with sdk.get_queue_sender("orders") as sender:
                    sender.send_messages(ServiceBusMessage("hello"))
            frames = until_accepted(events)
        assert begins_with_the_first_byte(frames)
        assert "SAS_KEY_VALUE" not in json.dumps(frames)


def test_a_setting_records_frames_from_the_start_on():
    with BrokerProcess(
        config={"queues": {"orders": {}}}, testing_api=False, arguments=["--frames", "1000"]
    ) as broker:
        with ServiceBusClient.from_connection_string(broker.connection_string) as sdk:
            with sdk.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
        api = ControlClient(broker.http_port)
        found = api.get("/frames")
        assert (True, 1000) == (found["recording"], found["last"])
        assert begins_with_the_first_byte(found["frames"])
        api.request("PUT", "/frames", {"recording": False})
        assert {"recording": False, "last": 0, "frames": []} == api.get("/frames")
