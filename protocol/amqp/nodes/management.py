"""The `$management` node of an entity: requests become commands, replies become messages.

A table has one row for each operation: its claim, its arguments (`management_arguments.py`), and how its answer is
written. The core executes operations. An unknown or malformed request is always answered with a status.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from broker.core.contract import commands
from broker.core.contract.effects import Effect, Reply
from broker.core.contract.errors import (
    ArgumentError,
    BrokerError,
    MessageNotFound,
    NotImplementedHere,
)
from broker.core.contract.settlement_values import ReceiveMode
from config.model.limits import INT32_MAX
from protocol.addresses import is_subscription
from protocol.amqp.nodes import management_arguments as arguments
from protocol.amqp.nodes import rule_encoding
from protocol.amqp.nodes.request_response import Request, write_response
from protocol.codec import (
    Array,
    ArrayCode,
    Int,
    Long,
    Symbol,
    Timestamp,
    encode_message,
    encode_peeked,
)
from protocol.refusals import NAME_MAX_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from broker.core.contract.message import Message
    from protocol.amqp.links.link_context import LinkContext

PREFIX = "com.microsoft:"
ALL_SESSIONS_SENTINEL_MS = 253_402_300_800_000
"""`last-updated-time` of year 10000 requests all sessions, regardless of when their state changed."""
PEEK_REPLY_MAX_BYTES = 900_000
"""A reply is one message, and clients limit its size."""

LARGE_ANSWER_BYTES = 1024 * 1024
BODY_MAX_VALUES = 150_000
"""As many sequence numbers as a batch has messages, and more. They are decoded in about 50 ms."""
SCHEDULE_MAX_VALUES = 500_000
"""Forty-five thousand messages, with eleven values for each as the .NET SDK writes them."""

OK, NO_CONTENT = 200, 204


class Answer(NamedTuple):
    """The answer to a request that was executed."""

    status: int
    body: object
    condition: str | None = None
    """The condition that an SDK expects with status 204."""


@dataclass(frozen=True, slots=True)
class Operation:
    """How the request of one operation is read and answered."""

    claim: str
    command: Callable[[ManagementNode, Request, dict[str, Any]], Command]
    answer: Callable[[Any, Request], Answer]
    answer_max_bytes: int = 4 * 1024
    """About how large the answer can be."""
    body_max_values: int = BODY_MAX_VALUES
    """How many values the body of the request may have."""


class ManagementNode:
    """Answers the requests to the `$management` node of one entity. It is the peer of their commands."""

    def __init__(
        self,
        path: str,
        context: LinkContext,
        respond: Callable[[Request, bytes], None],
        authorize: Callable[[str, str], None],
    ) -> None:
        self.path = path
        self.connection: object = context.engine
        self.client = context.client
        self.sources = context.sources
        self._submit = context.submit
        self._respond = respond
        self._authorize = authorize
        self._faults = context.faults

    def handle(self, request: Request) -> None:
        """Executes a request, or does to it what fault rules say."""
        if self._faults.registry.is_used and self._inject(request):
            return
        self._handle(request)

    def _inject(self, request: Request) -> bool:
        """Does what a fault rule says. Returns False if none acts."""
        from protocol.amqp.faults import request_faults

        name = _operation_name(request).removeprefix(PREFIX)
        tokens, session_id = arguments.locks_of(request.body)
        action = request_faults.decide_management(self._faults, self, name, tokens, session_id)
        if action is None:
            return False
        request_faults.end_locks(action, self._submit, self, tokens, session_id)
        request_faults.carry_out(
            action,
            request,
            self._faults,
            lambda: self._handle(request),
            lambda error: self.refuse(request, error),
        )
        return True

    def _handle(self, request: Request) -> None:
        """Submits the command of a request. The answer follows when the result is durable."""
        name = _operation_name(request)
        operation = _operation(request)
        try:
            if operation is None:
                raise NotImplementedHere(f"'{name}' is not an operation of $management.")
            if not isinstance(request.body, dict):
                raise ArgumentError(f"The body of {name} must be an AMQP value holding a map.")
            self._authorize(operation.claim, self.path)
            request.extra["operation"] = operation
            self._submit(operation.command(self, request, request.body))
        except BrokerError as error:
            self.refuse(request, error)

    def answer_max_bytes(self, request: Request) -> int:
        """Returns about how large the answer can be."""
        operation = _operation(request)
        return 0 if operation is None else operation.answer_max_bytes

    def body_max_values(self, request: Request) -> int:
        """Returns how many values the body may have."""
        operation = _operation(request)
        return BODY_MAX_VALUES if operation is None else operation.body_max_values

    def receive(self, effect: Effect) -> None:
        """Answers a request with the reply of the core."""
        if not isinstance(effect, Reply) or not isinstance(effect.request, Request):
            return
        request = effect.request
        if effect.error is not None:
            self.refuse(request, effect.error)
            return
        operation: Operation = request.extra["operation"]  # type: ignore[assignment]
        status, body, condition = operation.answer(effect.value, request)
        properties: dict[str, object] = {
            "statusCode": Int(status),
            "statusDescription": "OK" if status == OK else "NoContent",
        }
        if condition is not None:
            properties["errorCondition"] = Symbol(condition)
        self._respond(request, write_response(request, properties, body))

    def refuse(self, request: Request, error: BrokerError) -> None:
        """Answers a request with an error, and fails its transaction."""
        if request.transaction_id is not None:
            connection = request.link.connection
            self._submit(commands.SetRollbackOnly(request.transaction_id, connection, error))
        operation = _operation_name(request)
        host = request.link.link.host
        refusals = self.sources.refusals
        refusal = refusals.refuse(error, entity=self.path, operation=operation, host=host)
        properties = {
            "statusCode": Int(refusal.status),
            "statusDescription": refusal.text,
            "errorCondition": Symbol(refusal.condition),
            "com.microsoft:tracking-id": refusal.tracking_id,
        }
        self._respond(request, write_response(request, properties, {}))


def _operation(request: Request) -> Operation | None:
    return OPERATIONS.get(_operation_name(request).removeprefix(PREFIX))


def _operation_name(request: Request) -> str:
    name = request.properties.get("operation")
    return str(name)[:NAME_MAX_CHARACTERS] if isinstance(name, str) else ""


# --- writing answers -------------------------------------------------------------------------


def _empty(_value: object, _request: Request) -> Answer:
    return Answer(OK, {})


def _peeked(messages: list[Message], request: Request) -> Answer:
    omits_body = isinstance(request.body, dict) and request.body.get("omit-message-body") is True
    from_topic = is_subscription(request.link.node.path)
    entries: list[object] = []
    size = 0
    for message in messages:
        encoded = encode_peeked(message, from_topic=from_topic, omits_body=omits_body)
        size += len(encoded)
        if entries and size > PEEK_REPLY_MAX_BYTES:
            break
        entries.append({"message": encoded})
    return Answer(OK, {"messages": entries}) if entries else Answer(NO_CONTENT, {})


def _received(pairs: list[tuple[Message, bytes | None]], request: Request) -> Answer:
    from_topic = is_subscription(request.link.node.path)
    entries: list[object] = []
    for message, token in pairs:
        locked_until_ms = 0 if token is None else message.locked_until_ms
        encoded = encode_message(message, token, locked_until_ms, from_topic=from_topic)
        entry: dict[str, object] = {"message": encoded}
        if token is not None:
            entry["lock-token"] = UUID(bytes=token)
        entries.append(entry)
    return Answer(OK, {"messages": entries})


def _sessions(session_ids: list[str], request: Request) -> Answer:
    if not session_ids:
        return Answer(NO_CONTENT, {})
    skip = arguments.integer(request.body, "skip", 0) if isinstance(request.body, dict) else 0
    body = {
        # With `last-session-id` the page does not begin at `skip`.
        "skip": Int(min(skip + len(session_ids), INT32_MAX)),
        "sessions-ids": Array(ArrayCode.STRING, list(session_ids)),
    }
    return Answer(OK, body)


def _rules(rules: list[Any], request: Request) -> Answer:
    del request
    entries = [{"rule-description": rule_encoding.described(rule)} for rule in rules]
    return Answer(OK, {"rules": entries}) if entries else Answer(NO_CONTENT, {})


def _deleted(count: int, request: Request) -> Answer:
    """The JavaScript SDK accepts 204 as "none deleted" only with this condition."""
    del request
    body = {"message-count": Int(count)}
    if count:
        return Answer(OK, body)
    return Answer(NO_CONTENT, body, MessageNotFound.condition)


def _timestamps(times_ms: list[int]) -> Array:
    return Array(ArrayCode.TIMESTAMP, [Timestamp(at_ms) for at_ms in times_ms])


def _origin(request: Request) -> commands.RequestOrigin:
    """Returns the receiver that a request is sent for. All SDKs name its link, and send on the same connection."""
    name = request.properties.get("associated-link-name")
    return commands.RequestOrigin(
        request.link.connection, str(name) if isinstance(name, str) else None
    )


# --- the table ---------------------------------------------------------------------------------


def _list_sessions(node: ManagementNode, request: Request, body: dict[str, Any]) -> Command:
    since_ms: int | None = arguments.integer(body, "last-updated-time", ALL_SESSIONS_SENTINEL_MS)
    if since_ms is not None and since_ms >= ALL_SESSIONS_SENTINEL_MS:
        since_ms = None
    return commands.ListSessions(
        node,
        request,
        node.path,
        arguments.count(body, "skip", 0),
        arguments.count(body, "top", 100),
        since_ms,
        arguments.optional_text(body, "last-session-id"),
    )


def _delete_messages(node: ManagementNode, request: Request, body: dict[str, Any]) -> Command:
    """The time is that of the client's clock, rounded down to milliseconds. A message that was sent and accepted
    before may have the same millisecond, so that millisecond is included: SDKs purge a queue by deleting what was
    enqueued before now."""
    return commands.DeleteMessages(
        node,
        request,
        node.path,
        arguments.integer(body, "message-count"),
        arguments.integer(body, "enqueued-time-utc") + 1,
        arguments.optional_text(body, "session-id"),
    )


def _receive_deferred(node: ManagementNode, request: Request, body: dict[str, Any]) -> Command:
    # The numbers are AMQP's receiver settle modes: first (0) settles on sending.
    settles_first = arguments.integer(body, "receiver-settle-mode", 1) == 0
    mode = ReceiveMode.RECEIVE_AND_DELETE if settles_first else ReceiveMode.PEEK_LOCK
    return commands.ReceiveDeferred(
        node,
        request,
        node.path,
        arguments.integers(body, "sequence-numbers"),
        mode,
        arguments.optional_text(body, "session-id"),
        _origin(request),
    )


def _set_session_state(node: ManagementNode, request: Request, body: dict[str, Any]) -> Command:
    state = body.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise ArgumentError("'session-state' must be binary or null.")
    # The Go SDK cannot send null here and clears the state with an empty one.
    session_id = arguments.text(body, "session-id")
    return commands.SetSessionState(
        node, request, node.path, session_id, state or None, _origin(request)
    )


OPERATIONS: dict[str, Operation] = {
    "renew-lock": Operation(
        "Listen",
        lambda node, request, body: commands.RenewLocks(
            node, request, node.path, arguments.tokens(body)
        ),
        lambda value, _: Answer(OK, {"expirations": _timestamps(value)}),
    ),
    "update-disposition": Operation(
        "Listen",
        lambda node, request, body: commands.SettleByToken(
            node,
            request,
            node.path,
            arguments.tokens(body),
            arguments.settlement(body),
            arguments.optional_text(body, "session-id"),
            request.transaction_id,
            *_origin(request),
        ),
        _empty,
    ),
    "peek-message": Operation(
        "Listen",
        lambda node, request, body: commands.Peek(
            node,
            request,
            node.path,
            arguments.integer(body, "from-sequence-number", 0),
            arguments.count(body, "message-count", 1, least=1),
            arguments.optional_text(body, "session-id"),
        ),
        _peeked,
        LARGE_ANSWER_BYTES,
    ),
    "receive-by-sequence-number": Operation(
        "Listen", _receive_deferred, _received, LARGE_ANSWER_BYTES
    ),
    "schedule-message": Operation(
        "Send",
        lambda node, request, body: commands.Schedule(
            node,
            request,
            node.path,
            [arguments.message(entry, node.sources) for entry in arguments.items(body, "messages")],
            request.transaction_id,
            request.link.connection,
        ),
        lambda value, _: Answer(
            OK,
            {"sequence-numbers": Array(ArrayCode.LONG, [Long(number) for number in value])},
        ),
        body_max_values=SCHEDULE_MAX_VALUES,
    ),
    "cancel-scheduled-message": Operation(
        "Send",
        lambda node, request, body: commands.CancelScheduled(
            node,
            request,
            node.path,
            arguments.integers(body, "sequence-numbers"),
            request.transaction_id,
            request.link.connection,
        ),
        _empty,
    ),
    "renew-session-lock": Operation(
        "Listen",
        lambda node, request, body: commands.RenewSessionLock(
            node, request, node.path, arguments.text(body, "session-id"), _origin(request)
        ),
        lambda value, _: Answer(OK, {"expiration": Timestamp(value)}),
    ),
    "set-session-state": Operation("Listen", _set_session_state, _empty),
    "get-session-state": Operation(
        "Listen",
        lambda node, request, body: commands.GetSessionState(
            node, request, node.path, arguments.text(body, "session-id"), _origin(request)
        ),
        lambda value, _: Answer(OK, {"session-state": value}),
        LARGE_ANSWER_BYTES,
    ),
    "get-message-sessions": Operation("Listen", _list_sessions, _sessions, LARGE_ANSWER_BYTES),
    "batch-delete-messages": Operation("Listen", _delete_messages, _deleted),
    "add-rule": Operation(
        "Manage",
        lambda node, request, body: commands.AddRule(
            node, request, node.path, rule_encoding.read_rule(body)
        ),
        _empty,
    ),
    "remove-rule": Operation(
        "Manage",
        lambda node, request, body: commands.RemoveRule(
            node, request, node.path, arguments.text(body, "rule-name")
        ),
        _empty,
    ),
    "enumerate-rules": Operation(
        "Listen",
        lambda node, request, body: commands.ListRules(
            node,
            request,
            node.path,
            arguments.count(body, "skip", 0),
            arguments.count(body, "top", 100),
        ),
        _rules,
        LARGE_ANSWER_BYTES,
    ),
}
