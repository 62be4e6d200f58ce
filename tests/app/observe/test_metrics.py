"""A scrape of many entities: others are served meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from prometheus_client.parser import text_string_to_metric_families

from broker.app.observe import metrics
from broker.app.observe.metrics import Metrics
from broker.core.contract.turn import Turn
from config.model.definitions import QueueDefinition
from protocol.refusals import Refusals
from tests.support.core_dialogue import CoreDialogue

MANY = 500


async def test_a_scrape_is_cut_into_parts(monkeypatch):
    """The event loop runs between the parts, and entities may be created and deleted meanwhile."""
    monkeypatch.setattr(metrics, "SLICE_S", 0.0)
    dialogue = CoreDialogue()
    dialogue.namespace.declare({f"q{n}": QueueDefinition() for n in range(MANY)}, 1, Turn())
    clients = SimpleNamespace(connection_count=0, connections_total=0, link_count=0)
    shown = Metrics({"ns": dialogue.namespace}, clients, Refusals(lambda: 0))
    scrape = asyncio.get_running_loop().create_task(shown.render())
    passes = 0
    while not scrape.done():
        await asyncio.sleep(0)
        passes += 1
        if passes == 10:
            dialogue.namespace.delete_if_exists("q7", 2, Turn())
            dialogue.namespace.declare({"new": QueueDefinition()}, 2, Turn())
    content, _ = scrape.result()
    assert passes > MANY
    sizes = [
        sample
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
        if sample.name == "peeklock_entity_size_bytes"
    ]
    assert MANY + 1 == len(sizes)
