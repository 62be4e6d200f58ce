"""The arguments of the commands that ask a running broker: `peek`, `wait`, `purge`, `send`, `faults`, `history` and
`backup`.

The broker checks the values, because it has the sentences for what is wrong with them.
"""

from __future__ import annotations

import argparse
from math import isfinite
from typing import TYPE_CHECKING

from broker.app.exit_codes import ExitCode

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 -- it has no public name

PEEK, WAIT, PURGE, SEND, FAULTS, HISTORY = "peek", "wait", "purge", "send", "faults", "history"
BACKUP = "backup"
URL_VARIABLE = "PEEKLOCK_URL"
CONNECTION_STRING_VARIABLE = "PEEKLOCK_CONNECTION_STRING"
DEFAULT_URL = "http://localhost:5300"
"""They are here and not in `control_client.py`, so that a broker need not load an HTTP client."""
CLIENT_COMMANDS = (PEEK, WAIT, PURGE, SEND, FAULTS, HISTORY, BACKUP)

EXIT_CODES = {
    ExitCode.OK: "done; the messages were found, or the conditions hold",
    ExitCode.FAILED: "the broker refused, for example because the entity does not exist, or `backup` could not copy",
    ExitCode.MISUSED: "an argument is wrong, or `backup` would overwrite a file",
    ExitCode.NOT_SO: "`wait` timed out, or `peek` or `history` found nothing",
    ExitCode.NOT_REACHABLE: "no broker answers",
    ExitCode.INTERRUPTED: "interrupted with Ctrl+C; `history --follow` then ends with 0",
}
"""What the exit codes of these commands mean. docs/testing.md has the same table."""

PEEK_LIMIT = 100
HISTORY_LIMIT = 1_000


def finite_number(text: str) -> float:
    """Returns the value of an option. Infinity and NaN are numbers for Python, but not for the broker."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def add_client_commands(commands: Commands) -> None:
    """Adds the commands to the command line."""
    _add_peek(commands)
    _add_wait(commands)
    _add_purge(commands)
    _add_send(commands)
    _add_faults(commands)
    _add_history(commands)
    _add_backup(commands)


def _add(
    commands: Commands,
    name: str,
    summary: str,
    description: str,
    *,
    has_namespace: bool = True,
) -> argparse.ArgumentParser:
    """Adds a command with the options that all of them have. An option that is not given is not among the results,
    so that the options of `faults` and of its actions do not overwrite each other."""
    codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    parser = commands.add_parser(
        name,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        help=summary,
        description=description,
        epilog=f"Exit codes: {codes}.",
    )
    broker = parser.add_argument_group("broker")
    broker.add_argument(
        "--url", metavar="URL", help=f"address of the broker [{URL_VARIABLE}] ({DEFAULT_URL})"
    )
    key = "the key of the whole broker"
    if has_namespace:
        broker.add_argument("--namespace", metavar="NAME", help="namespace (the default namespace)")
        key = "a key that has the claim Manage"
    broker.add_argument(
        "--connection-string",
        metavar="TEXT",
        help=f"for strict authorization: {key}; also the address, without --url "
        f"[{CONNECTION_STRING_VARIABLE}]",
    )
    broker.add_argument(
        "--authority", metavar="FILE", help="for https: trust the certificates in this file"
    )
    broker.add_argument(
        "--json", action="store_true", help="print the answers of the broker, as JSON"
    )
    return parser


def _add_entity(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    parser.add_argument(
        "entity",
        metavar="ENTITY",
        nargs=None if is_required else "?",
        help="a queue or topic, topic/subscriptions/name, or a sub-queue such as 'orders/$deadletterqueue'",
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sub-queue", metavar="NAME", help="main, dead_letter or transfer_dead_letter (main)"
    )
    parser.add_argument(
        "--state", metavar="STATE", help="active, locked, deferred, scheduled or dead_lettered"
    )
    parser.add_argument("--session", metavar="ID", help="only messages of this session")
    parser.add_argument(
        "--filter", metavar="SQL", help="only messages for which this SQL expression is true"
    )


def _add_peek(commands: Commands) -> None:
    parser = _add(
        commands,
        PEEK,
        "show messages of a running broker without locking them",
        "Show messages without locking them, a line for each.",
    )
    _add_entity(parser)
    _add_selection(parser)
    parser.add_argument(
        "--limit", metavar="NUMBER", type=int, help=f"show at most so many ({PEEK_LIMIT})"
    )
    parser.add_argument("--body", metavar="FORMAT", help="auto, text, json, base64 or none (auto)")


def _add_wait(commands: Commands) -> None:
    parser = _add(
        commands,
        WAIT,
        "wait until conditions on messages hold",
        "Wait until a number of messages is there, by default one or more, or until an entity is settled, unlocked or "
        "empty. All conditions must hold at the same time.",
    )
    _add_entity(parser, is_required=False)
    _add_selection(parser)
    parser.add_argument("--at-least", metavar="NUMBER", type=int, help="so many messages or more")
    parser.add_argument("--at-most", metavar="NUMBER", type=int, help="so many messages or fewer")
    parser.add_argument("--equals", metavar="NUMBER", type=int, help="exactly so many messages")
    parser.add_argument(
        "--is",
        metavar="WHAT",
        help="settled, unlocked or empty: the entity, or without ENTITY the namespace",
    )
    parser.add_argument(
        "--condition",
        metavar="JSON",
        action="append",
        help='a condition of the control API, such as \'{"entity": "orders", "equals": 0}\'; can be repeated',
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=finite_number, help="in real time (10)"
    )


def _add_purge(commands: Commands) -> None:
    parser = _add(
        commands,
        PURGE,
        "delete all messages of an entity",
        "Delete all messages of an entity and its sub-queues. A topic includes its subscriptions.",
    )
    _add_entity(parser)
    parser.add_argument("--sub-queue", metavar="NAME", help="purge only this queue of the entity")


def _add_send(commands: Commands) -> None:
    parser = _add(
        commands,
        SEND,
        "send messages",
        "Send each TEXT as a message. Without TEXT, messages are read from a file or from standard input.",
    )
    _add_entity(parser)
    parser.add_argument(
        "texts", metavar="TEXT", nargs="*", default=[], help="the body of a message"
    )
    parser.add_argument("--file", metavar="FILE", help="read this file (default: standard input)")
    parser.add_argument(
        "--form",
        choices=["text", "lines", "json"],
        help="what is read: text, the body of one message; lines, a body in each line; json, messages as the control "
        "API takes them, in an array or one in each line (text)",
    )
    for option, explanation in (
        ("--message-id", "message id"),
        ("--session-id", "session id"),
        ("--correlation-id", "correlation id"),
        ("--subject", "subject"),
        ("--content-type", "content type, such as application/json"),
        (
            "--scheduled-for",
            "time in UTC at which the message is enqueued, such as 2026-02-03T04:05:06Z",
        ),
    ):
        parser.add_argument(option, metavar="TEXT", help=explanation)
    parser.add_argument(
        "--time-to-live", metavar="SECONDS", type=finite_number, help="time to live"
    )
    parser.add_argument(
        "--property",
        metavar="NAME=TEXT",
        action="append",
        help="an application property; can be repeated",
    )


def _add_faults(commands: Commands) -> None:
    parser = _add(
        commands,
        FAULTS,
        "make operations of clients fail, and see how often they did",
        "List the fault rules of a namespace, make one, or remove them. Without an action: list.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    _add(actions, "list", "list the rules", "List the rules and how often each has acted.")
    add = _add(
        actions,
        "add",
        "make a rule",
        "Make a rule: operations of clients that it fits fail as it says. docs/control-api.md lists the operations and "
        "what can be done to each.",
    )
    add.add_argument("operation", metavar="OPERATION", help="such as send, deliver or settle")
    add.add_argument("kind", metavar="KIND", help="such as server_busy, delay or drop_connection")
    for option, metavar, explanation in (
        ("--name", "NAME", "name of the rule (a unique one)"),
        ("--entity", "ENTITY", "only operations on this entity"),
        ("--sub-queue", "NAME", "only operations on this queue of the entity"),
        ("--management-operation", "NAME", "only this operation of $management"),
        ("--container-id", "TEXT", "only clients with this container id; * stands for any text"),
        ("--key-name", "TEXT", "only clients with this key; * stands for any text"),
        ("--filter", "SQL", "only messages for which this SQL expression is true"),
        ("--condition", "TEXT", "condition of the error, for refuse and detach"),
        ("--description", "TEXT", "sentence of the error"),
        ("--when", "WHEN", "before or after the effect is stored (before)"),
    ):
        add.add_argument(option, metavar=metavar, help=explanation)
    for option, explanation in (
        ("--nth", "act only on the nth fitting operation"),
        ("--every", "act on every nth"),
        ("--first", "act on the first n"),
        ("--seed", "for --probability: the same seed chooses the same operations"),
    ):
        add.add_argument(option, metavar="NUMBER", type=int, help=explanation)
    add.add_argument(
        "--probability",
        metavar="NUMBER",
        type=finite_number,
        help="act on each with this probability",
    )
    add.add_argument("--seconds", metavar="SECONDS", type=finite_number, help="for delay")
    remove = _add(actions, "remove", "remove rules", "Remove rules by their names.")
    remove.add_argument("names", metavar="NAME", nargs="+")
    _add(actions, "clear", "remove all rules", "Remove all rules of the namespace.")


def _add_history(commands: Commands) -> None:
    parser = _add(
        commands,
        HISTORY,
        "show what happened to messages",
        "Show what happened to messages, a line for each transition, the oldest first.",
    )
    _add_entity(parser, is_required=False)
    parser.add_argument(
        "--sub-queue", metavar="NAME", help="only of this queue of the entity (all of them)"
    )
    parser.add_argument("--message-id", metavar="ID", help="only of messages with this id")
    parser.add_argument(
        "--sequence-number", metavar="NUMBER", type=int, help="only of this message"
    )
    parser.add_argument("--session", metavar="ID", help="only of this session")
    parser.add_argument(
        "--filter", metavar="SQL", help="only transitions for which this SQL expression is true"
    )
    parser.add_argument(
        "--after", metavar="NUMBER", type=int, help="only later than this transition"
    )
    parser.add_argument(
        "--limit", metavar="NUMBER", type=int, help=f"show at most so many ({HISTORY_LIMIT})"
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on with what happens next, until interrupted"
    )
    parser.add_argument(
        "--record",
        choices=["on", "off"],
        help="start or stop recording, and show nothing",
    )


def _add_backup(commands: Commands) -> None:
    parser = _add(
        commands,
        BACKUP,
        "copy the SQLite file of a running broker",
        "Copy the SQLite file of a running broker. The copy has everything that was accepted before the command began, and "
        "a broker can be started on it. Run the command on the machine of the broker: in a container, with `docker exec`.",
        has_namespace=False,
    )
    parser.add_argument("copy", metavar="COPY", help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace the file if there is one")
