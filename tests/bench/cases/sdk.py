"""Through the stock Python SDK: one message is sent, received and completed, then the next.

Brokers on all storages run side by side and take turns, because the difference between them is smaller than the
changes of the machine from minute to minute. One of them only appends to a file (`appending_broker.py`).
"""

from __future__ import annotations

import os
import time
from array import array
from contextlib import ExitStack
from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.bench import observe
from tests.bench.cases.setting import in_turns
from tests.bench.roles import percentiles_us
from tests.bench.rows import Row
from tests.bench.systems import DISK, QUEUE, STORAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from azure.servicebus import ServiceBusReceiver, ServiceBusSender

    from tests.bench.cases.setting import Setting
    from tests.support.server import BrokerProcess

THROUGH_SDK = "Python SDK: send, receive and complete one"
THROUGH_SDK_APPENDS = f"{THROUGH_SDK}, two appends and no store"
SYSTEMS = (*STORAGES, DISK)
ROUNDS = 10
CYCLES = 40
"""Per round and system."""
BODY = bytes(1024)


class _Client:
    """A sender and a receiver on one queue, and the time that each cycle took."""

    def __init__(self, system: str, broker: BrokerProcess, stack: ExitStack) -> None:
        self.system = system
        self._broker = broker
        client = stack.enter_context(
            ServiceBusClient.from_connection_string(broker.connection_string)
        )
        self._sender: ServiceBusSender = stack.enter_context(client.get_queue_sender(QUEUE))
        self._receiver: ServiceBusReceiver = stack.enter_context(client.get_queue_receiver(QUEUE))
        self._took_ns = array("q")
        self._cpu_s = 0.0

    def work(self, cycles: int) -> None:
        before_s = observe.cpu_s(self._broker.process_id)
        for _ in range(cycles):
            began_ns = time.perf_counter_ns()
            self._sender.send_messages(ServiceBusMessage(BODY))
            (message,) = self._receiver.receive_messages(max_message_count=1, max_wait_time=30)
            self._receiver.complete_message(message)
            self._took_ns.append(time.perf_counter_ns() - began_ns)
        self._cpu_s += observe.cpu_s(self._broker.process_id) - before_s

    def warm_up(self, cycles: int) -> None:
        self.work(cycles)
        del self._took_ns[:]
        self._cpu_s = 0.0

    def row(self) -> Row:
        latencies = percentiles_us(self._took_ns).items()
        figures = {f"ack_{name}_us": value for name, value in latencies}
        figures["broker_cpu_us"] = self._cpu_s * 1e6 / len(self._took_ns)
        case = THROUGH_SDK_APPENDS if self.system == DISK else THROUGH_SDK
        return Row(case, figures, system=self.system)


def through_sdk(setting: Setting) -> Iterator[Row]:
    """All systems in turns."""
    cycles = setting.count(CYCLES)
    with ExitStack() as stack:
        clients = {}
        for system in SYSTEMS:
            broker = stack.enter_context(setting.on(system).broker())
            clients[system] = _Client(system, broker, stack)
            clients[system].warm_up(cycles)
        os.sync()
        for _, order in in_turns(ROUNDS, SYSTEMS):
            for system in order:
                clients[system].work(cycles)
        for client in clients.values():
            yield client.row()
