"""Runs the commands of `peeklock`.

Loads the configuration, reports its mistakes, and calls the command. Commands are imported when they
run: a process pays only for the command that it runs.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

from broker.app.cli.arguments import CHECK, ENV, EXPORT, IMPORT, SERVE, TLS, read_arguments
from broker.app.cli.client_arguments import CLIENT_COMMANDS
from broker.app.exit_codes import ExitCode
from config.files.mistakes import ConfigError
from config.loader import load
from config.model.definitions import (
    ENTITY_KINDS,
    EntityKind,
    SqlFilter,
)
from config.settings.setting_sources import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from config.files.topology import Topology
    from config.loader import LoadedConfig
    from config.model.definitions import RuleDefinition
    from config.model.limits import Limits


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    options = read_arguments(arguments)
    command = options.pop("command")
    if command in CLIENT_COMMANDS:
        from broker.app.cli import client_commands

        return client_commands.run(command, options)
    run = _COMMANDS[command]
    given = {name: value for name, value in options.items() if value is not None}
    names = {"config", *(one.name for one in SETTINGS)}
    try:
        loaded = load(
            {name: value for name, value in given.items() if name in names},
            os.environ,
            _rule_error,
        )
    except ConfigError as error:
        for warning in error.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        found = _count(len(error.mistakes), "mistake")
        print(f"peeklock: {found}, nothing was started\n{error}", file=sys.stderr)
        return ExitCode.MISUSED
    return run(loaded, given)


def _serve(loaded: LoadedConfig, _options: Mapping[str, str]) -> int:
    from broker.app.observe import logs

    logs.open_standard_streams()
    logs.configure(loaded.settings)
    for warning in loaded.warnings:
        logs.log_config_warning(warning)

    from broker.app.server import run

    return run(loaded.settings, loaded.topology)


def _check(loaded: LoadedConfig, options: Mapping[str, str]) -> int:
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if loaded.warnings and "strict" in options:
        found = _count(len(loaded.warnings), "warning")
        print(f"peeklock: {found}; --strict allows no warnings", file=sys.stderr)
        return ExitCode.MISUSED
    print(f"{options['config']}: {_summary(loaded.topology)}")
    return ExitCode.OK


def _export(loaded: LoadedConfig, options: Mapping[str, str]) -> int:
    from broker.app.cli import export_command

    return export_command.run(loaded.settings, options)


def _import(loaded: LoadedConfig, options: Mapping[str, str]) -> int:
    from broker.app.cli import import_command

    return import_command.run(loaded.settings, options)


def _tls(loaded: LoadedConfig, options: Mapping[str, str]) -> int:
    from broker.app.cli import tls_command

    return tls_command.run(loaded.settings, only_path="path" in options)


def _env(loaded: LoadedConfig, options: Mapping[str, str]) -> int:
    from broker.app.cli import env_command

    return env_command.run(loaded.settings, options["form"])


def _summary(topology: Topology) -> str:
    kinds = Counter(
        str(ENTITY_KINDS[type(definition)])
        for entities in topology.namespaces.values()
        for definition in entities.values()
    )
    kinds["namespace"] = len(topology.namespaces)
    return ", ".join(_count(kinds[kind], kind) for kind in ("namespace", *EntityKind))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rule_error(rule: RuleDefinition, limits: Limits) -> str | None:
    if rule.action is None and not isinstance(rule.filter, SqlFilter):
        return None
    from broker.core.routing.compiled_rule import rule_error  # most files have no SQL

    return rule_error(rule, limits)


_COMMANDS: Mapping[str, Callable[[LoadedConfig, Mapping[str, str]], int]] = {
    SERVE: _serve,
    CHECK: _check,
    EXPORT: _export,
    IMPORT: _import,
    TLS: _tls,
    ENV: _env,
}
