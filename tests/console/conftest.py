"""One browser and one broker for the tests of a file, and a fresh page for each test.

A page that logs an error or a warning fails its test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient
from playwright.sync_api import Browser, Page, sync_playwright

from tests.console import chromium
from tests.console.console_page import ConsolePage
from tests.control.client import ControlClient
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMEOUT_MS = 10_000
"""How long a page may take to show what is expected. The machine may be busy."""
CONFIG: dict[str, Any] = {
    "queues": {
        "orders": {"lock_duration": "PT1M", "max_delivery_count": 3},
        "orders/eu": {},
        "carts": {"requires_session": True},
        "many": {},
        "hostile": {},
    },
    "topics": {
        "events": {
            "subscriptions": {
                "audit": {},
                "red": {
                    "rules": {
                        "red": {"sql_filter": "color = 'red'"},
                        "tagged": {"sql_filter": "color IS NOT NULL", "action": "SET tag = color"},
                    }
                },
            },
        },
    },
    "namespaces": {"team-b": {"queues": {"theirs": {}}}},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(config=CONFIG, testing_api=False) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one file only: while it runs, asyncio cannot be used by other tests of the process."""
    path = chromium.executable()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        yield running
        running.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., ConsolePage]]:
    """Opens pages, in contexts of their own. Checks at the end that they logged nothing."""
    pages: list[ConsolePage] = []

    def create(port: int, **options: Any) -> ConsolePage:
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        context = browser.new_context(timezone_id="Europe/Berlin", locale="en-GB", **options)
        context.set_default_timeout(TIMEOUT_MS)
        page: Page = context.new_page()
        pages.append(ConsolePage(page, port))
        return pages[-1]

    yield create
    for one in pages:
        one.page.context.close()
    for one in pages:
        assert [] == one.logged


@pytest.fixture
def console(new_page: Callable[..., ConsolePage], broker: BrokerProcess) -> ConsolePage:
    """The console of the broker in an ordinary window."""
    return new_page(broker.http_port)


@pytest.fixture
def api(broker: BrokerProcess) -> ControlClient:
    return ControlClient(broker.http_port)


@pytest.fixture
def sdk(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    """The stock client."""
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        yield client


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> None:
    """Each test begins without messages."""
    if "broker" in request.fixturenames:
        ControlClient(request.getfixturevalue("broker").http_port).post("/reset")
