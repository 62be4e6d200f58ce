"""Changes by the control API: what is refused changes nothing."""

from __future__ import annotations

import pytest

from broker.core.contract import control_operations as control
from broker.core.contract.commands import AttachSender, ControlRequest
from broker.core.contract.errors import NotAllowed
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import CLIENT, CoreDialogue, S, message, send
from tests.support.packed_blocks import queue_of


def test_messages_that_are_not_resubmitted_keep_their_session_ids():
    """One has none, so the entity with sessions takes neither, and both are as the store has them."""
    entities = {"q": QueueDefinition(), "next": QueueDefinition(requires_session=True)}
    dialogue = CoreDialogue(entities=entities, attach=False)
    dialogue.run(AttachSender(S, "q"))
    dialogue.serve(send(message("a", session="x"), message("b")))
    with pytest.raises(NotAllowed):
        dialogue.ask(ControlRequest(CLIENT, "r", control.Resubmit("q", [1, 2], "next")))
    assert [None, None] == [one.session_id for one in queue_of(dialogue).index.walk()]
    assert [None, None] == [row.session_id for row in dialogue.commit().rows.values()]
