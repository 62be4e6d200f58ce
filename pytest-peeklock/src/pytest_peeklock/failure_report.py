"""What a failing test's report says about its namespace: the history of its messages, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_peeklock.errors import BrokerNotReachable, PeeklockError

if TYPE_CHECKING:
    from pytest_peeklock.client import Peeklock

MESSAGES_MAX = 20


def section(client: Peeklock) -> tuple[str, str]:
    """Returns the title and the text of a section."""
    title = f"peeklock: namespace {client.namespace}"
    try:
        return title, "\n".join(_left(client)) or "It has no messages."
    except (BrokerNotReachable, PeeklockError) as error:
        return title, f"It cannot be shown: {error}"


def _left(client: Peeklock) -> list[str]:
    """Returns a line for each message that is left."""
    lines: list[str] = []
    for entity in client.list_entities()["entities"]:
        if entity["kind"] == "topic":
            continue
        counts = entity["counts"]
        total = sum(counts[state] for state in ("active", "locked", "deferred", "scheduled"))
        path = entity["path"]
        if total:
            lines += _messages(client, path, "main", total)
        if counts["dead_lettered"]:
            lines += _messages(client, path, "dead_letter", counts["dead_lettered"])
    return lines


def _messages(client: Peeklock, entity: str, sub_queue: str, total: int) -> list[str]:
    page = client.list_messages(entity, sub_queue=sub_queue, limit=MESSAGES_MAX, body="none")  # type: ignore[arg-type]
    where = entity if sub_queue == "main" else f"{entity} ({sub_queue})"
    lines = []
    for one in page["messages"]:
        words = [f"left in {where}: #{one['sequence_number']}", one["state"]]
        words.append(f"message_id={one['message_id']!r} deliveries={one['delivery_count']}")
        if one["session_id"] is not None:
            words.append(f"session={one['session_id']!r}")
        if (lock := one["lock"]) is not None:
            words.append(f"locked by {lock['holder']['container_id']} until {lock['until']}")
        if (dead_letter := one["dead_letter"]) is not None:
            why = [one for one in (dead_letter["reason"], dead_letter["description"]) if one]
            words.append(": ".join(why) or "no reason")
        lines.append(" ".join(words))
    if total > len(lines):
        lines.append(f"left in {where}: {total - len(lines)} more")
    return lines
