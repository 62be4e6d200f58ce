"""Makes the screenshots of the README: `make screenshots`. They show a broker with clients of the stock SDK."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Literal

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from playwright.sync_api import expect, sync_playwright

from tests.console import chromium
from tests.console.console_page import ConsolePage
from tests.support.server import ROOT, BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "docs" / "images"
SIZE_MAX_BYTES = 100_000
TRAFFIC_S = 45
SHOWN: tuple[tuple[str, Literal["light", "dark"]], ...] = (
    ("console-overview", "light"),
    ("console-message", "dark"),
)
CONFIG: dict[str, Any] = {
    "queues": {
        "orders": {"max_delivery_count": 3, "lock_duration": "PT1M"},
        "orders/eu": {},
        "payments": {},
        "shipping": {"requires_session": True},
    },
    "topics": {"events": {"subscriptions": {"audit": {}, "billing": {}, "search-index": {}}}},
}


def main() -> None:
    """Writes both files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with BrokerProcess(config=CONFIG, testing_api=False) as broker, sync_playwright() as playwright:
        broker.request("PUT", "/$peeklock/v1/history", {"recording": True})
        stopped = threading.Event()
        traffic = threading.Thread(target=send_and_receive, args=(broker, stopped))
        traffic.start()
        try:
            path = chromium.executable()
            browser = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
            for name, scheme in SHOWN:
                context = browser.new_context(
                    viewport={"width": 1280, "height": 800}, color_scheme=scheme
                )
                console = ConsolePage(context.new_page(), broker.http_port)
                console.open()
                if name == "console-overview":
                    stopped.wait(TRAFFIC_S)
                else:
                    console.open("#/entity/orders?sub_queue=dead_letter")
                    console.rows.first.get_by_role("link").click()
                    expect(console.text("Why it is a dead letter")).to_be_visible()
                    expect(console.text("Sent", exact=True).first).to_be_visible()
                write(console, FOLDER / f"{name}.png")
                context.close()
            browser.close()
        finally:
            stopped.set()
            traffic.join()


def write(console: ConsolePage, path: Path) -> None:
    """Writes what the page shows."""
    content = console.page.screenshot()
    assert len(content) <= SIZE_MAX_BYTES, f"{path.name} has {len(content)} bytes"
    path.write_bytes(content)
    print(f"{path.relative_to(ROOT)}: {len(content)} bytes")


def send_and_receive(broker: BrokerProcess, stopped: threading.Event) -> None:
    """Clients that send and receive until they are stopped, and dead-letter a message now and then."""
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        orders = client.get_queue_sender("orders")
        payments = client.get_queue_sender("payments")
        shipping = client.get_queue_sender("shipping")
        events = client.get_topic_sender("events")
        receiver = client.get_queue_receiver("orders")
        number = 0
        while not stopped.wait(0.1):
            number += 1
            body = json.dumps(
                {"order": 1000 + number, "items": [{"sku": "A-17", "count": 2}], "total": 59.8}
            )
            orders.send_messages(
                ServiceBusMessage(
                    body,
                    message_id=f"order-{1000 + number}",
                    subject="OrderPlaced",
                    content_type="application/json",
                    application_properties={"country": "DE", "priority": number % 3},
                )
            )
            events.send_messages([ServiceBusMessage("x") for _ in range(1 + number % 7)])
            if number % 9 == 0:
                payments.send_messages(ServiceBusMessage("payment"))
                shipping.send_messages(
                    ServiceBusMessage("parcel", session_id=f"depot-{number % 4}")
                )
            for message in receiver.receive_messages(2, max_wait_time=5):
                if number % 25 == 0:
                    receiver.dead_letter_message(
                        message,
                        reason="InvalidTotal",
                        error_description="The total does not match the items.",
                    )
                elif number % 13:
                    receiver.complete_message(message)


if __name__ == "__main__":
    main()
