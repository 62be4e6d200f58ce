"""The command line: `peeklock serve`, `check`, `export`, `tls` and `env`.

`peeklock/__main__.py` calls it. Parses and reports; what is served is the server's business. Exit
codes: 0 done, 1 failed, 2 wrong usage or configuration. Imports stay late, so that only what is asked
for is paid for.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Any

from broker import __version__
from config.files.mistakes import ConfigError, did_you_mean
from config.loader import load
from config.model.definitions import (
    QueueDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.durations import format_duration
from config.model.limits import MEBIBYTE
from config.settings.settings import Settings
from config.settings.sources import CONFIG_VARIABLE, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from config.files.topology import Topology
    from config.loader import Loaded
    from config.model.definitions import RuleDefinition
    from config.model.limits import Limits

gc.disable()  # nothing that is made while starting is garbage; the server switches it on again

EXIT_OK, EXIT_MISUSED = 0, 2

OF_ADDRESSES = (
    "host",
    "amqp_port",
    "http_port",
    "tls_port",
    "tls_folder",
    "shared_access_key_name",
    "shared_access_key",
)
"""Settings that say where a broker is and who may use it: what `env` needs to know."""

_KINDS = {
    QueueDefinition: "queue",
    TopicDefinition: "topic",
    SubscriptionDefinition: "subscription",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    options = read_arguments(arguments)
    run: Callable[[Loaded, Mapping[str, str]], int] = options.pop("run")
    given = {name: value for name, value in options.items() if value is not None}
    names = {"config", *(one.name for one in SETTINGS)}
    try:
        loaded = load(
            {name: value for name, value in given.items() if name in names},
            os.environ,
            _wrong_rule,
        )
    except ConfigError as error:
        for warning in error.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        found = _count(len(error.mistakes), "mistake")
        print(f"peeklock: {found}, nothing was started\n{error}", file=sys.stderr)
        return EXIT_MISUSED
    return run(loaded, given)


def _serve(loaded: Loaded, _options: Mapping[str, str]) -> int:
    from broker.app.observe import logs

    logs.open_standard_streams()
    logs.configure(loaded.settings)
    for warning in loaded.warnings:
        logs.warn_of_config(warning)

    from broker.app.server import run

    return run(loaded.settings, loaded.topology)


def _check(loaded: Loaded, options: Mapping[str, str]) -> int:
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if loaded.warnings and "strict" in options:
        found = _count(len(loaded.warnings), "warning")
        print(f"peeklock: {found}, and --strict takes none", file=sys.stderr)
        return EXIT_MISUSED
    print(f"{options['config']}: {_contents(loaded.topology)}")
    return EXIT_OK


def _export(loaded: Loaded, options: Mapping[str, str]) -> int:
    from broker.app.cli import export_command

    return export_command.run(loaded.settings, options)


def _tls(loaded: Loaded, options: Mapping[str, str]) -> int:
    from broker.app.cli import tls_command

    return tls_command.run(loaded.settings, only_path="path" in options)


def _env(loaded: Loaded, options: Mapping[str, str]) -> int:
    from broker.app.cli import env_command

    return env_command.run(loaded.settings, options["form"])


def _contents(topology: Topology) -> str:
    kinds = Counter(
        _KINDS[type(definition)]
        for entities in topology.namespaces.values()
        for definition in entities.values()
    )
    kinds["namespace"] = len(topology.namespaces)
    return ", ".join(_count(kinds[kind], kind) for kind in ("namespace", *_KINDS.values()))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _wrong_rule(rule: RuleDefinition, limits: Limits) -> str | None:
    if rule.action is None and not isinstance(rule.filter, SqlFilter):
        return None
    from broker.core.contract.errors import BrokerError
    from broker.core.routing.compiled_rule import compile_rule

    try:
        compile_rule(rule, limits)
    except BrokerError as error:
        return str(error)
    return None


def read_arguments(arguments: Sequence[str] | None) -> dict[str, Any]:
    """The options by name, and what to run; ends the process where they are wrong."""
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(_unknown(unknown[0].partition("=")[0]))
    return vars(options)


def _unknown(argument: str) -> str:
    of_serve = ["--config", *(one.flag for one in SETTINGS)]
    if not argument.startswith("-"):
        return f"{argument!r} is one argument too many"
    if argument in of_serve:
        return f"{argument} is an option of `peeklock serve` alone"
    hint = did_you_mean(argument, of_serve)
    return f"there is no option {argument}{hint or '; --help lists them'}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peeklock",
        description="A broker that stands in for Azure Service Bus.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.",
    )
    parser.add_argument("--version", action="version", version=f"peeklock {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
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
            explanation += f" ({default})".replace("%", "%%")  # argparse would fill it in
        if one.is_switch:
            serve.add_argument(
                one.flag, dest=one.name, metavar="BOOL", nargs="?", const="true", help=explanation
            )
        else:
            value = one.name.rpartition("_")[2].upper()
            serve.add_argument(one.flag, dest=one.name, metavar=value, help=explanation)

    serve.set_defaults(run=_serve)

    check = commands.add_parser(
        "check",
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
    check.set_defaults(run=_check)

    export = commands.add_parser(
        "export",
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
    export.add_argument(
        "--form",
        choices=["yaml", "emulator"],
        default="yaml",
        help="our YAML format, or the official emulator's Config.json (yaml)",
    )
    export.add_argument(
        "--output", metavar="FILE", help="file to write to (default: standard output)"
    )
    export.add_argument(
        "--authority",
        metavar="FILE",
        help="connect with TLS and trust the certificates in this file",
    )
    export.set_defaults(run=_export)

    tls = commands.add_parser(
        "tls",
        help="print how to make clients trust the broker's certificate",
        description="Create the certificate authority if there is none yet. Print where its certificate is "
        "and how to make each client trust it.",
    )
    tls.add_argument("--tls-folder", metavar="FOLDER", help="folder of the certificate authority")
    tls.add_argument(
        "--path", action="store_const", const="true", help="print only the path of the certificate"
    )
    tls.set_defaults(run=_tls)

    env = commands.add_parser(
        "env",
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
        if one.name in OF_ADDRESSES:
            value = one.name.rpartition("_")[2].upper()
            env.add_argument(one.flag, dest=one.name, metavar=value, help=one.explanation)
    env.set_defaults(run=_env)
    return parser


def shown_default(field: str, default: object) -> str:
    """A default as an operator would write it; nothing for what is off or not set."""
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


if __name__ == "__main__":
    sys.exit(main())
