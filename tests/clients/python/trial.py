"""What the Python clients share: the broker as the runner describes it, and the report of scenarios.

It knows no messaging client and needs nothing but Python. A scenario passes unless it raises.
"""

from __future__ import annotations

import faulthandler
import http.client
import importlib.metadata
import itertools
import json
import os
import sys
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from tests.clients.table import scenarios

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
LIMIT_S = 120
"""How long a scenario may take before the program shows where it hangs, and ends."""


class Skipped(Exception):
    """The client has no way to do it; the text says why."""


@dataclass(frozen=True)
class Broker:
    """The broker under test."""

    host: str
    amqp_port: int
    http_port: int
    connection_string: str
    admin_connection_string: str
    tls_connection_string: str
    authority_file: str
    run: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def from_environment(cls) -> Broker:
        return cls(
            host=os.environ["PEEKLOCK_HOST"],
            amqp_port=int(os.environ["PEEKLOCK_AMQP_PORT"]),
            http_port=int(os.environ["PEEKLOCK_HTTP_PORT"]),
            connection_string=os.environ["PEEKLOCK_CONNECTION_STRING"],
            admin_connection_string=os.environ["PEEKLOCK_ADMIN_CONNECTION_STRING"],
            tls_connection_string=os.environ["PEEKLOCK_TLS_CONNECTION_STRING"],
            authority_file=os.environ["PEEKLOCK_CA_FILE"],
            run=os.environ["PEEKLOCK_RUN"],
        )

    def name(self, what: str) -> str:
        """A name nobody else uses: programs run one after the other, each with its own process id."""
        return f"{self.run}-{what}-{os.getpid()}-{next(self._numbers)}"

    # ---- entities, over plain HTTP --------------------------------------------------------------

    def queue(self, **properties: object) -> str:
        """A new queue; properties by their Service Bus names."""
        name = self.name("queue")
        self.put(name, "QueueDescription", _elements(properties))
        return name

    def topic(self, *subscriptions: str, **properties: object) -> str:
        """A new topic with subscriptions that take everything."""
        name = self.name("topic")
        self.put(name, "TopicDescription", _elements(properties))
        for subscription in subscriptions:
            self.subscription(name, subscription)
        return name

    def subscription(self, topic: str, name: str, **properties: object) -> None:
        path = f"{topic}/Subscriptions/{name}"
        self.put(path, "SubscriptionDescription", _elements(properties))

    def only_rule(self, topic: str, subscription: str, kind: str, filter_xml: str) -> None:
        """Have a subscription take what one filter lets through, and nothing else."""
        path = f"{topic}/Subscriptions/{subscription}/Rules"
        element = f'<Filter i:type="{kind}" xmlns:i="{INSTANCE}">{filter_xml}</Filter>'
        self.put(f"{path}/only", "RuleDescription", element)
        self.delete(f"{path}/$Default")

    def put(self, path: str, kind: str, elements: str) -> None:
        entry = (
            '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
            f'<{kind} xmlns="{SERVICE_BUS}">{elements}</{kind}></content></entry>'
        )
        self._request("PUT", f"/{path}?api-version=2021-05", entry.encode())

    def delete(self, path: str) -> None:
        self._request("DELETE", f"/{path}?api-version=2021-05", b"")

    # ---- time and life --------------------------------------------------------------------------

    def advance(self, *, seconds: float) -> None:
        """Move the broker's clock: nothing sleeps until a lock expires."""
        self._clock(int(seconds * 1000))

    def advance_to(self, moment: datetime) -> None:
        """Move the broker's clock just past a moment."""
        self.advance(seconds=max(0.0, (moment - self.now()).total_seconds()) + 0.01)

    def now(self) -> datetime:
        """The broker's time, which scenarios have moved."""
        return datetime.fromtimestamp(self._clock(0) / 1000, UTC)

    def metric(self, name: str) -> float:
        """A figure without labels that the broker publishes about itself."""
        for line in self._request("GET", "/metrics", b"").decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.partition(" ")[2])
        raise LookupError(name)

    def restart(self) -> None:
        """Have the runner restart the broker."""
        say({"control": "restart"})
        answer = sys.stdin.readline().strip()
        assert answer == "restarted", f"the runner answered {answer!r}"

    def _clock(self, advance_ms: int) -> int:
        body = json.dumps({"advance_ms": advance_ms}).encode()
        return int(json.loads(self._request("POST", "/$peeklock/clock", body))["now_ms"])

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=10)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        assert response.status < 300, f"{method} {path}: {response.status} {content.decode()}"
        return content


def _elements(properties: Mapping[str, object]) -> str:
    return "".join(f"<{name}>{escape(_text(value))}</{name}>" for name, value in properties.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- the report ---------------------------------------------------------------------------------


def say(line: Mapping[str, object]) -> None:
    """A line to the runner."""
    print(json.dumps(line), flush=True)


def say_versions(*packages: str) -> None:
    say({"versions": {package: importlib.metadata.version(package) for package in packages}})


def run_all(
    known: Mapping[str, Callable[[Broker], str | None]], unable: Mapping[str, str], broker: Broker
) -> None:
    """Every scenario the runner wants, in its order; `unable` says why some cannot be."""
    for name in scenarios(short=os.environ.get("PEEKLOCK_SHORT") == "1"):
        if name in unable:
            say({"scenario": name, "outcome": "skipped", "detail": unable[name]})
        else:
            run_one(name, known[name], broker)


def run_one(name: str, scenario: Callable[[Broker], str | None], broker: Broker) -> None:
    """One scenario, and the line about it; what it returns is worth mentioning."""
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    outcome, detail = "passed", ""
    try:
        detail = scenario(broker) or ""
    except Skipped as reason:
        outcome, detail = "skipped", str(reason)
    except Exception:  # noqa: BLE001 -- whatever it is, it is this scenario's failure
        outcome, detail = "failed", traceback.format_exc()
    finally:
        faulthandler.cancel_dump_traceback_later()
    say({"scenario": name, "outcome": outcome, "detail": detail})


# ---- types --------------------------------------------------------------------------------------


APART = "-apart"
"""What the name of the queue for rows apart has at its end."""


def type_rows() -> dict[str, dict[str, str]]:
    """The rows of types.json by their names; those with `apart` are in a message of their own."""
    rows: list[dict[str, str]] = json.loads(Path(os.environ["PEEKLOCK_TYPES_FILE"]).read_text())[
        "rows"
    ]
    return {row["name"]: row for row in rows}


def named_rows(written: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The rows a message names: those in it, and those apart."""
    named = [row for name, row in type_rows().items() if name in written.split(",")]
    return [row for row in named if "apart" not in row], [row for row in named if "apart" in row]


def expect(expected: Any, found: Any, what: str) -> None:
    """An assertion that says what differs."""
    assert expected == found, f"{what}: expected {expected!r}, found {found!r}"
