"""Runs `peeklock peek`, `wait`, `purge`, `send`, `faults`, `history` and `backup` against a running broker.

Each command makes a few requests to the control API, prints the answers, and returns an exit code for scripts.
"""

from __future__ import annotations

import base64
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from broker.app.cli.client_arguments import (
    BACKUP,
    FAULTS,
    HISTORY,
    HISTORY_LIMIT,
    PEEK,
    PEEK_LIMIT,
    PURGE,
    SEND,
    WAIT,
)
from broker.app.cli.client_output import fault_line, message_line, transition_line
from broker.app.cli.control_client import BadAddress, NotReachable, Refused, control_client
from broker.app.cli.user_paths import BadPath, user_path
from broker.app.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from broker.app.cli.control_client import ControlClient

    Options = Mapping[str, Any]

PAGE_MAX = 1_000
SEND_MAX = 1_000
"""How many messages one request sends."""
WAIT_DEFAULT_S = 10.0
TOO_DEEP = "too many arrays or objects in each other"
BAD_REQUEST, TIMED_OUT = 400, 408


class _Misused(Exception):
    """An argument is wrong. The text says which."""


def run(command: str, options: Options) -> int:
    """Runs a command. Returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know every character
    try:
        code = _run(command, options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.OK if "follow" in options else ExitCode.INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # the reader, such as `head`, has what it wants
        return ExitCode.OK
    except OSError as error:
        _discard_output()
        _complain(f"the answer cannot be written: {error.strerror}")
        return ExitCode.FAILED
    return code


def _run(command: str, options: Options) -> int:
    try:
        return _COMMANDS[command](control_client(options, os.environ), options)
    except (BadAddress, _Misused) as error:
        return _failed(options, ExitCode.MISUSED, "wrong_argument", str(error))
    except UnicodeEncodeError:
        text = "an argument is not text in the encoding of this system"
        return _failed(options, ExitCode.MISUSED, "wrong_argument", text)
    except NotReachable as error:
        return _failed(options, ExitCode.NOT_REACHABLE, "not_reachable", str(error))
    except Refused as error:
        if "json" in options:
            _print_json(error.answer)
        _complain(str(error))
        if error.status == TIMED_OUT:
            return ExitCode.NOT_SO
        return ExitCode.MISUSED if error.status == BAD_REQUEST else ExitCode.FAILED


def _failed(options: Options, code: ExitCode, name: str, text: str) -> ExitCode:
    """Reports an error that no broker has answered with, in the form of those that it answers with."""
    if "json" in options:
        _print_json({"error": {"code": name, "message": text, "field": None}})
    _complain(text)
    return code


def _discard_output() -> None:
    """Python must not complain about what is not written when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _peek(client: ControlClient, options: Options) -> int:
    query = _given(options, "entity", "sub_queue", "state", "session", "filter", "body")
    limit = options.get("limit", PEEK_LIMIT)
    found: list[dict[str, Any]] = []
    after = None
    while len(found) < limit:
        page_limit = min(PAGE_MAX, limit - len(found))
        page = client.request("GET", "/messages", {**query, "after": after, "limit": page_limit})
        found += page["messages"]
        after = page["next"]
        if after is None:
            break
    _print(options, {"messages": found, "next": after}, map(message_line, found))
    return ExitCode.OK if found else ExitCode.NOT_SO


_CONDITION_FIELDS = (
    "entity", "is", "sub_queue", "state", "session", "filter", "at_least", "at_most", "equals",
)  # fmt: skip


def _wait(client: ControlClient, options: Options) -> int:
    conditions = [_parsed(text, "--condition") for text in options.get("condition", ())]
    if own := _given(options, *_CONDITION_FIELDS):
        conditions.insert(0, own)
    if not conditions:
        raise _Misused("what to wait for is missing: ENTITY, --is or --condition")
    timeout_s = options.get("timeout", WAIT_DEFAULT_S)
    body = {"conditions": conditions, "timeout_s": timeout_s}
    answer = client.request("POST", "/wait", body=body, wait_s=timeout_s)
    lines = [
        line
        for condition, seen in zip(conditions, answer["seen"], strict=True)
        for line in (
            f"{json.dumps(condition)}: {seen['count']}",
            *(f"  {message_line(message)}" for message in seen["messages"]),
        )
    ]
    _print(options, answer, lines)
    return ExitCode.OK


def _purge(client: ControlClient, options: Options) -> int:
    answer = client.request("POST", "/purge", body=_given(options, "entity", "sub_queue"))
    _print(options, answer, [f"{answer['count']} deleted"])
    return ExitCode.OK


def _send(client: ControlClient, options: Options) -> int:
    messages = _messages(options)
    numbers: list[int] = []
    for position in range(0, len(messages), SEND_MAX):
        part = messages[position : position + SEND_MAX]
        body = {"entity": options["entity"], "messages": part}
        try:
            numbers += client.request("POST", "/messages", body=body)["sequence_numbers"]
        except (Refused, NotReachable):
            if position:
                _complain(f"{position} messages were sent before this")
            raise
    _print(options, {"sent": len(messages), "sequence_numbers": numbers}, [f"{len(messages)} sent"])
    return ExitCode.OK


def _messages(options: Options) -> list[dict[str, Any]]:
    """Returns what is to be sent. Raises `_Misused`."""
    form = options.get("form", "text")
    texts: list[str] = options["texts"]
    if texts and ("file" in options or "form" in options):
        raise _Misused("TEXT cannot be combined with --file and --form")
    common = _common_fields(options)
    if texts:
        return [{**common, "body": text} for text in texts]
    content = _input(options)
    if form == "json":
        return [{**common, **one} for one in _json_messages(content)]
    bodies = content.splitlines() if form == "lines" else [content.removesuffix(b"\n")]
    if not bodies:
        raise _Misused("there is no message: the input is empty")
    return [{**common, **_body(one)} for one in bodies]


def _common_fields(options: Options) -> dict[str, Any]:
    fields = _given(
        options,
        "message_id",
        "session_id",
        "correlation_id",
        "subject",
        "content_type",
        "scheduled_for",
    )
    if "time_to_live" in options:
        fields["time_to_live_s"] = options["time_to_live"]
    properties = {}
    for text in options.get("property", ()):
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise _Misused(f"--property {text!r} must be NAME=TEXT")
        properties[name] = value
    if properties:
        fields["application_properties"] = properties
    return fields


def _body(content: bytes) -> dict[str, Any]:
    try:
        return {"body": content.decode()}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(content).decode(), "body_format": "base64"}


def _input(options: Options) -> bytes:
    file = options.get("file", "-")
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise _Misused(f"{file} cannot be read: {error.strerror}") from None


def _json_messages(content: bytes) -> list[dict[str, Any]]:
    try:
        whole = json.loads(content)
    except RecursionError:
        raise _Misused(f"the input is not valid JSON: {TOO_DEEP}") from None
    except ValueError:
        whole = [
            _parsed(line.decode(errors="replace"), f"line {number} of the input")
            for number, line in enumerate(content.splitlines(), start=1)
            if line.strip()
        ]
    messages = whole if isinstance(whole, list) else [whole]
    if not messages:
        raise _Misused("there is no message: the input is empty")
    if not all(isinstance(one, dict) for one in messages):
        raise _Misused('a message is a JSON object, such as {"body": "hello"}')
    return messages


def _faults(client: ControlClient, options: Options) -> int:
    return _FAULT_ACTIONS[options.get("action") or "list"](client, options)


def _list_faults(client: ControlClient, options: Options) -> int:
    answer = client.request("GET", "/faults")
    _print(options, answer, map(fault_line, answer["faults"]))
    return ExitCode.OK


def _add_fault(client: ControlClient, options: Options) -> int:
    body = _given(
        options, "name", "operation", "entity", "sub_queue", "management_operation", "filter"
    )
    body["action"] = _given(options, "kind", "condition", "description", "seconds", "when")
    body["client"] = _given(options, "container_id", "key_name") or None
    body["occurrence"] = _given(options, "nth", "every", "first", "probability", "seed") or None
    answer = client.request("POST", "/faults", body=body)
    _print(options, answer, [fault_line(answer)])
    return ExitCode.OK


def _remove_faults(client: ControlClient, options: Options) -> int:
    removed = [
        client.request("DELETE", f"/faults/{quote(name, safe='')}") for name in options["names"]
    ]
    _print(options, {"faults": removed}, map(fault_line, removed))
    return ExitCode.OK


def _clear_faults(client: ControlClient, options: Options) -> int:
    answer = client.request("DELETE", "/faults")
    _print(options, answer, [f"{answer['count']} removed"])
    return ExitCode.OK


def _history(client: ControlClient, options: Options) -> int:
    if "record" in options:
        recording = {"recording": options["record"] == "on"}
        answer = client.request("PUT", "/history", body=recording)
        _print(options, answer, ["recording" if answer["recording"] else "not recording"])
        return ExitCode.OK
    query = _given(
        options,
        "entity",
        "sub_queue",
        "message_id",
        "sequence_number",
        "session",
        "filter",
        "after",
    )
    if "follow" in options:
        for name, transition in client.stream("/history/stream", query):
            if name == "dropped":
                _complain(f"{transition['count']} transitions were dropped")
                continue
            line = json.dumps(transition) if "json" in options else transition_line(transition)
            print(line, flush=True)
        return ExitCode.OK
    limit = options.get("limit", HISTORY_LIMIT)
    found: list[dict[str, Any]] = []
    answer = {}
    while len(found) < limit:
        page_limit = min(PAGE_MAX, limit - len(found))
        answer = client.request("GET", "/history", {**query, "limit": page_limit})
        found += answer["transitions"]
        query["after"] = answer["next"]
        if answer["next"] is None:
            break
    _print(options, {**answer, "transitions": found}, map(transition_line, found))
    if not found and not answer.get("recording", True):
        _complain("nothing is recorded; `peeklock history --record on` begins")
    return ExitCode.OK if found else ExitCode.NOT_SO


def _back_up(client: ControlClient, options: Options) -> int:
    from broker.app.cli.backup_command import BackupFailed, back_up

    try:
        copy = user_path(options["copy"])
    except BadPath as error:
        raise _Misused(str(error)) from None
    try:
        copied = back_up(client, copy, replaces="force" in options)
    except BackupFailed as error:
        return _failed(options, error.exit_code, error.code, str(error))
    _print(options, copied._asdict(), [f"{copied.copy}: {copied.size_bytes} bytes"])
    return ExitCode.OK


# --- arguments and output ------------------------------------------------------------------------


def _given(options: Options, *names: str) -> dict[str, Any]:
    """Returns the options among these that were given. A positional argument that is missing is None."""
    return {name: options[name] for name in names if options.get(name) is not None}


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _Misused(f"{where} is not valid JSON: {error}") from None
    except RecursionError:
        raise _Misused(f"{where} is not valid JSON: {TOO_DEEP}") from None


def _print(options: Options, answer: Mapping[str, Any], lines: Iterable[str]) -> None:
    if "json" in options:
        _print_json(answer)
        return
    for line in lines:
        print(line)
    sys.stdout.flush()


def _print_json(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _complain(sentence: str) -> None:
    print(f"peeklock: {sentence}", file=sys.stderr)


_COMMANDS: Mapping[str, Callable[[ControlClient, Options], int]] = {
    PEEK: _peek,
    WAIT: _wait,
    PURGE: _purge,
    SEND: _send,
    FAULTS: _faults,
    HISTORY: _history,
    BACKUP: _back_up,
}
_FAULT_ACTIONS: Mapping[str, Callable[[ControlClient, Options], int]] = {
    "list": _list_faults,
    "add": _add_fault,
    "remove": _remove_faults,
    "clear": _clear_faults,
}
