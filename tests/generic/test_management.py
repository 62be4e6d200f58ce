"""`$management` requests of a generic client: every request is answered."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from proton import UNDESCRIBED, Array, Data, Message, int32, symbol, timestamp
from proton.utils import BlockingConnection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sdk.conftest import Live

TIMEOUT_S = 10
EVERY_SESSION = timestamp(253_402_300_800_000)
ARGUMENT_ERROR = (400, "com.microsoft:argument-error")
OUT_OF_RANGE = (400, "com.microsoft:argument-out-of-range")


class Node:
    """A pair of links to the `$management` of an entity."""

    def __init__(self, live: Live, entity: str) -> None:
        url = f"amqp://127.0.0.1:{live.process.amqp_port}"
        self.connection = BlockingConnection(url, timeout=TIMEOUT_S, allowed_mechs="ANONYMOUS")
        self._answers = self.connection.create_receiver(f"{entity}/$management", credit=10)
        self._requests = self.connection.create_sender(f"{entity}/$management")

    def ask(self, operation: str, body: object) -> tuple[tuple[int, str | None], Any]:
        """Status and condition of the answer, and its body."""
        message_id = uuid.uuid4()
        properties = {"operation": f"com.microsoft:{operation}"}
        self._requests.send(Message(id=message_id, body=body, properties=properties))
        answer = self._answers.receive()
        self._answers.accept()
        assert message_id == answer.correlation_id
        status: Any = answer.properties
        condition = status.get("errorCondition")
        return (int(status["statusCode"]), condition and str(condition)), answer.body


@pytest.fixture
def session_node(live: Live) -> Iterator[Node]:
    node = Node(live, live.queue(RequiresSession=True))
    yield node
    node.connection.close()


@pytest.mark.parametrize(
    ("operation", "body", "expected"),
    [
        ("no-such-operation", {}, (501, "amqp:not-implemented")),
        ("peek-message", None, ARGUMENT_ERROR),
        ("peek-message", "text", ARGUMENT_ERROR),
        ("peek-message", {"from-sequence-number": "one"}, ARGUMENT_ERROR),
        ("peek-message", {"message-count": int32(0)}, OUT_OF_RANGE),
        ("peek-message", {"message-count": int32(1)}, (204, None)),
        ("renew-lock", {}, ARGUMENT_ERROR),
        ("renew-lock", {"lock-tokens": Array(UNDESCRIBED, Data.UUID)}, ARGUMENT_ERROR),
        ("renew-lock", {"lock-tokens": ["no uuid"]}, ARGUMENT_ERROR),
        ("renew-lock", {"lock-tokens": [uuid.uuid4()]}, (410, "com.microsoft:message-lock-lost")),
        ("update-disposition", {"lock-tokens": [uuid.uuid4()]}, ARGUMENT_ERROR),
        ("schedule-message", {"messages": [{"message": b"no message"}]}, ARGUMENT_ERROR),
        ("cancel-scheduled-message", {"sequence-numbers": ["one"]}, ARGUMENT_ERROR),
        ("get-session-state", {"session-id": 1}, ARGUMENT_ERROR),
        (
            "get-session-state",
            {"session-id": "nobody's"},
            (410, "com.microsoft:session-lock-lost"),
        ),
        ("get-message-sessions", {"skip": int32(-1)}, OUT_OF_RANGE),
        ("get-message-sessions", {"top": int32(-1)}, OUT_OF_RANGE),
        ("get-message-sessions", {"skip": 1 << 40}, OUT_OF_RANGE),
        ("batch-delete-messages", {"message-count": int32(1)}, ARGUMENT_ERROR),
    ],
)
def test_an_odd_request_gets_a_clear_status(
    session_node: Node, operation: str, body: object, expected: tuple[int, str | None]
) -> None:
    """Without an answer a client would wait until its timeout."""
    assert expected == session_node.ask(operation, body)[0]


def test_a_page_of_sessions_may_begin_after_an_id(live: Live) -> None:
    """However much a client says it has skipped before: the Java SDK gives both."""
    queue = live.queue(RequiresSession=True)
    node = Node(live, queue)
    sender = node.connection.create_sender(queue)
    for session_id in ("a", "b"):
        sender.send(Message(body="hello", group_id=session_id))
    request = {
        "last-updated-time": EVERY_SESSION,
        "last-session-id": "a",
        "skip": int32(2_147_483_647),
        "top": int32(100),
    }
    status, body = node.ask("get-message-sessions", request)
    assert ((200, None), ["b"]) == (status, list(body["sessions-ids"].elements))
    node.connection.close()


def test_deleting_from_an_empty_queue_says_that_nothing_was_found(live: Live) -> None:
    """JavaScript takes 204 for "none" only with this condition."""
    node = Node(live, live.queue())
    request = {"message-count": int32(10), "enqueued-time-utc": EVERY_SESSION}
    status, body = node.ask("batch-delete-messages", request)
    assert ((204, "com.microsoft:message-not-found"), 0) == (status, body["message-count"])
    node.connection.close()


def test_deleting_includes_the_millisecond_of_the_given_time(live: Live) -> None:
    """A client that purges right after a send gives the time without its microseconds, and the
    message was enqueued within the same millisecond more often than not."""
    queue = live.queue()
    node = Node(live, queue)
    node.connection.create_sender(queue).send(Message(body="a"))
    _, answer = node.ask("peek-message", {"from-sequence-number": 0, "message-count": int32(1)})
    peeked = Message()
    peeked.decode(bytes(answer["messages"][0]["message"]))
    enqueued_ms = int(peeked.annotations["x-opt-enqueued-time"])
    counts = []
    for before_ms in (enqueued_ms - 1, enqueued_ms):
        request = {"message-count": int32(10), "enqueued-time-utc": timestamp(before_ms)}
        counts.append(node.ask("batch-delete-messages", request)[1]["message-count"])
    assert [0, 1] == counts
    node.connection.close()


@pytest.mark.parametrize("with_annotations", [False, True])
@pytest.mark.parametrize(("body", "size"), [(b"bytes", 10), ("a value", 12), (["a", "b"], 18)])
def test_peek_can_omit_the_body(
    live: Live, body: object, size: int, with_annotations: bool
) -> None:
    """Everything else is shown, and the message keeps its body. The size of the body is in the
    delivery annotations, which a peeked message always has: the JavaScript SDK's tests read them
    without a check."""
    queue = live.queue()
    node = Node(live, queue)
    sent = Message(body=body, id="m1", subject="s", properties={"p": 1}, inferred=True)
    sent.instructions = {symbol("mine"): 1} if with_annotations else None
    node.connection.create_sender(queue).send(sent)
    request = {"from-sequence-number": 0, "message-count": int32(1)}

    def peek(**more: object) -> Message:
        status, answer = node.ask("peek-message", {**request, **more})
        assert (200, None) == status
        peeked = Message()
        peeked.decode(bytes(answer["messages"][0]["message"]))
        return peeked

    without = peek(**{"omit-message-body": True})
    shown: Any = (without.body, without.id, without.subject, without.properties)
    assert (None, "m1", "s", {"p": 1}) == shown
    own = {"mine": 1} if with_annotations else {}
    assert {**own, "omitted-message-body-size": size} == without.instructions
    for peeked in (peek(**{"omit-message-body": False}), peek()):
        assert (sent.body, own) == (peeked.body, peeked.instructions)
    node.connection.close()
