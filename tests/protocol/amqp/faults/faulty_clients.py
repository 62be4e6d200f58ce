"""A broker with fault rules, and clients that send several operations in one read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.faults.fault_rule import FaultAction, FaultRule
from protocol.faults.occurrence import Always
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker, MemoryClient
from tests.support.message_sections import DATA, section, sections_of

if TYPE_CHECKING:
    from protocol.faults.fault_kinds import FaultKind, Operation

ACCEPTED, REJECTED, MODIFIED = 0x24, 0x25, 0x27


class FaultyBroker(MemoryBroker):
    """A broker in memory with the queue `orders`."""

    def __init__(self, declared: str = "queues: {orders: }", **settings: Any) -> None:
        super().__init__(declared, **settings)
        self.namespace = next(iter(self.namespaces))

    def fault(
        self,
        operation: Operation,
        kind: FaultKind,
        occurrence: Any = None,
        *,
        matches: Any = None,
        **action: Any,
    ) -> FaultRule:
        """Make a rule."""
        rule = FaultRule(
            f"rule-{len(self.faults.rules(self.namespace))}",
            operation,
            FaultAction(kind, **action),
            occurrence or Always(),
            matches=matches,
        )
        self.faults.add(self.namespace, rule)
        return rule

    def sender(self) -> MemoryClient:
        client = self.connect()
        assert client.attach_sender("orders") is None
        return client

    def receiver(self, credit: int = 100) -> MemoryClient:
        """Return a client that has got what is there."""
        client = self.connect()
        assert client.attach_receiver("orders") is None
        client.say(amqp_frames.flow(credit, handle=client.last_handle))
        client.say_and_read_all()
        return client

    def stored(self) -> list[bytes]:
        """The messages that a new receiver gets. They stay locked."""
        rules = self.faults.rules(self.namespace)
        self.faults.clear(self.namespace)
        received = bodies(self.receiver())
        for rule in rules:
            self.faults.add(self.namespace, rule)
        return received


def send(client: MemoryClient, *texts: bytes, **options: Any) -> None:
    """Send messages in one read of the broker."""
    client.say(
        b"".join(
            amqp_frames.transfer(
                client.next_delivery(), section(DATA, one), handle=client.last_handle, **options
            )
            for one in texts
        )
    )
    client.say_and_read_all()


def bodies(client: MemoryClient) -> list[bytes]:
    """The bodies of the messages that a client has got."""
    return [sections_of(one.payload)[DATA] for one in client.heard if one.name == "transfer"]


def outcomes(client: MemoryClient) -> list[tuple[int, int]]:
    """The delivery ids that the broker has settled, each with the code of its outcome, in order."""
    found = []
    for one in client.heard:
        if one.name == "disposition":
            last = one[1] if one[2] is None else one[2]
            found += [(number, one[4].descriptor) for number in range(one[1], last + 1)]
    return found


def frames(client: MemoryClient, name: str) -> list[Any]:
    return [one for one in client.heard if one.name == name]
