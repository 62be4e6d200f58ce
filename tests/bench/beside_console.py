"""What the control API and an open console cost a busy broker: `python -m tests.bench.beside_console`.

Messages pass through a queue while nobody looks, while a client asks what the console asks, and while a real Chromium
shows the overview and the page of that queue; and through a broker without control API. The conditions take turns,
because machines change their speed. The brokers have one core for themselves: a browser that shares it would slow
them down as every program does. The figure is the processor time of the broker for a message. Each condition is compared
with its neighbour in the same round; the result is the median of these ratios.
"""

from __future__ import annotations

import argparse
import http.client
import os
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.cases.setting import IN_FLIGHT, QUEUES
from tests.bench.load import new_run
from tests.bench.roles import Load
from tests.bench.systems import LOCAL, MEMORY, QUEUE, Target
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from playwright.sync_api import Browser

ALONE, API_OFF, REQUESTS, BROWSER = (
    "nobody looks",
    "API off",
    "requests of the console",
    "console open",
)
COUNT = 300_000
BODY_BYTES = 1024
ROUNDS = 8
LIMIT = 1.03
"""Three percent are allowed."""
API = "/$peeklock/v1"
SETTLE_MS = 1_000
MESSAGES_EVERY_S = 1.0
"""The page of an entity reads its messages less often than this."""


@contextmanager
def nothing() -> Iterator[None]:
    """Nobody looks."""
    yield


@contextmanager
def requests(broker: BrokerProcess) -> Iterator[None]:
    """A client asks what the two pages ask: both read the stream, and one reads the messages when they change."""
    ended = threading.Event()
    tasks = [_read_stream, _read_stream, _read_messages]
    threads = [threading.Thread(target=one, args=(broker, ended), daemon=True) for one in tasks]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        ended.set()
        for one in threads:
            one.join()


def _read_stream(broker: BrokerProcess, ended: threading.Event) -> None:
    connection = http.client.HTTPConnection(broker.host, broker.http_port, timeout=60)
    connection.request("GET", f"{API}/overview/stream")
    response = connection.getresponse()
    while not ended.is_set():
        response.readline()  # an event comes every second while messages pass
    connection.close()


def _read_messages(broker: BrokerProcess, ended: threading.Event) -> None:
    while not ended.wait(MESSAGES_EVERY_S):
        connection = http.client.HTTPConnection(broker.host, broker.http_port, timeout=60)
        connection.request("GET", f"{API}/messages?entity={QUEUE}&limit=100")
        connection.getresponse().read()
        connection.close()


@contextmanager
def pages(browser: Browser, broker: BrokerProcess) -> Iterator[None]:
    """The console is open twice: on the overview, and on the page of the queue."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    for where in ("overview", f"entity/{QUEUE}"):
        page = context.new_page()
        page.goto(f"http://localhost:{broker.http_port}/#/{where}")
        page.get_by_text("Live", exact=True).wait_for()
        page.wait_for_timeout(SETTLE_MS)  # what opening it costs is not what having it open costs
    try:
        yield
    finally:
        context.close()


def measure(storage: str, folder: Path, rounds: int, count: int) -> dict[str, list[float]]:
    """Returns the processor time of the broker for a message, by condition and round, in microseconds."""
    from playwright.sync_api import sync_playwright

    from tests.console import chromium

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    figures: dict[str, list[float]] = {one: [] for one in (API_OFF, ALONE, REQUESTS, BROWSER)}
    with ExitStack() as stack:
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=chromium.executable(), args=list(chromium.FLAGS)
        )
        stack.callback(browser.close)
        brokers = {}
        for name, setting in ((ALONE, "true"), (API_OFF, "false")):
            url = "memory:" if storage == MEMORY else f"sqlite:///{folder / setting}.db"
            brokers[name] = stack.enter_context(
                BrokerProcess(
                    config={"queues": QUEUES},
                    storage=url,
                    testing_api=False,
                    environment={"PEEKLOCK_CONTROL_API": setting},
                )
            )
        for broker in brokers.values():
            pin(broker.process_id, cores[0])
        served = brokers[ALONE]
        conditions: dict[str, Callable[[], AbstractContextManager[None]]] = {
            API_OFF: nothing,
            ALONE: nothing,
            REQUESTS: lambda: requests(served),
            BROWSER: lambda: pages(browser, served),
        }
        for number in range(rounds + 1):
            order = list(conditions) if number % 2 else list(reversed(conditions))
            for name in order:
                condition = conditions[name]
                broker = brokers.get(name, served)
                target = Target.of(storage, broker)
                load = Load(
                    port=broker.amqp_port,
                    address=QUEUE,
                    count=count,
                    body_bytes=BODY_BYTES,
                    window=IN_FLIGHT,
                    credit=IN_FLIGHT,
                    run=new_run(),
                )
                with condition():
                    row = target.run(name, "both", replace(load, run=new_run()))
                assert row.is_clean, row.problem
                if number:  # the first round warms up
                    figures[name].append(row.figures["broker_cpu_us"])
    return figures


def pin(process_id: int, core: int) -> None:
    """Binds all threads of a process to a core. Later ones inherit it."""
    for task in Path(f"/proc/{process_id}/task").iterdir():
        os.sched_setaffinity(int(task.name), [core])


def ratio(figures: dict[str, list[float]], condition: str, base: str) -> float:
    """Returns the median of what a message takes in a condition, divided by what it took beside it."""
    return median(one / other for one, other in zip(figures[condition], figures[base], strict=True))


def main() -> int:
    """Prints a line for each condition. Returns 1 if one costs more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--count", type=int, default=COUNT, help="messages in a round")
    parser.add_argument("--storage", choices=LOCAL, help="only this storage")
    options = parser.parse_args()
    failed = False
    for storage in LOCAL if options.storage is None else (options.storage,):
        with tempfile.TemporaryDirectory(prefix="peeklock-bench-") as folder:
            figures = measure(storage, Path(folder), options.rounds, options.count)
        for condition, base in (
            (API_OFF, None),
            (ALONE, API_OFF),
            (REQUESTS, ALONE),
            (BROWSER, ALONE),
        ):
            times = figures[condition]
            text = f"{storage}: {condition}: {median(times):.2f} µs"
            if base is not None:
                found = ratio(figures, condition, base)
                text += f", {100 * (found - 1):+.1f} % beside {base}"
                failed = failed or found > LIMIT
            print(text, "(", *(f"{one:.2f}" for one in times), ")", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
