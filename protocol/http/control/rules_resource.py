"""The rules of a subscription, and which of them match a message.

A try-out uses the index with which topics route messages, so it says what a send would do. Nothing is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from broker.core.contract import control_operations as control
from broker.core.contract.errors import BrokerError, UndecodableMessage
from broker.core.routing.compiled_rule import compile_rule
from broker.core.routing.rule_index import TopicRules
from config.files.yaml_writer import rule_form
from config.model.definitions import (
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TrueFilter,
)
from protocol.codec import Reader
from protocol.http.control import message_scan, pacing
from protocol.http.control.control_errors import ControlError, bad_field
from protocol.http.control.message_json import BodyFormat, MessageAnswer, write_message
from protocol.http.control.messages_resource import SEQUENCE_NUMBER_MAX
from protocol.http.control.request_models import (
    AnswerModel,
    EntityPath,
    QueuePath,
    RequestModel,
    SubQueue,
    queue_path,
)
from protocol.http.control.routes import Route
from protocol.http.control.sending_resource import SentMessage, make_message

if TYPE_CHECKING:
    from broker.core.contract.message import Message
    from broker.core.routing.rule_index import RoutedCopies
    from protocol.http.control.routes import Answer, Call

DRAFT_NAME = "(draft)"


class RuleAnswer(AnswerModel):
    """A rule."""

    name: str
    definition: dict[str, Any] = Field(
        description="in the names of the config file: sql_filter, correlation_filter, true_filter or false_filter, "
        "action, parameters"
    )


class RulesAnswer(AnswerModel):
    """The rules of a subscription."""

    rules: list[RuleAnswer]


class RulesQuery(RequestModel):
    """Which subscription."""

    entity: EntityPath


class StoredMessage(RequestModel):
    """A message that the broker has."""

    entity: QueuePath
    sub_queue: SubQueue = SubQueue.MAIN
    sequence_number: int = Field(ge=1, le=SEQUENCE_NUMBER_MAX)


class DraftRule(RequestModel):
    """A rule that the subscription does not have."""

    sql_filter: str | None = Field(None, description="every message matches if it is left out")
    action: str | None = None


class TryRules(RequestModel):
    """A subscription, and a message: a new one, or one that the broker has."""

    entity: EntityPath
    message: SentMessage | None = None
    stored: StoredMessage | None = None
    draft: DraftRule | None = Field(None, description="try this rule beside those that exist")


class TriedRule(AnswerModel):
    """What one rule does with the message."""

    name: str
    is_draft: bool
    definition: dict[str, Any]
    matches: bool
    error: str | None = Field(
        description="why the filter or the action cannot be evaluated; null if it can"
    )
    result: MessageAnswer | None = Field(
        description="the copy that the action makes; null if the rule does not match or has no action"
    )


class TryAnswer(AnswerModel):
    """What a subscription would do with the message, drafts left out of the copies."""

    rules: list[TriedRule]
    copies: int = Field(
        description="how many copies the subscription would get: one for all matching rules without an action, and "
        "one for each with an action"
    )
    message: MessageAnswer = Field(description="the message as it is sent")


async def list_rules(call: Call) -> Answer:
    """Lists rules."""
    query: RulesQuery = call.query
    rules = await _rules(call, query.entity)
    written = await pacing.each(
        call, rules, lambda rule: {"name": rule.name, "definition": rule_form(rule)}
    )
    return {"rules": written}


async def try_rules(call: Call) -> Answer:
    """Says which rules match a message, and what actions make of it."""
    body: TryRules = call.body
    rules = await _rules(call, body.entity)
    message = await _message(call, body)
    draft = None
    if body.draft is not None:
        draft = _draft(body.draft)
        rules = [*rules, draft]
    index: TopicRules[str] = TopicRules(Reader().encode_property, call.services.sources.new_uuid)
    pace = pacing.Pace(call)
    for rule in rules:  # each as a subscription of its own, because the index joins rules of one
        try:
            index.put(rule.name, compile_rule(rule, call.services.limits))
        except BrokerError as error:
            raise ControlError(400, "invalid_expression", str(error), "draft") from None
        await pace.pause()
    try:
        routed = {one.subscription: one for one in index.route(message, Reader())}
    except UndecodableMessage as error:
        raise bad_field("message", f"The message cannot be read: {error}.") from None
    tried = [_tried(call, rule, rule is draft, routed.get(rule.name), message) for rule in rules]
    own = [one for one in tried if one["matches"] and not one["is_draft"]]
    with_action = sum(1 for one in own if one["result"] is not None)
    return {
        "rules": tried,
        "copies": with_action + (len(own) > with_action),
        "message": _written(call, message),
    }


async def _rules(call: Call, entity: str) -> list[RuleDefinition]:
    state: control.EntityState = await call.ask(control.GetEntityState(entity.strip("/")))
    definition = state.view.definition
    if not isinstance(definition, SubscriptionDefinition):
        raise bad_field("entity", f"'{state.view.path}' is no subscription, and has no rules.")
    return list(definition.rules)


async def _message(call: Call, body: TryRules) -> Message:
    if (body.message is None) == (body.stored is None):
        raise bad_field("message", "The request needs either a message or a stored one.")
    if body.message is not None:
        message = make_message(call, body.message, "message")
        return call.services.sources.message_ids.identify([message])[0]
    stored = body.stored
    assert stored is not None
    path = queue_path(stored.entity, stored.sub_queue)
    found: control.MessagesRead = await call.ask(
        control.FindMessages(path, [stored.sequence_number])
    )
    views = await message_scan.load_bodies(call, found.messages)
    if not views:
        raise ControlError(404, "message_not_found", "The message was deleted meanwhile.", "stored")
    return views[0].message


def _draft(draft: DraftRule) -> RuleDefinition:
    return RuleDefinition(
        DRAFT_NAME,
        TrueFilter() if draft.sql_filter is None else SqlFilter(draft.sql_filter),
        None if draft.action is None else SqlAction(draft.action),
    )


def _tried(
    call: Call,
    rule: RuleDefinition,
    is_draft: bool,  # noqa: FBT001 -- a column of the answer
    routed: RoutedCopies[str] | None,
    message: Message,
) -> dict[str, Any]:
    result = None
    copies = () if routed is None else routed.copies
    if rule.action is not None and copies:
        copy = message.copy()
        copy.changes = copies[0]
        result = _written(call, copy)
    error = None if routed is None or routed.error is None else str(routed.error)
    return {
        "name": rule.name,
        "is_draft": is_draft,
        "definition": rule_form(rule),
        "matches": bool(copies),
        "error": error,
        "result": result,
    }


def _written(call: Call, message: Message) -> dict[str, Any]:
    view = control.MessageView(message, "active", None)
    return write_message(view, SubQueue.MAIN, BodyFormat.NONE, call.services.holder_of)


ROUTES = (
    Route(
        "GET",
        "/rules",
        "listRules",
        "List the rules of a subscription",
        list_rules,
        RulesAnswer,
        query=RulesQuery,
    ),
    Route(
        "POST",
        "/rules/try",
        "tryRules",
        "Say which rules of a subscription match a message, and what actions make of it",
        try_rules,
        TryAnswer,
        body=TryRules,
    ),
)
