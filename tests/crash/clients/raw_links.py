"""A sender and a receiver on the bare AMQP engine that tell a ledger everything they learn.

They walk events and keep what is in flight on their one link; connections, rates and reconnecting
belong to the workload. A link that dies leaves its unanswered sends and completions in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton_ffi import lib

from tests.crash.clients.messages import decode_message, encode_message

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.crash.ledgers.messages import Ledger, Link, MessageKey
    from tests.support.proton.connection import ProtonConnection

ATTACH_TIMEOUT_S = 5.0
WINDOW = 100
"""Sends that wait for their outcome."""
CREDIT = 200
MAX_HELD = 50
"""Deliveries kept back, to be completed later and out of turn."""


class RawSender:
    """Sends pipelined, in order, and never the same message twice."""

    def __init__(
        self, name: str, client: ProtonConnection, address: str, ledgers: Sequence[Ledger]
    ) -> None:
        self.name = name
        self.client = client
        self._ledgers = ledgers
        self._awaited: dict[Any, MessageKey] = {}
        self._link = client.attach_sender(address, name=name)
        client.wait_until_attached(self._link, ATTACH_TIMEOUT_S)

    def send(self, first_index: int, limit: int) -> int:
        """Send up to `limit` messages from `first_index` on; gives the next index."""
        allowed = min(lib.pn_link_credit(self._link), WINDOW - len(self._awaited), limit)
        end_index: int = first_index + max(allowed, 0)
        for index in range(first_index, end_index):
            key = (self.name, index)
            for ledger in self._ledgers:
                ledger.sending(key)
            delivery = self.client.send(self._link, encode_message(key), index.to_bytes(8, "big"))
            self._awaited[delivery] = key
        return end_index

    def handle_events(self) -> None:
        """Note the outcomes that arrived."""
        collector = self.client.collector
        while event := lib.pn_collector_peek(collector):
            if delivery := lib.pn_event_delivery(event):
                state = lib.pn_delivery_remote_state(delivery)
                if state and delivery in self._awaited:
                    self._note(self._awaited.pop(delivery), state)
                    lib.pn_delivery_settle(delivery)
            else:
                self.client.check(event)
            lib.pn_collector_pop(collector)

    def _note(self, key: MessageKey, state: int) -> None:
        for ledger in self._ledgers:
            if state == lib.PN_ACCEPTED:
                ledger.accepted(key)
            else:
                ledger.refused(key)


class RawReceiver:
    """Receives in peek-lock and completes; a part of what it got only later and out of turn."""

    def __init__(
        self,
        client: ProtonConnection,
        address: str,
        identity: Link,
        ledger: Ledger,
        chance: random.Random,
        hold_share: float,
    ) -> None:
        self.client = client
        self._identity = identity
        self._ledger = ledger
        self._chance = chance
        self._hold_share = hold_share
        self._held: list[tuple[Any, MessageKey]] = []
        self._completing: dict[Any, MessageKey] = {}
        self._link = client.attach_receiver(address, name=f"link-{identity.number}", second=True)
        client.wait_until_attached(self._link, ATTACH_TIMEOUT_S)

    @property
    def is_idle(self) -> bool:
        """Nothing that was received waits for the broker's answer."""
        return not self._held and not self._completing

    def grant(self) -> None:
        """Keep the credit topped up."""
        credit = lib.pn_link_credit(self._link)
        if credit <= CREDIT // 2:
            lib.pn_link_flow(self._link, CREDIT - credit)

    def handle_events(self) -> int:
        """Note what arrived and complete; gives how many messages were received."""
        collector, received = self.client.collector, 0
        while event := lib.pn_collector_peek(collector):
            if delivery := lib.pn_event_delivery(event):
                if lib.pn_delivery_readable(delivery):
                    if not lib.pn_delivery_partial(delivery):
                        received += 1
                        self._take(delivery)
                elif delivery in self._completing and lib.pn_delivery_settled(delivery):
                    self._confirm(delivery)
            else:
                self.client.check(event)
            lib.pn_collector_pop(collector)
        while len(self._held) > (MAX_HELD if self._hold_share else 0):
            self._complete(*self._held.pop(self._chance.randrange(len(self._held))))
        return received

    def _take(self, delivery: Any) -> None:
        key, sequence_number = decode_message(self.client.take(self._link, delivery))
        if not self._ledger.delivered(key, sequence_number, self._identity):
            return
        if self._chance.random() < self._hold_share:
            self._held.append((delivery, key))
        else:
            self._complete(delivery, key)

    def _complete(self, delivery: Any, key: MessageKey) -> None:
        self._ledger.completing(key, self._identity)
        self._completing[delivery] = key
        lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)

    def _confirm(self, delivery: Any) -> None:
        key = self._completing.pop(delivery)
        is_done = lib.pn_delivery_remote_state(delivery) == lib.PN_ACCEPTED
        (self._ledger.completed if is_done else self._ledger.completion_refused)(key)
        lib.pn_delivery_settle(delivery)
