"""The .NET SDK's habits against a live broker, each as its sources show it.

Every test is an operation of that SDK, said in the frames it would send; `dotnet_client` asserts on
the way what that SDK would throw at.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from protocol.codec import (
    Array,
    ArrayCode,
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    encode,
)
from tests.support.amqp_frames import BATCH_FORMAT, described
from tests.support.dotnet_client import PRODUCT, DotNetClient
from tests.support.dotnet_links import (
    ABANDONED,
    ACCEPTED,
    ATTACH_PROPERTIES,
    ATTACH_SOURCE,
    DEFERRED,
    REJECTED,
    TRANSFER_SETTLED,
    Refused,
    dead_lettered,
    message,
)
from tests.support.dotnet_setup import SESSION_FILTER, bodies, left_in, send
from tests.support.message_sections import sections_of
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from tests.support.dotnet_links import Received, Receiver
    from tests.support.dotnet_setup import DotNetSetup

TICKS_OF_1970 = 621_355_968_000_000_000
LAST_MS = 253_402_300_799_999
"""What `DateTime.MaxValue` is in AMQP."""


# --- connecting and claiming -------------------------------------------------------------------


def test_token_for_the_namespace_serves_every_entity(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """`sr` is `amqps://host/` in lower case, the claim an `amqp` address: it is accepted."""
    queue = setup.queue()
    assert client.claim(queue)["status-code"] in (200, 202)
    assert client.claim(f"{queue}/$management")["status-code"] in (200, 202)


def test_wrong_key_is_unauthorized(setup: DotNetSetup, client: DotNetClient) -> None:
    """A 401 with a description: the SDK makes its authorization error of it."""
    answer = client.claim(setup.queue(), key="wrong")
    assert 401 == answer["status-code"]


def test_strict_broker_takes_the_same_token() -> None:
    """Signature, expiry and claims are verified over what was signed, not over what is claimed."""
    strict = {"PEEKLOCK_AUTHORIZATION": "strict"}
    with BrokerProcess(environment=strict) as broker, DotNetClient(broker.amqp_port) as client:
        assert client.claim("queue.1")["status-code"] in (200, 202)
        send(client, "queue.1", b"hello")
        assert [b"hello"] == left_in(client, "queue.1")


@pytest.mark.parametrize("name", ["plain", "UPPER", "with~tilde", "a/b", "dots.and_lines"])
def test_addresses_are_absolute_paths(setup: DotNetSetup, client: DotNetClient, name: str) -> None:
    """A leading slash, escapes, and the case the user wrote."""
    queue = setup.queue(name)
    send(client, queue.swapcase(), b"hello")
    receiver = client.receiver(queue)
    (received,) = receiver.receive()
    assert b"hello" == received.body
    receiver.settle(received, ACCEPTED)


def test_escapes_in_addresses_are_read(setup: DotNetSetup, client: DotNetClient) -> None:
    """`%2D` is a hyphen at any position."""
    queue = setup.queue("escaped")
    client.claim(queue)
    link = client.attach(
        client.begin(),
        "escaped-link",
        receives=False,
        source=Described(ULong(0x28), ["identifier"]),
        target=Described(ULong(0x29), [f"/{queue.replace('-', '%2D')}"]),
    )
    assert f"/{queue.replace('-', '%2D')}" == link.answer[6].value[0]


def test_missing_entity_is_named_in_the_words_the_sdk_looks_for(client: DotNetClient) -> None:
    """A null end, then a detach that says which entity could not be found."""
    with pytest.raises(Refused, match=r"The messaging entity .* could not be found") as refused:
        client.sender("nowhere")
    assert "amqp:not-found" == refused.value.condition
    with pytest.raises(Refused, match=r"The messaging entity .* could not be found"):
        client.receiver("nowhere")


# --- sending and receiving ---------------------------------------------------------------------


def test_send_is_accepted_and_received_by_credit(setup: DotNetSetup, client: DotNetClient) -> None:
    """As many come as credit was given for, each with a lock token for a tag."""
    queue = setup.queue()
    send(client, queue, b"a", b"b", b"c")
    receiver = client.receiver(queue)
    received = receiver.receive(2)
    assert [b"a", b"b"] == bodies(received)
    assert [0, 0] == [one.delivery_count for one in received]
    assert 2 == len({one.lock_token for one in received})
    for one in received:
        assert ACCEPTED.descriptor == receiver.settle(one, ACCEPTED).descriptor
    assert [b"c"] == left_in(client, queue)


def test_batch_is_one_transfer_of_many_messages(setup: DotNetSetup, client: DotNetClient) -> None:
    """The format says that the data sections are messages."""
    queue = setup.queue()
    parts = [message(body) for body in (b"a", b"b", b"c")]
    payload = b"".join(encode(Described(ULong(0x75), part)) for part in parts)
    client.sender(queue).send(payload, message_format=BATCH_FORMAT)
    assert [b"a", b"b", b"c"] == left_in(client, queue)


def test_receive_and_delete_comes_settled(setup: DotNetSetup, client: DotNetClient) -> None:
    """The sender settles; what the SDK says afterwards is heard in silence."""
    queue = setup.queue()
    send(client, queue, b"a")
    (received,) = client.receiver(queue, deletes=True).receive()
    assert received.transfer[TRANSFER_SETTLED] is True
    assert [] == left_in(client, queue)


def test_closing_drains_first(setup: DotNetSetup, client: DotNetClient) -> None:
    """`CloseAsync` takes its credit back before it detaches, and waits for the answer."""
    queue = setup.queue()
    receiver = client.receiver(queue)
    receiver.link.flow(50)
    receiver.close()
    send(client, queue, b"for the next one")
    (received,) = client.receiver(queue).receive()
    assert b"for the next one" == received.body


def test_late_message_is_kept_for_the_next_call(setup: DotNetSetup, client: DotNetClient) -> None:
    """Credit that found nothing stays, and a message that comes later is pushed."""
    queue = setup.queue()
    receiver = client.receiver(queue)
    receiver.link.flow(1)
    send(client, queue, b"late")
    assert b"late" == receiver.next().body


def test_late_message_may_be_released_as_often_as_there_is_credit(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """Older releases of the SDK give back what no call waits for; that is no delivery."""
    queue = setup.queue()
    receiver = client.receiver(queue)
    receiver.link.flow(3)
    send(client, queue, b"late")
    for _ in range(3):
        receiver.release(receiver.next())
    (received,) = receiver.receive()
    assert (b"late", 0) == (received.body, received.delivery_count)


def test_closing_releases_what_was_prefetched_and_ends_the_session_in_one_go(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """No answer is awaited in between; the next receiver finds everything as it was."""
    queue = setup.queue()
    send(client, queue, b"a", b"b", b"c")
    with setup.client() as other:
        receiver = other.receiver(queue)
        received = receiver.receive(3)
        receiver.release(received[0], received[2])
        receiver.link.close_session()
    again = client.receiver(queue).receive(3)
    assert [(b"a", 0), (b"b", 0), (b"c", 0)] == [(one.body, one.delivery_count) for one in again]


def test_session_receiver_drains_even_when_no_credit_is_left(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """It does so whenever it got less than it asked for, and waits for the answer."""
    queue = setup.queue(RequiresSession=True)
    send(client, queue, b"a", session_id="one")
    receiver = client.receiver(queue, filters={SESSION_FILTER: "one"})
    receiver.receive()
    for _ in range(2):
        receiver.drain(0)


# --- settling ----------------------------------------------------------------------------------


def locked(
    setup: DotNetSetup, client: DotNetClient, body: bytes = b"a"
) -> tuple[Receiver, Received]:
    queue = setup.queue()
    send(client, queue, body)
    receiver = client.receiver(queue)
    (received,) = receiver.receive()
    return receiver, received


def test_abandon_is_modified_with_no_fields(setup: DotNetSetup, client: DotNetClient) -> None:
    """The answer is modified. The message is delivered again at once, and its delivery count is
    higher."""
    receiver, received = locked(setup, client)
    assert 0x27 == receiver.settle(received, ABANDONED).descriptor
    (again,) = receiver.receive()
    assert 1 == again.delivery_count
    assert received.lock_token != again.lock_token


def test_abandon_sets_properties(setup: DotNetSetup, client: DotNetClient) -> None:
    """Properties to modify come as message annotations."""
    receiver, received = locked(setup, client)
    changed = Described(ULong(0x27), [None, None, {Symbol("tried"): Int(1)}])
    receiver.settle(received, changed)
    (again,) = receiver.receive()
    assert {"tried": 1} == again.properties


def test_defer_is_modified_undeliverable_here(setup: DotNetSetup, client: DotNetClient) -> None:
    """Found by number only; settled through management, since no link has delivered it."""
    queue, receiver, received = setup.locked_message(client, b"later")
    assert 0x27 == receiver.settle(received, DEFERRED).descriptor
    requests = client.requests(queue)
    number = Long(received.annotations["x-opt-sequence-number"])
    body = {
        "sequence-numbers": Array(ArrayCode.LONG, [number]),
        "receiver-settle-mode": UInt(1),
    }
    (entry,) = requests.manage("receive-by-sequence-number", body, receiver)["messages"]
    assert b"later" == sections_of(entry["message"])[0x75]
    token = entry["lock-token"]
    assert isinstance(token, uuid.UUID)
    completed = {
        "disposition-status": "completed",
        "lock-tokens": Array(ArrayCode.UUID, [token]),
    }
    requests.manage("update-disposition", completed, receiver)
    assert [] == left_in(client, queue)


def test_dead_letter_without_arguments_is_rejected_without_an_error(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """No reason is made up, and the answer is rejected without an error as well."""
    queue, receiver, received = setup.locked_message(client, b"bad")
    state = receiver.settle(received, REJECTED)
    assert 0x25 == state.descriptor
    (dead,) = client.receiver(f"{queue}/$DeadLetterQueue").receive()
    assert b"bad" == dead.body
    assert "DeadLetterReason" not in dead.properties


def test_dead_letter_with_a_reason(setup: DotNetSetup, client: DotNetClient) -> None:
    """Reason, description and other properties are in the info map of the error."""
    queue, receiver, received = setup.locked_message(client, b"bad")
    receiver.settle(received, dead_lettered("why", "in more words", seen=Int(7)))
    (dead,) = client.receiver(f"{queue}/$DeadLetterQueue").receive()
    assert {
        "DeadLetterReason": "why",
        "DeadLetterErrorDescription": "in more words",
        "seen": 7,
    } == dead.properties


def test_dead_letter_reason_that_is_no_text_is_a_property(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """Properties to modify may have that name: they keep their types, and there is no reason."""
    queue, receiver, received = setup.locked_message(client, b"bad")
    at = Timestamp(1_700_000_000_000)
    info = {Symbol("DeadLetterReason"): at, Symbol("DeadLetterErrorDescription"): at}
    error = described(0x1D, Symbol("com.microsoft:dead-letter"), None, info)
    receiver.settle(received, described(0x25, error))
    (dead,) = client.receiver(f"{queue}/$DeadLetterQueue").receive()
    assert {"DeadLetterReason": at, "DeadLetterErrorDescription": at} == dead.properties
    assert "Timestamp" == type(dead.properties["DeadLetterReason"]).__name__


def test_neighbours_are_completed_by_one_frame(setup: DotNetSetup, client: DotNetClient) -> None:
    """Batched outcomes name a range; each of them is answered."""
    queue = setup.queue()
    send(client, queue, b"a", b"b", b"c")
    receiver = client.receiver(queue)
    received = receiver.receive(3)
    receiver.settle_range(received[0], received[2], ACCEPTED)
    # Answered one by one or by a range, the SDK takes either: the last one settles them all.
    assert ACCEPTED.descriptor == receiver.settled(int(received[2].transfer[1])).descriptor
    assert [] == left_in(client, queue)


def test_settling_too_late_is_lock_lost(setup: DotNetSetup, client: DotNetClient) -> None:
    """Rejected with an error whose condition makes the SDK's lock-lost exception."""
    receiver, received = locked(setup, client)
    setup.lock_expires()
    with pytest.raises(Refused) as refused:
        receiver.settle(received, ACCEPTED)
    assert "com.microsoft:message-lock-lost" == refused.value.condition


def test_message_of_a_closed_link_is_settled_through_management(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """The SDK falls back on the lock token when the delivery's link is gone."""
    queue, receiver, received = setup.locked_message(client, b"a")
    receiver.link.detach()
    completed = {
        "disposition-status": "completed",
        "lock-tokens": Array(ArrayCode.UUID, [received.lock_token]),
    }
    client.requests(queue).manage("update-disposition", completed)
    assert [] == left_in(client, queue)


def test_renewing_answers_with_an_array_of_times(setup: DotNetSetup, client: DotNetClient) -> None:
    """`expirations` is cast to an array of dates."""
    queue, receiver, received = setup.locked_message(client, b"a")
    tokens = {"lock-tokens": Array(ArrayCode.UUID, [received.lock_token])}
    answer = client.requests(queue).manage("renew-lock", tokens, receiver)
    assert isinstance(answer["expirations"], Array)
    assert "Timestamp" == type(answer["expirations"].items[0]).__name__


def test_scheduling_answers_with_an_array_of_longs(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """And cancelling takes them back."""
    queue = setup.queue()
    requests = client.requests(queue)
    at = {"x-opt-scheduled-enqueue-time": Timestamp(4_000_000_000_000)}
    entry = {"message-id": "one", "message": message(b"later", annotations=at)}
    answer = requests.manage("schedule-message", {"messages": [entry]})
    numbers = answer["sequence-numbers"]
    assert isinstance(numbers, Array)
    assert [b"later"] == left_in(client, queue)
    requests.manage("cancel-scheduled-message", {"sequence-numbers": numbers})
    assert [] == left_in(client, queue)


# --- sessions ----------------------------------------------------------------------------------


def session_of(receiver: Receiver) -> object:
    return receiver.link.answer[ATTACH_SOURCE].value[7][SESSION_FILTER]


def test_named_session_is_accepted_by_a_plain_filter(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """The answer's filter is the id as plain text; its lock's end is a long of .NET ticks."""
    queue = setup.queue(RequiresSession=True)
    send(client, queue, b"a", session_id="one")
    receiver = client.receiver(queue, filters={SESSION_FILTER: "one"})
    assert "one" == session_of(receiver)
    until = receiver.link.answer[ATTACH_PROPERTIES][Symbol("com.microsoft:locked-until-utc")]
    assert isinstance(until, Long)
    assert until > TICKS_OF_1970
    (received,) = receiver.receive()
    receiver.settle(received, ACCEPTED)
    receiver.link.detach()


@pytest.mark.parametrize(
    ("product", "told"),
    [(PRODUCT, "Order"), ("MSJSClient", "oRDER"), ("MSGolangClient", "oRDER")],
)
def test_session_id_is_answered_as_first_written_or_as_requested(
    setup: DotNetSetup, client: DotNetClient, product: str, told: str
) -> None:
    """The JavaScript and Go SDKs fail if the answer differs from their request, even if only by
    case. A request without an id gets the id as it was first written."""
    queue = setup.queue(RequiresSession=True)
    send(client, queue, b"a", session_id="Order")
    for asked, expected in (("oRDER", told), (None, "Order")):
        with DotNetClient(setup.broker.amqp_port, product=product) as other:
            receiver = other.receiver(queue, filters={SESSION_FILTER: asked})
            assert expected == session_of(receiver)
            receiver.link.detach()


def test_next_session_is_given_or_timed_out(setup: DotNetSetup, client: DotNetClient) -> None:
    """A null filter takes what there is; with nothing left the link is refused in time."""
    queue = setup.queue(RequiresSession=True)
    send(client, queue, b"a", session_id="one")
    receiver = client.receiver(queue, filters={SESSION_FILTER: None}, wait_ms=59_900)
    assert "one" == session_of(receiver)
    with pytest.raises(Refused) as refused:
        client.receiver(queue, filters={SESSION_FILTER: None}, wait_ms=200)
    assert "com.microsoft:timeout" == refused.value.condition


def test_held_session_cannot_be_locked(setup: DotNetSetup, client: DotNetClient) -> None:
    """By its own condition, which is not tried again."""
    queue = setup.queue(RequiresSession=True)
    client.receiver(queue, filters={SESSION_FILTER: "one"})
    with pytest.raises(Refused) as refused:
        client.receiver(queue, filters={SESSION_FILTER: "one"})
    assert "com.microsoft:session-cannot-be-locked" == refused.value.condition


def test_session_requests_name_the_link(setup: DotNetSetup, client: DotNetClient) -> None:
    """State and renewal, asked with the name of the session's link."""
    queue = setup.queue(RequiresSession=True)
    receiver = client.receiver(queue, filters={SESSION_FILTER: "one"})
    requests, which = client.requests(queue), {"session-id": "one"}
    assert requests.manage("get-session-state", which, receiver)["session-state"] is None
    requests.manage("set-session-state", {**which, "session-state": b"halfway"}, receiver)
    assert b"halfway" == requests.manage("get-session-state", which, receiver)["session-state"]
    answer = requests.manage("renew-session-lock", which, receiver)
    assert "Timestamp" == type(answer["expiration"]).__name__


def test_deferred_message_of_a_session_is_settled_however_late(
    setup: DotNetSetup, client: DotNetClient
) -> None:
    """The SDK forgets a token at the message's own locked-until time, so in a session that must be
    the greatest there is; only the session's time moves when the session is renewed."""
    queue = setup.queue(RequiresSession=True, LockDuration="PT30S")
    send(client, queue, b"later", session_id="one")
    receiver = client.receiver(queue, filters={SESSION_FILTER: "one"})
    (received,) = receiver.receive()
    assert Timestamp(LAST_MS) == received.annotations["x-opt-locked-until"]
    receiver.settle(received, DEFERRED)
    requests, which = client.requests(queue), {"session-id": "one"}
    body = {
        **which,
        "sequence-numbers": Array(ArrayCode.LONG, [Long(1)]),
        "receiver-settle-mode": UInt(1),
    }
    (entry,) = requests.manage("receive-by-sequence-number", body, receiver)["messages"]
    annotations = sections_of(entry["message"])[0x72]
    assert Timestamp(LAST_MS) == annotations[Symbol("x-opt-locked-until")]
    assert Int(1) == annotations[Symbol("x-opt-message-state")]
    tokens = Array(ArrayCode.UUID, [entry["lock-token"]])
    ends = []
    for _ in range(4):
        setup.broker.advance_clock(20_000)
        ends.append(requests.manage("renew-session-lock", which, receiver)["expiration"])
    assert sorted(set(ends)) == ends
    renewed = requests.manage("renew-lock", {"lock-tokens": tokens}, receiver)["expirations"]
    assert [Timestamp(LAST_MS)] == renewed.items
    completed = {**which, "disposition-status": "completed", "lock-tokens": tokens}
    requests.manage("update-disposition", completed, receiver)
    assert [] == left_in(client, queue)


def test_a_lost_session_is_reported_by_a_detach(setup: DotNetSetup, client: DotNetClient) -> None:
    """A session receiver whose link goes is dead; the condition says what was lost."""
    queue = setup.queue(RequiresSession=True)
    send(client, queue, b"a", session_id="one")
    receiver = client.receiver(queue, filters={SESSION_FILTER: "one"})
    receiver.receive()
    setup.lock_expires()
    with pytest.raises(Refused) as refused:
        receiver.link.raise_detached()
    assert "com.microsoft:session-lock-lost" == refused.value.condition
