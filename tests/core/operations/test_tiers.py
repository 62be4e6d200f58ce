"""What a tier leaves out is refused wherever a client could ask for it."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import AttachSender, CreateEntity, Declare, Send, UpdateEntity
from broker.core.contract.errors import ArgumentError, NotAllowed
from config.model.definitions import EntityDefinition, QueueDefinition, TopicDefinition
from config.model.limits import Tier, relaxed, strict
from tests.support.core_dialogue import (
    CLIENT,
    Accepted,
    CoreDialogue,
    NamedPeer,
    Refused,
    S,
    message,
)


@pytest.fixture(params=[relaxed, strict])
def basic(request):
    """A broker of the Basic tier with two plain queues."""
    entities = {"q": QueueDefinition(), "other": QueueDefinition()}
    return CoreDialogue(entities=entities, limits=request.param(Tier.BASIC), attach=False)


@pytest.mark.parametrize(
    "definition",
    [
        TopicDefinition(),
        QueueDefinition(requires_session=True),
        QueueDefinition(requires_duplicate_detection=True),
        QueueDefinition(forward_to="q"),
        QueueDefinition(forward_dead_letters_to="q"),
        QueueDefinition(auto_delete_on_idle_ms=300_000),
    ],
)
def test_basic_has_plain_queues_only(basic, definition: EntityDefinition):
    """Refused as the cloud does, naming the property and the tier."""
    with pytest.raises(ArgumentError, match="'Basic' tier"):
        basic.ask(CreateEntity(CLIENT, "c", "new", definition))


def test_basic_refuses_a_feature_added_later(basic):
    """A plain queue stays one."""
    with pytest.raises(ArgumentError, match="'ForwardTo'"):
        basic.ask(UpdateEntity(CLIENT, "u", "q", QueueDefinition(forward_to="other")))


def test_basic_has_no_transactions(basic):
    """Neither of their own nor by sending via another entity."""
    with pytest.raises(NotAllowed):
        basic.ask(Declare(CLIENT, "d"))
    via = NamedPeer("VIA")
    assert basic >> AttachSender(via, "q", "other") << Refused(via, NotAllowed)


def test_basic_schedules(basic):
    """A plain queue can do that."""
    basic.run(AttachSender(S, "q"))
    scheduled = message("later", at_ms=basic.now_ms + 1_000)
    effects = basic.run(Send(S, [scheduled], ["later"])).effects
    assert [Accepted] == [type(effect) for effect in effects]
