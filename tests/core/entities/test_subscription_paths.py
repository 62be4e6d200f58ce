"""Subscriptions are found by path, without case."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import AttachSender, CreateEntity, DeleteEntity, GetEntity
from broker.core.contract.errors import EntityNotFound
from config.model.definitions import RuleDefinition, SubscriptionDefinition, TopicDefinition
from tests.support.core_dialogue import (
    CLIENT,
    CoreDialogue,
    R,
    S,
    attach_receiver,
    credit,
    send,
    text_of,
)

SUBSCRIPTION = SubscriptionDefinition(rules=(RuleDefinition("$Default"),))


@pytest.mark.parametrize(
    "path", ["İx/Subscriptions/s", "t/Subscriptions/İx", "a/İİ/SUBSCRIPTIONS/subscriptions"]
)
def test_a_subscription_whose_path_is_longer_in_lower_case(path):
    """It is created, used, restored and deleted as any other."""
    assert len(path) < len(path.lower())
    topic, _, name = path.rsplit("/", 2)
    dialogue = CoreDialogue(entities={topic: TopicDefinition()}, attach=False)
    stored_path = f"{topic}/Subscriptions/{name}"
    assert stored_path == dialogue.ask(CreateEntity(CLIENT, "c", path, SUBSCRIPTION)).path
    restored = dialogue.restarted()
    for one in (dialogue, restored):
        one.run(AttachSender(S, topic.lower()), attach_receiver(R, path.lower()))
        assert ["a"] == [text_of(message) for message in one.deliveries(send("a"), credit(1))]
    dialogue.ask(DeleteEntity(CLIENT, "d", path))
    with pytest.raises(EntityNotFound):
        dialogue.ask(GetEntity(CLIENT, "g", path))


@pytest.mark.parametrize(
    "path",
    ["/Subscriptions/s", "Subscriptions/s", "t/Sub\u017fcriptions/s", "t/Subscript\u0131ons/s"],
)
def test_a_path_without_a_topic_is_no_path_of_a_subscription(path):
    """Also if a letter looks similar."""
    dialogue = CoreDialogue(entities={"t": TopicDefinition()}, attach=False)
    with pytest.raises(EntityNotFound):
        dialogue.ask(CreateEntity(CLIENT, "c", path, SUBSCRIPTION))
