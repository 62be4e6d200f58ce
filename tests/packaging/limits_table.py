"""The table of limits in docs/limits.md.

Peeklock's figures come from `config/model/limits.py`. The figures of Azure and of the official emulator are
constants here, taken from their documentation. `python -m tests.packaging.limits_table` writes the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from config.files import emulator_limits
from config.model.definitions import UNLIMITED_MS
from config.model.durations import format_duration
from config.model.limits import INT32_MAX, KIBIBYTE, MEBIBYTE, RELAXED, Limits, Tier, strict

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
BEGIN, END = "<!-- limits -->", "<!-- /limits -->"
NOT_DOCUMENTED = "not documented"


@dataclass(frozen=True, slots=True)
class Row:
    """One limit: how to read it from `Limits`, and what the others document."""

    name: str
    peeklock: Callable[[Limits], str]
    azure: str
    emulator: str = NOT_DOCUMENTED


def _number(field: str) -> Callable[[Limits], str]:
    return lambda limits: f"{getattr(limits, field):,}"


def _size(field: str, unit_bytes: int = 1) -> Callable[[Limits], str]:
    def text(limits: Limits) -> str:
        value: int = getattr(limits, field)
        size_bytes = value * unit_bytes
        if value == INT32_MAX:
            return "size of the disk"
        if size_bytes % (KIBIBYTE * MEBIBYTE) == 0:
            return f"{size_bytes // (KIBIBYTE * MEBIBYTE)} GiB"
        if size_bytes % MEBIBYTE == 0:
            return f"{size_bytes // MEBIBYTE} MiB"
        return f"{size_bytes // KIBIBYTE} KiB"

    return text


def _duration(milliseconds: int) -> str:
    return "unlimited" if milliseconds == UNLIMITED_MS else format_duration(milliseconds)


def _longest(field: str) -> Callable[[Limits], str]:
    return lambda limits: _duration(getattr(limits, field))


def _range(lowest: str, highest: str) -> Callable[[Limits], str]:
    return lambda limits: (
        f"{_duration(getattr(limits, lowest))} to {_duration(getattr(limits, highest))}"
    )


ROWS = (
    Row("namespaces", _number("namespaces_max"), "1,000 for each subscription", "1"),
    Row("snapshots", _number("snapshots_max"), "none", "none"),
    Row("size of all snapshots", _size("snapshots_max_bytes"), "none", "none"),
    Row("size of snapshots in memory", _size("snapshots_in_memory_max_bytes"), "none", "none"),
    Row(
        "queues and topics in a namespace",
        _number("entities_per_namespace_max"),
        "10,000; Premium 1,000 for each messaging unit",
        str(emulator_limits.ENTITIES_MAX),
    ),
    Row(
        "subscriptions of a topic",
        _number("subscriptions_per_topic_max"),
        "2,000",
        str(emulator_limits.SUBSCRIPTIONS_MAX),
    ),
    Row(
        "rules of a subscription",
        _number("rules_per_subscription_max"),
        "2,000 SQL filters and 100,000 correlation filters for a topic",
        "20 SQL filters and 1,000 correlation filters for a topic",
    ),
    Row(
        "characters of an SQL filter or action",
        _number("sql_text_max_characters"),
        "1,024",
        f"{emulator_limits.SQL_MAX_CHARACTERS:,}",
    ),
    Row("statements of an action", _number("statements_per_action_max"), "32", "32"),
    Row(
        "authorization rules of an entity",
        _number("authorization_rules_per_entity_max"),
        "12",
        "none",
    ),
    Row("characters of the path of a queue or topic", _number("entity_path_max_characters"), "260"),
    Row(
        "characters of the name of a subscription or rule",
        _number("name_max_characters"),
        "50",
    ),
    Row(
        "size of a queue or topic",
        _size("entity_size_max_megabytes", MEBIBYTE),
        "5 GB; partitioned or Premium 80 GB",
        "100 MB",
    ),
    Row(
        "size of a message",
        _size("message_max_bytes"),
        "256 KB; Premium 100 MB",
        "256 KB",
    ),
    Row(
        "size of a message, if the entity sets no size",
        _size("message_default_kilobytes", KIBIBYTE),
        "256 KB; Premium 1 MB",
        "256 KB",
    ),
    Row("size of a batch", _size("batch_max_bytes"), "256 KB; Premium 1 MB"),
    Row("size of a session state", _size("session_state_max_bytes"), "256 KB; Premium 100 MB"),
    Row("characters of a message id", _number("message_id_max_characters"), "128"),
    Row("characters of a session id", _number("session_id_max_characters"), "128"),
    Row(
        "lock duration",
        _range("lock_duration_min_ms", "lock_duration_max_ms"),
        "at most PT5M",
        "PT5S to PT5M",
    ),
    Row("time to live", _longest("time_to_live_max_ms"), "unlimited; Basic P14D", "PT1H"),
    Row(
        "maximum delivery count",
        _number("max_delivery_count_max"),
        f"{INT32_MAX:,}",
        "10",
    ),
    Row(
        "duplicate detection window",
        _range("duplicate_window_min_ms", "duplicate_window_max_ms"),
        "PT20S to P7D",
        "PT5S to PT5M",
    ),
    Row("hops of forwarding", _number("forward_hops_max"), "4"),
    Row(
        "operations in a transaction",
        _number("transaction_max_operations"),
        "100 messages",
    ),
    Row("messages in one peek", _number("peek_max_messages"), "250"),
    Row(
        "messages in one batch deletion",
        _number("delete_max_messages"),
        "500; Premium 4,000",
    ),
    Row("connections", _number("connections_max"), "5,000", "10"),
    Row("receivers of an entity", _number("receivers_per_entity_max"), "5,000", "200"),
)


def table() -> str:
    """One row for each limit."""
    lines = [
        "| limit | Peeklock | strict, Standard | strict, Premium | Azure | official emulator |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        limits = (RELAXED, strict(Tier.STANDARD), strict(Tier.PREMIUM))
        cells = [row.name, *map(row.peeklock, limits), row.azure, row.emulator]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The table as the page has it now."""
    return PAGE.read_text().partition(BEGIN + "\n")[2].partition(END)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}{END}{after}")
