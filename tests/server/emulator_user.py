"""A user of the official emulator who has changed the image's name and nothing else.

Runs in the namespaces that `test_emulator_drop_in` creates, in which the emulator's ports are free and its
config path exists. Starts the container's command, does what scripts and code written for the
emulator do, and prints what came of it as JSON.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

READY_TEXT = "Emulator Service is Successfully Up!"
KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
MESSAGING = f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=true;"
ADMINISTRATION = f"Endpoint=sb://localhost:5300;{KEY};UseDevelopmentEmulator=true;"


def main(command: list[str]) -> None:
    began_s = time.monotonic()
    found: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            for line in broker.stdout:
                if READY_TEXT in line:
                    break
            found["ready_after_s"] = time.monotonic() - began_s
            found["health"] = _health()
            found["received"] = _messages()
            found["rules"] = _administration()
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.stdout.read()
            found["exit_code"] = broker.wait(30)
    print(json.dumps(found))


def _health() -> list[object]:
    """As scripts ask: the status, the type and every byte."""
    connection = http.client.HTTPConnection("localhost", 5300, timeout=10)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return [answer.status, content]


def _messages() -> dict[str, list[str]]:
    """A queue of the file, and a subscription of the file that filters."""
    received = {}
    with ServiceBusClient.from_connection_string(MESSAGING) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("to the queue"))
        with client.get_topic_sender("events") as sender:
            for kind in ("json", "text"):
                sender.send_messages(ServiceBusMessage(kind, content_type=f"application/{kind}"))
        with client.get_queue_receiver("orders") as receiver:
            received["orders"] = [str(one) for one in receiver.receive_messages(5, max_wait_time=5)]
        with client.get_subscription_receiver("events", "json") as receiver:
            received["events"] = [str(one) for one in receiver.receive_messages(5, max_wait_time=5)]
    return received


def _administration() -> list[str]:
    """The administration string on its own port; Python's client insists on TLS, and gets it."""
    with ServiceBusAdministrationClient.from_connection_string(
        ADMINISTRATION, connection_verify="/data/tls/ca.pem"
    ) as admin:
        return [rule.name for rule in admin.list_rules("events", "json")]


if __name__ == "__main__":
    main(sys.argv[1:])
