"""Rules of one subscription: what the last of many costs, beside what the first did.

Each is created, listed and removed by a request of its own over HTTP; messages are sent over REST,
so that a send and the rules it meets are the only difference. A ratio of 1 is flat.
"""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING, Any

from tests.bench.rows import Row
from tests.support.server import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.cases.setting import Setting

RULES = 2_000
MEASURED = 100
"""The first so many are compared with the last so many."""
MAX_RATIO = 2.0
NAMESPACES = (
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
    'xmlns:i="http://www.w3.org/2001/XMLSchema-instance" '
    'xmlns:x="http://www.w3.org/2001/XMLSchema"'
)
PATH = "/t/Subscriptions/s"
FILTERS: dict[str, Callable[[int], str]] = {
    "correlation": lambda number: (
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>n</Key>'
        f'<Value i:type="x:string">{number}</Value></KeyValueOfstringanyType></Properties></Filter>'
    ),
    "SQL": lambda number: (
        f"<Filter i:type=\"SqlFilter\"><SqlExpression>n = '{number}' AND m &gt; {number}"
        "</SqlExpression></Filter>"
    ),
}


def rules(setting: Setting, name: str) -> Iterator[Row]:
    """Created, listed, sent past and removed."""
    for kind, rule_filter in FILTERS.items():
        config: dict[str, Any] = {"topics": {"t": {"subscriptions": {"s": {"rules": {}}}}}}
        with setting.broker(config) as broker:
            client = _Client(broker.http_port)
            client.request(
                "PUT", f"{PATH}/Rules/first", _rule(rule_filter(5))
            )  # takes every message
            few = [client.send() for _ in range(MEASURED)]
            created = [
                client.request("PUT", f"{PATH}/Rules/r{number}", _rule(rule_filter(number)))
                for number in range(RULES)
            ]
            many = [client.send() for _ in range(MEASURED)]
            pages = [
                client.request("GET", f"{PATH}/Rules?$skip={skip}&$top=100")
                for skip in range(0, RULES, 100)
            ]
            removed = [
                client.request("DELETE", f"{PATH}/Rules/r{number}") for number in range(RULES)
            ]
        label = f"{name} {kind} filters,"
        yield _row(f"{label} create", created[:MEASURED], created[-MEASURED:])
        yield _row(f"{label} remove", removed[-MEASURED:], removed[:MEASURED])
        yield _row(f"{label} send", few, many)
        yield _row(f"{label} page", pages[:5], pages[-5:])
        setting.file.unlink(missing_ok=True)


class _Client:
    """One connection, one request after the other."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)

    def request(self, method: str, path: str, body: str = "") -> float:
        """How long it took, in milliseconds."""
        start_s = time.perf_counter()
        self._connection.request(method, path, body.encode(), {"n": '"5"', "m": "10"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status not in {200, 201}:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
        return (time.perf_counter() - start_s) * 1000

    def send(self) -> float:
        return self.request("POST", "/t/messages", "x")


def _rule(rule_filter: str) -> str:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f"<RuleDescription {NAMESPACES}>{rule_filter}</RuleDescription></content></entry>"
    )


def _row(case: str, first: list[float], last: list[float]) -> Row:
    # The fastest: other work on the machine makes some slower, and none faster.
    first_ms, last_ms = min(first), min(last)
    ratio = last_ms / first_ms
    problem = "" if ratio <= MAX_RATIO else f"{ratio:.2f} times the cost, {MAX_RATIO} is the most"
    figures = {"first_ms": first_ms, "last_ms": last_ms, "ratio": ratio}
    return Row(case, figures, not problem, problem)
