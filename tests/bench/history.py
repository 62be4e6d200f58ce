"""Measures what the history costs for a message that is sent, delivered and completed: `python -m tests.bench.history`.

It runs the core alone, without sockets and stores, alternately without and with recording. So it shows a microsecond that
a measurement of the whole broker cannot: this is a fiftieth of what a message on its own takes there.
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from broker.app.runtime.history import Histories
from broker.core.contract.commands import AttachReceiver, AttachSender, Credit, Send, Settle
from broker.core.contract.effects import Deliver
from broker.core.contract.message import Message
from broker.core.contract.settlement_values import COMPLETE, ReceiveMode
from broker.core.contract.turn import Turn
from broker.core.messages.identifiers import MessageIds
from broker.core.namespace import Namespace
from config.model.definitions import QueueDefinition
from config.model.limits import RELAXED
from protocol.codec.message_reader import Reader
from tests.bench.payload import DATA_SECTION

if TYPE_CHECKING:
    from broker.core.contract.effects import Effect

BATCHES = (1, 10, 100)
ROUNDS = 15
MESSAGES = 10_000
NOW_MS = 1_800_000_000_000
PROPERTIES_SECTION = b"\x00\x53\x73\xc0\x12\x01\xa1\x0forder-000000007"
"""A message id, as all SDKs write one."""
BODY = PROPERTIES_SECTION + DATA_SECTION + (1024).to_bytes(4, "big") + bytes(1024)


@dataclass(frozen=True)
class Client:
    """A link of a client."""

    client: str

    def receive(self, effect: Effect) -> None:
        """Nobody reads the answers."""


class MeasuredCore:
    """A namespace with one queue, a sender and a receiver, whose turns are durable at once."""

    def __init__(self, *, records: bool) -> None:
        self._tokens = 0
        self.namespace = Namespace(
            "ns",
            ids=MessageIds(),
            reader=Reader(),
            new_lock_tokens=self._new_tokens,
            limits=RELAXED,
            payload_budget_bytes=None,
            hold_locks_after_connection_loss=False,
        )
        self.histories = Histories(None, {}, {"ns"} if records else (), can_be_read=True)
        self.histories.attach(self.namespace)
        self.sender, self.receiver = Client("sender"), Client("receiver")
        self._limit = 0
        turn = Turn()
        self.namespace.declare({"q": QueueDefinition()}, NOW_MS, turn)
        self.namespace.apply(AttachSender(self.sender, "q"), NOW_MS, turn)
        self.namespace.apply(
            AttachReceiver(self.receiver, "q", ReceiveMode.PEEK_LOCK), NOW_MS, turn
        )

    def _new_tokens(self, count: int) -> list[bytes]:
        first = self._tokens
        self._tokens += count
        return [b"%016d" % number for number in range(first, first + count)]

    def pass_through(self, batch: int, batches: int) -> float:
        """Sends, delivers and completes messages. Returns how long it took for each, in microseconds."""
        namespace, histories, handles = self.namespace, self.histories, [None] * batch
        began_ns = time.thread_time_ns()
        for _ in range(batches):
            self._limit += batch
            turn = Turn()
            namespace.apply(Credit(self.receiver, self._limit), NOW_MS, turn)
            messages = [Message(BODY) for _ in range(batch)]
            namespace.apply(Send(self.sender, messages, handles), NOW_MS, turn)
            namespace.dispatch(NOW_MS, turn)
            if turn.transitions:
                histories.publish(turn.transitions)
            tokens = [
                token
                for effect in turn.effects
                if isinstance(effect, Deliver)
                for token in effect.tokens
                if token is not None
            ]
            turn = Turn()
            namespace.apply(Settle(self.receiver, tokens, handles, COMPLETE), NOW_MS, turn)
            namespace.dispatch(NOW_MS, turn)
            if turn.transitions:
                histories.publish(turn.transitions)
        return (time.thread_time_ns() - began_ns) / 1_000 / (batch * batches)


def measure(batch: int, rounds: int = ROUNDS, messages: int = MESSAGES) -> tuple[float, float]:
    """Returns what a message takes without and with recording, in microseconds."""
    without, recorded = MeasuredCore(records=False), MeasuredCore(records=True)
    taken: dict[bool, list[float]] = {False: [], True: []}
    for core in (without, recorded):  # warm, and with a full history
        core.pass_through(batch, 2 * messages // batch)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for records, core in ((False, without), (True, recorded)):
                taken[records].append(core.pass_through(batch, messages // batch))
    finally:
        gc.enable()
    return median(taken[False]), median(taken[True])


def main() -> None:
    """Prints one line for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds: int = parser.parse_args().rounds
    print("messages in a turn | without, µs | with history, µs | history, µs a message")
    for batch in BATCHES:
        without, recorded = measure(batch, rounds)
        print(f"{batch} | {without:.2f} | {recorded:.2f} | {recorded - without:.2f}")


if __name__ == "__main__":
    main()
