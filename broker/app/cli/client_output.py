"""Messages, fault rules and transitions of the control API as lines for people."""

from __future__ import annotations

import json
from typing import Any

BODY_MAX_CHARACTERS = 200


def message_line(message: dict[str, Any]) -> str:
    """Returns a message: its number and state, and what it has besides."""
    words = [f"#{message['sequence_number']} {message['state']}"]
    words += _named(message, "message_id", "session_id", "subject")
    words.append(f"delivery_count={message['delivery_count']}")
    if (lock := message["lock"]) is not None:
        words += _named({"locked_by": lock["holder"]["container_id"], **lock}, "locked_by", "until")
    if (dead_letter := message["dead_letter"]) is not None:
        words += _named(dead_letter, "reason", "description")
    words += _named(message, "scheduled_for")
    words += _named(message["application_properties"], *message["application_properties"])
    if message["body_format"] != "none":
        body = message["body"]
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        if len(text) > BODY_MAX_CHARACTERS:
            text = f"{text[:BODY_MAX_CHARACTERS]}…"
        words.append(f"body={_text(text)}")
    return " ".join(words)


def fault_line(fault: dict[str, Any]) -> str:
    """Returns a fault rule and how often it has acted."""
    words = [f"{fault['name']}: {fault['operation']}"]
    words += _named(fault, "entity", "sub_queue", "management_operation", "filter")
    for part in (fault["client"], fault["occurrence"]):
        words += _named(part or {}, *(part or {}))
    action = dict(fault["action"])
    words.append(f"-> {action.pop('kind')}")
    words += _named(action, *action)
    return f"{' '.join(words)}; {fault['hits']} hits of {fault['matched']}"


def transition_line(transition: dict[str, Any]) -> str:
    """Returns a transition of a message: when, where, which message, what happened."""
    queue = transition["entity"]
    if transition["sub_queue"] is not None:
        queue = f"{queue}/{transition['sub_queue']}"
    words = [f"{transition['time']} {queue} #{transition['sequence_number'] or '-'}"]
    words.append(transition["event"])
    words += _named(transition, "message_id", "session_id")
    words.append(f"delivery_count={transition['delivery_count']}")
    words += _named(transition, "rule", "locked_until", "reason", "description", "transaction")
    if (client := transition["client"]) is not None:
        words += _named(client, "container_id", "key_name")
    if (to := transition["to"]) is not None:
        queue = to["entity"] if to["sub_queue"] is None else f"{to['entity']}/{to['sub_queue']}"
        words.append(f"to={queue}#{to['sequence_number'] or '-'}")
    return " ".join(words)


def _named(values: dict[str, Any], *names: str) -> list[str]:
    return [f"{_text(name)}={_text(values[name])}" for name in names if values[name] is not None]


def _text(value: object) -> str:
    """Returns a value as one word, in quotes if it is none. A terminal would obey control characters, so they are
    escaped."""
    if isinstance(value, str) and value.isprintable() and value and not set(value) & set(" \"'="):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
