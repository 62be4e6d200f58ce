"""Parses the arguments of the command line.

Each setting is an option of `serve`. Which function runs a command is decided in `command_line.py`.
"""

from __future__ import annotations

import argparse
from enum import Enum
from typing import TYPE_CHECKING, Any

from broker import __version__
from broker.app.cli.client_arguments import SEND, add_client_commands
from broker.app.exit_codes import ExitCode
from config.files.mistakes import did_you_mean
from config.model.durations import format_duration
from config.model.limits import MEBIBYTE
from config.settings.setting_sources import CONFIG_VARIABLE, SETTINGS
from config.settings.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 -- it has no public name

SERVE, CHECK, EXPORT, IMPORT, TLS, ENV = "serve", "check", "export", "import", "tls", "env"
"""The commands."""

CLIENT_SETTINGS = (
    "host",
    "amqp_port",
    "http_port",
    "tls_port",
    "tls_folder",
    "shared_access_key_name",
    "shared_access_key",
)
"""Settings that clients of a broker depend on: its addresses and its key. They are options of `env`, too."""


def read_arguments(arguments: Sequence[str] | None) -> dict[str, Any]:
    """Returns the options by name, and under `command` the name of the command.

    Ends the process if an argument is wrong.
    """
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if options.command == SEND and not any(one.startswith("-") for one in unknown):
        # argparse takes TEXT only before the first option that follows ENTITY.
        options.texts, unknown = [*options.texts, *unknown], []
    if unknown:
        parser.error(_unknown(unknown[0].partition("=")[0], options.command))
    return vars(options)


def _unknown(argument: str, command: str) -> str:
    serve_options = ["--config", *(one.flag for one in SETTINGS)]
    if not argument.startswith("-"):
        return f"{argument!r} is one argument too many"
    if argument in serve_options:
        return f"{argument} is an option of `peeklock serve` alone"
    hint = did_you_mean(argument, serve_options) if command == SERVE else ""
    return f"there is no option {argument}{hint or f'; `peeklock {command} --help` lists them'}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peeklock",
        description="A broker that stands in for Azure Service Bus.",
        epilog=f"Exit codes: {ExitCode.OK} done, {ExitCode.FAILED} failed, "
        f"{ExitCode.MISUSED} wrong usage or configuration, {ExitCode.NOT_SO} a wait timed out or nothing was found, "
        f"{ExitCode.NOT_REACHABLE} no broker answers.",
    )
    parser.add_argument("--version", action="version", version=f"peeklock {__version__}")
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    _add_serve(commands)
    _add_check(commands)
    _add_export(commands)
    _add_import(commands)
    _add_tls(commands)
    _add_env(commands)
    add_client_commands(commands)
    return parser


def _add_serve(commands: Commands) -> None:
    serve = commands.add_parser(
        SERVE,
        allow_abbrev=False,
        help="run the broker",
        description="Run the broker. Each option can also be set by the environment variable in square "
        "brackets. Each option except --config can also be set in the `settings` section of the config "
        "file. An option overrides a variable, and a variable overrides the file. Defaults are in "
        "parentheses.",
    )
    serve.add_argument(
        "--config",
        metavar="FILE",
        help=f"file that declares entities: YAML, or the official emulator's Config.json "
        f"[{CONFIG_VARIABLE}]",
    )
    defaults = Settings()
    for one in SETTINGS:
        explanation = f"{one.explanation} [{one.variable}]"
        if default := shown_default(one.field, getattr(defaults, one.field)):
            explanation += f" ({default})".replace("%", "%%")  # argparse formats help texts with %
        if one.is_switch:
            serve.add_argument(
                one.flag, dest=one.name, metavar="BOOL", nargs="?", const="true", help=explanation
            )
        else:
            value = one.name.rpartition("_")[2].upper()
            serve.add_argument(one.flag, dest=one.name, metavar=value, help=explanation)


def _add_check(commands: Commands) -> None:
    check = commands.add_parser(
        CHECK,
        help="report every mistake in a config file",
        description="Report every mistake in a config file, each with its line. The exit code is 2 if "
        "there is one.",
    )
    check.add_argument("config", metavar="FILE")
    check.add_argument(
        "--strict",
        action="store_const",
        const="true",
        help="fail on warnings too; `serve` starts in spite of warnings",
    )


def _add_export(commands: Commands) -> None:
    export = commands.add_parser(
        EXPORT,
        help="write the entities of a broker as a config file",
        description="Write every entity of a broker, with its rules and keys, as a file that "
        "`peeklock serve --config` reads.",
    )
    export.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="connection string of a running broker (Endpoint=sb://localhost:5300;...) or storage "
        "URL of a stopped one; default: the broker that runs on this machine",
    )
    _add_config_file_output(export)


def _add_import(commands: Commands) -> None:
    command = commands.add_parser(
        IMPORT,
        help="write a config file from a live namespace, an ARM template or the emulator's file",
        description="Write the entities of a live namespace of Azure Service Bus, of an ARM template or of the official "
        "emulator's file as a file that `peeklock serve --config` reads. What cannot be carried over is told, with its "
        "line. Messages are not carried over.",
    )
    command.add_argument(
        "source",
        metavar="SOURCE",
        help="connection string with a key that has the claim Manage (Endpoint=sb://...), or a file",
    )
    command.add_argument(
        "--with-keys",
        action="store_const",
        const="true",
        help="also write the authorization rules of the entities of a live namespace, with their keys",
    )
    _add_config_file_output(command)


def _add_config_file_output(parser: argparse.ArgumentParser) -> None:
    """Adds the options of commands that read a namespace and write a config file."""
    parser.add_argument(
        "--form",
        choices=["yaml", "emulator"],
        default="yaml",
        help="our YAML format, or the official emulator's Config.json (yaml)",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="file to write to (default: standard output)"
    )
    parser.add_argument(
        "--authority",
        metavar="FILE",
        help="connect with TLS and trust the certificates in this file",
    )


def _add_tls(commands: Commands) -> None:
    tls = commands.add_parser(
        TLS,
        help="print how to make clients trust the broker's certificate",
        description="Create the certificate authority if there is none yet. Print where its certificate is "
        "and how to make each client trust it.",
    )
    tls.add_argument("--tls-folder", metavar="FOLDER", help="folder of the certificate authority")
    tls.add_argument(
        "--path", action="store_const", const="true", help="print only the path of the certificate"
    )


def _add_env(commands: Commands) -> None:
    env = commands.add_parser(
        ENV,
        allow_abbrev=False,
        help="print environment variables for clients of the broker on this machine",
        description="Print environment variables for clients: connection strings, the certificate "
        "authority, and the managed identity that DefaultAzureCredential uses. In a shell: "
        'eval "$(peeklock env)". Give it the same options, variables and file as the broker. The output '
        "contains keys.",
    )
    env.add_argument(
        "--form",
        choices=["sh", "powershell", "dotenv", "json"],
        default="sh",
        help="syntax of the output (sh)",
    )
    env.add_argument("--config", metavar="FILE", help="the config file of the broker")
    for one in SETTINGS:
        if one.name in CLIENT_SETTINGS:
            value = one.name.rpartition("_")[2].upper()
            # The broker may choose a free port, but only it knows which one.
            explanation = one.explanation.replace("0 picks a free one", "not 0")
            env.add_argument(one.flag, dest=one.name, metavar=value, help=explanation)


def shown_default(field: str, default: object) -> str:
    """Returns a default as an operator would write it; empty for a setting that is off or not set."""
    if default is None or default is False:
        return ""
    if isinstance(default, Enum):
        return str(default.value)
    if isinstance(default, int) and field.endswith("_ms"):
        return format_duration(default)
    if isinstance(default, int) and field.endswith("_bytes"):
        return f"{default // MEBIBYTE}MiB"
    if isinstance(default, tuple):
        return ",".join(default)
    return str(default)
