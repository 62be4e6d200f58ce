"""What is kept and sent of refusals, whatever clients write."""

from __future__ import annotations

from broker.core.contract.errors import NotImplementedHere
from protocol.refusals import NAME_MAX_CHARACTERS, SENTENCE_MAX_CHARACTERS, Refusals
from protocol.repeated_events import repeated_events
from tests.support.memory_broker import MemoryBroker


def test_names_and_texts_of_clients_are_cut():
    """They may be as large as a message, and are kept until the broker stops."""
    refusals = Refusals(lambda: 0)
    long = "1a" * 100_000
    refusal = refusals.refuse(
        NotImplementedHere(f"There is no {long}."), entity=long, operation=long
    )
    assert len(refusal.text) < 5_000
    ((place, noted),) = refusals.by_namespace[""].items()
    assert len(place.entity) == len(place.operation) == NAME_MAX_CHARACTERS
    assert len(noted.sentence) == SENTENCE_MAX_CHARACTERS
    kinds = [kind for kinds in repeated_events._events.values() for kind in kinds]
    assert max(len(repr(kind)) for kind in kinds) < 10_000


def test_a_request_with_a_long_operation_is_answered():
    client = MemoryBroker("queues: {orders: }").connect()
    assert (501, "amqp:not-implemented") == client.manage("orders", "x" * 50_000, {})


def test_an_operation_that_is_no_text_is_answered():
    client = MemoryBroker("queues: {orders: }").connect()
    answer = client.ask("orders/$management", {"operation": [1, 2]}, {})
    assert 501 == answer["statusCode"]
