"""Measures the first view of the console in a real browser: `python -m tests.console.first_view`.

Each load has an empty cache. Of the loads it prints the median and all times, and where the time of the median load went.
The first load after the start of the broker is shown apart, because the broker loads its HTTP server with it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect, sync_playwright

from tests.console import chromium
from tests.console.conftest import CONFIG
from tests.console.console_page import ConsolePage
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LOADS = 15
MEASURE = """() => {
    const resources = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
    const files = resources.filter((one) => !one.name.includes("/v1/"));
    return {
        bytes: files.reduce((sum, one) => sum + one.transferSize, 0),
        requests: files.length,
        firstPaintMs: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
        firstViewMs: performance.getEntriesByName("first-view")[0].startTime,
        others: resources.filter((one) => !one.name.startsWith(location.origin)).length,
        waterfall: resources.map((one) => [new URL(one.name).pathname, one.startTime, one.responseStart, one.responseEnd]),
    };
}"""


def load(console: ConsolePage) -> dict[str, Any]:
    """Opens the console and returns what its first view took, once the entities are shown."""
    console.page.goto(console.address)
    expect(console.row("orders")).to_be_visible()
    measured: dict[str, Any] = console.page.evaluate(MEASURE)
    return measured


def middle(loads: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the load whose first view took the median time."""
    return sorted(loads, key=lambda one: float(one["firstViewMs"]))[len(loads) // 2]


def measure(browser: Browser, port: int, count: int) -> list[dict[str, Any]]:
    """Loads the console so many times, each time in a browser that was never there."""
    loads = []
    for _ in range(count):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        loads.append(load(ConsolePage(context.new_page(), port)))
        context.close()
    return loads


def main() -> None:
    """Prints the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=LOADS)
    count: int = parser.parse_args().loads
    with sync_playwright() as playwright, BrokerProcess(config=CONFIG, testing_api=False) as broker:
        browser = playwright.chromium.launch(
            executable_path=chromium.executable(), args=list(chromium.FLAGS)
        )
        browser.new_context().new_page().goto("about:blank")  # the browser's own start
        (first,) = measure(browser, broker.http_port, 1)
        loads = measure(browser, broker.http_port, count)
        browser.close()
    found = middle(loads)
    print(f"first load after the start: {first['firstViewMs']:.0f} ms")
    print(f"median of {count}: {found['firstViewMs']:.0f} ms, paint {found['firstPaintMs']:.0f} ms")
    print("all:", *sorted(round(one["firstViewMs"]) for one in loads))
    print(f"{found['bytes']} bytes, {found['requests']} requests")
    for path, start, answered, end in found["waterfall"]:
        print(f"{start:7.1f} {answered:7.1f} {end:7.1f}  {path}")


if __name__ == "__main__":
    main()
