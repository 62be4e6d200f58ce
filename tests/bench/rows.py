"""One line of the result: what the roles saw and what the broker spent meanwhile.

It runs roles against a broker that is there already and puts the figures together; which loads make
up a case is said in `cases`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.bench import observe
from tests.bench.load import measure

if TYPE_CHECKING:
    from tests.bench.roles import Load
    from tests.support.server import BrokerProcess

Part = tuple[str, "Load"]
"""A role and its load."""


@dataclass(slots=True)
class Row:
    """Figures by name; a row that is not clean says what was wrong."""

    case: str
    figures: dict[str, Any]
    is_clean: bool = True
    problem: str = ""
    system: str = ""
    """The broker that was measured: one of `systems.py`."""


def observed(broker: BrokerProcess, case: str, *parts: Part) -> Row:
    """Run roles against the broker and charge it for what it used meanwhile."""
    before_s = observe.cpu_s(broker.process_id)
    results = measure(*parts)
    return row_of(case, observe.cpu_s(broker.process_id) - before_s, results)


def through(load: Load) -> tuple[Part, Part]:
    """Receive while sending; receivers are attached first."""
    return ("receive", load), ("send", load)


def started(broker: BrokerProcess, case: str) -> Row:
    """How long the broker took to be ready, and how big it is now."""
    figures = {"start_s": broker.ready_after_s, "resident_mb": resident_megabytes(broker)}
    return Row(case, figures)


def resident_megabytes(broker: BrokerProcess) -> float:
    return observe.resident_megabytes(broker.process_id)


def row_of(case: str, broker_cpu_s: float, results: list[dict[str, Any]]) -> Row:
    """Rates count messages once, however many subscriptions received a copy; what a copy costs is
    said besides."""
    figures: dict[str, Any] = {}
    problems = [result["error"] for result in results if result["error"]]
    senders = [result for result in results if result.get("role") == "send"]
    receivers = [result for result in results if result.get("role") == "receive"]
    if senders or receivers:
        begin_ns = min(result["begin_ns"] for result in senders or receivers)
        end_ns = max(result["end_ns"] for result in receivers or senders)
        count = sum(result["count"] for result in senders or receivers)
        copies = sum(result["count"] for result in receivers)
        figures["messages_per_s"] = count * 1e9 / max(end_ns - begin_ns, 1)
        figures["broker_cpu_us"] = broker_cpu_s * 1e6 / max(count, 1)
        if copies > count:
            figures["broker_cpu_us_per_copy"] = broker_cpu_s * 1e6 / copies
    for result in senders + receivers:
        name = f"{result['role']}_client_cpu_us"
        figures[name] = figures.get(name, 0.0) + result["client_cpu_us_per_message"]
        verdict = result.get("verdict") or {"not accepted": result.get("not_accepted", 0)}
        problems += [f"{count} {kind}" for kind, count in verdict.items() if count]
    if senders:
        figures |= _latencies("ack", senders[0])
    if senders and receivers:
        # Without a sender beside it, a receiver's end to end is how long the messages lay there.
        figures |= _latencies("end_to_end", receivers[0])
    return Row(case, figures, all(result["is_clean"] for result in results), "; ".join(problems))


def _latencies(prefix: str, result: dict[str, Any]) -> dict[str, float]:
    return {f"{prefix}_{name}_us": value for name, value in result.get("latency_us", {}).items()}
