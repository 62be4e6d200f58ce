"""What a failing test's report says about its namespace: the history of its messages, and what is left of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_peeklock.errors import BrokerNotReachable, PeeklockError

if TYPE_CHECKING:
    from pytest_peeklock.answers import Message, SubQueue, Transition
    from pytest_peeklock.client import Peeklock

TRANSITIONS_MAX = 200
MESSAGES_MAX = 20
SUB_QUEUES: tuple[tuple[SubQueue, tuple[str, ...]], ...] = (
    ("main", ("active", "locked", "deferred", "scheduled")),
    ("dead_letter", ("dead_lettered",)),
    ("transfer_dead_letter", ("transfer_dead_lettered",)),
)
"""Each queue of an entity, and the counts of the messages in it."""


def section(client: Peeklock) -> tuple[str, str]:
    """Returns the title and the text of a section."""
    title = f"peeklock: namespace {client.namespace}"
    try:
        lines = [*_history(client), *_left(client)]
    except (BrokerNotReachable, PeeklockError) as error:
        return title, f"It cannot be shown: {error}"
    return title, "\n".join(lines) or "It had no messages."


def _history(client: Peeklock) -> list[str]:
    """Returns a line for each of the last transitions."""
    last = client.read_history(limit=1)["last"]
    first = max(0, last - TRANSITIONS_MAX)
    found = client.read_history(after=first, limit=TRANSITIONS_MAX)["transitions"]
    left_out = [f"{first} earlier transitions are not shown"] if first else []
    return [*left_out, *map(_transition_line, found)]


def _transition_line(one: Transition) -> str:
    time = (one["time"] or "").partition("T")[2].rstrip("Z")
    words = [f"{time} {_queue(one['entity'], one['sub_queue'])} #{one['sequence_number'] or '-'}"]
    words.append(one["event"])
    fields: dict[str, Any] = dict(one)
    words += [
        f"{name}={_shown(fields[name])}"
        for name in ("message_id", "session_id", "delivery_count", "rule", "reason", "description")
        if fields[name]
    ]
    if (to := one["to"]) is not None:
        words.append(f"to {_queue(to['entity'], to['sub_queue'])} #{to['sequence_number'] or '-'}")
    if (client := one["client"]) is not None:
        words.append(f"by {client['container_id']}")
    return " ".join(words)


def _left(client: Peeklock) -> list[str]:
    """Returns a line for each message that is left."""
    lines: list[str] = []
    for entity in client.list_entities()["entities"]:
        counts: dict[str, Any] = dict(entity["counts"])
        for sub_queue, states in SUB_QUEUES:
            total = sum(counts[state] for state in states)
            if total and entity["kind"] != "topic":
                lines += _messages(client, entity["path"], sub_queue, total)
    return lines


def _messages(client: Peeklock, entity: str, sub_queue: SubQueue, total: int) -> list[str]:
    page = client.list_messages(entity, sub_queue=sub_queue, limit=MESSAGES_MAX, body="none")
    where = _queue(entity, sub_queue)
    lines = [f"left in {where}: {_message_line(one)}" for one in page["messages"]]
    if total > len(lines):
        lines.append(f"left in {where}: {total - len(lines)} more")
    return lines


def _message_line(one: Message) -> str:
    words = [f"#{one['sequence_number']} {one['state']} message_id={_shown(one['message_id'])}"]
    words.append(f"delivery_count={one['delivery_count']}")
    if one["session_id"] is not None:
        words.append(f"session_id={_shown(one['session_id'])}")
    if (lock := one["lock"]) is not None:
        words.append(f"locked by {lock['holder']['container_id']} until {lock['until']}")
    if (dead_letter := one["dead_letter"]) is not None:
        texts = (dead_letter["reason"], dead_letter["description"])
        why = [_shown(text) for text in texts if text]
        words.append(": ".join(why) or "no reason")
    return " ".join(words)


def _shown(value: object) -> str:
    """Returns a value as one line, without characters that control a terminal."""
    text = str(value)
    return text if text.isprintable() else ascii(text)


def _queue(entity: str, sub_queue: str | None) -> str:
    return entity if sub_queue in {None, "main"} else f"{entity}/{sub_queue}"
