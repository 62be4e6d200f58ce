"""How long a start takes, and how much memory the broker has: empty, and with many messages waiting."""

from __future__ import annotations

import re
import statistics
import time
import urllib.request
from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusClient

from tests.bench import observe
from tests.bench.cases.setting import IN_FLIGHT
from tests.bench.cases.throughput import size_text
from tests.bench.load import new_run
from tests.bench.roles import Load, Mark
from tests.bench.rows import Row, observed, resident_megabytes
from tests.bench.systems import Target
from tests.support.server import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.cases.setting import Setting
    from tests.support.server import BrokerProcess

READY_EMPTY, IDLE = "ready, empty", "memory, idle"
STARTS = 7
IDLE_AFTER_S = 2.0
"""What the broker loads behind its first answers counts, too."""
BODY_BYTES = 1024
SESSIONS = 1_000
SESSION_SENDERS = 10
IN_SESSIONS = f" in {SESSIONS:,} sessions"
SMALL_BODY_BYTES = 256
"""Ten million larger ones would be more than a queue may hold."""


def ready_with(count: int, body_bytes: int = BODY_BYTES) -> str:
    return f"ready, {count:,} x {size_text(body_bytes)} waiting"


def memory_with(count: int, body_bytes: int = BODY_BYTES) -> str:
    return f"memory, {count:,} x {size_text(body_bytes)} waiting"


def empty(setting: Setting, name: str) -> Iterator[Row]:
    """Several starts, of which the median counts; then the memory of the last."""
    del name
    took_s, used_s = [], []
    with setting.broker() as broker:
        for _ in range(STARTS):
            broker.restart()
            took_s.append(broker.ready_after_s)
            used_s.append(observe.cpu_s(broker.process_id))
        figures = {"start_s": statistics.median(took_s), "start_cpu_s": statistics.median(used_s)}
        yield Row(READY_EMPTY, figures)
        time.sleep(IDLE_AFTER_S)
        yield Row(IDLE, {"resident_mb": resident_megabytes(broker)})


def waiting(full: int, body_bytes: int = BODY_BYTES) -> Callable[[Setting, str], Iterator[Row]]:
    """Send many messages, look at the memory, start again on them, and receive the first ones."""

    def run(setting: Setting, name: str) -> Iterator[Row]:
        del name
        count = setting.count(full)
        with setting.broker() as broker:
            load = Load(
                port=broker.amqp_port,
                address="backlog",
                count=count,
                body_bytes=body_bytes,
                run=new_run(),
            )
            sent = _target(setting, broker).run(
                f"{count:,} x {size_text(body_bytes)} sent", "send", load
            )
            yield sent
            time.sleep(IDLE_AFTER_S)
            resident_mb = resident_megabytes(broker)
            yield Row(memory_with(count, body_bytes), {"resident_mb": resident_mb})
            if setting.storage == "memory" or not sent.is_clean:
                return
            broker.restart()
            wrong = wrong_first_answers(broker, "backlog", count)
            figures = {"start_s": broker.ready_after_s}
            yield Row(ready_with(count, body_bytes), figures, not wrong, "; ".join(wrong))
            broker.restart()  # the answers have loaded the HTTP server, which is not in the memory of a start
            time.sleep(IDLE_AFTER_S)
            yield Row(
                f"{memory_with(count, body_bytes)}, after a restart",
                {"resident_mb": resident_megabytes(broker)},
            )
            yield _target(setting, broker).run(
                f"{count:,} x {size_text(body_bytes)} received", "receive", load
            )

    return run


def waiting_in_sessions(full: int) -> Callable[[Setting, str], Iterator[Row]]:
    """Send many messages to sessions in turn, look at the memory, and start again on them."""

    def run(setting: Setting, name: str) -> Iterator[Row]:
        del name
        count = setting.count(full)
        with setting.broker() as broker:
            load = Load(
                port=broker.amqp_port,
                address="sessions",
                count=count,
                body_bytes=BODY_BYTES,
                connections=SESSION_SENDERS,
                window=IN_FLIGHT // SESSION_SENDERS,
                streams=SESSIONS,
                mark=Mark.SESSION,
                run=new_run(),
            )
            sent = observed(broker, f"{count:,} in sessions sent", ("send", load))
            yield sent
            time.sleep(IDLE_AFTER_S)
            figures = {"resident_mb": resident_megabytes(broker)}
            yield Row(f"{memory_with(count)}{IN_SESSIONS}", figures)
            if not sent.is_clean:
                return
            broker.restart()
            found = active_messages(broker, "sessions")
            wrong = "" if found == count else f"the count is {found:,} and not {count:,}"
            figures = {"start_s": broker.ready_after_s}
            yield Row(f"{ready_with(count)}{IN_SESSIONS}", figures, not wrong, wrong)

    return run


def wrong_first_answers(broker: BrokerProcess, queue: str, count: int) -> list[str]:
    """Asks a broker that has just become ready for the count of its messages, and for one in the middle and the last.
    Returns what was wrong. The numbers of the messages begin with 1."""
    answers = {"the count is": active_messages(broker, queue)}
    expected = {"the count is": count}
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        receiver = client.get_queue_receiver(queue)
        for number in (max(1, count // 2), count):
            peeked = receiver.peek_messages(1, sequence_number=number)
            name = f"the message at {number:,} has the number"
            answers[name] = peeked[0].sequence_number or 0 if peeked else 0
            expected[name] = number
    return [
        f"{name} {answer:,} and not {expected[name]:,}"
        for name, answer in answers.items()
        if answer != expected[name]
    ]


def active_messages(broker: BrokerProcess, queue: str) -> int:
    """The count of a queue, as the administration API has it."""
    url = f"http://{HOST}:{broker.http_port}/{queue}?api-version=2021-05"
    with urllib.request.urlopen(url, timeout=30) as answer:
        found = re.search(rb"ActiveMessageCount[^>]*>(\d+)<", answer.read())
    return -1 if found is None else int(found[1])


def _target(setting: Setting, broker: BrokerProcess) -> Target:
    return Target.of(setting.storage, broker)
