"""The runtime values in the description of an entity."""

from __future__ import annotations

from broker.core.contract.effects import EntityView
from config.model.definitions import QueueDefinition
from protocol.http.admin import descriptions


def test_the_message_count_is_of_all_there_are():
    """Also of deferred messages, which have no count of their own: they take room until fetched."""
    counts = {
        "active_count": 1,
        "dead_letter_count": 10,
        "scheduled_count": 100,
        "transfer_dead_letter_count": 1_000,
        "deferred_count": 10_000,
    }
    view = EntityView("q", QueueDefinition(), 0, 0, 0, **counts)
    text = descriptions.write(view, descriptions.DescriptionContext("localhost", "2021-05", 1024))
    assert "<MessageCount>11111</MessageCount>" in text
    assert ">1</d2p1:ActiveMessageCount>" in text
