"""`peeklock import`: writes a config file from a live namespace, an ARM template, or the official emulator's file.

What cannot be carried over is written to standard error, one line each, with its line in the source if it has one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from broker.app import topology_export
from broker.app.cli.namespace_fetch import ImportFailed, fetch_topology, live_namespace
from broker.app.cli.user_paths import user_path
from broker.app.exit_codes import ExitCode
from broker.core.routing.compiled_rule import rule_error
from config.files import emulator_reader, yaml_reader
from config.files.arm_reader import is_arm_template, read_arm_template
from config.files.document import read_document
from config.files.mistakes import ConfigError, ConfigReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.files.topology import Topology
    from config.settings.settings import Settings


def run(settings: Settings, options: Mapping[str, str]) -> int:
    """Writes the file. Returns the exit code."""
    form = options["form"]
    try:
        topology, losses = _read(settings, options)
        exported = topology_export.in_form(topology, form, settings.default_lock_duration_ms)
        text = topology_export.as_text(exported.document, form)
        if "output" in options:
            user_path(options["output"]).write_text(text, "utf-8")
        else:
            sys.stdout.write(text)
    except ConfigError as error:
        sys.stderr.write(f"peeklock: nothing was imported\n{error}\n")
        return ExitCode.MISUSED
    except (ImportFailed, OSError) as error:
        sys.stderr.write(f"peeklock: {error}\n")
        return ExitCode.FAILED
    for loss in dict.fromkeys([*losses, *exported.losses]):
        sys.stderr.write(f"warning: {loss}\n")
    return ExitCode.OK


def _read(settings: Settings, options: Mapping[str, str]) -> tuple[Topology, list[str]]:
    source = options["source"]
    if source.strip().lower().startswith("endpoint="):
        authority = options.get("authority")
        path = None if authority is None else user_path(authority)
        if path is not None and not path.is_file():
            raise ImportFailed(f"--authority: there is no file {path}")
        return fetch_topology(live_namespace(source, path), with_keys="with_keys" in options)
    report = ConfigReport()
    document = read_document(user_path(source), report)
    report.raise_if_wrong()
    limits = settings.limits
    members = document.value if isinstance(document.value, dict) else {}
    if is_arm_template(document):
        topology = read_arm_template(document, limits, report, rule_error)
        # What is wrong in a template is left out, and told like everything else that is.
        found = sorted([*report.mistakes, *report.warnings], key=lambda one: one.line or 0)
        return topology, [str(one) for one in found]
    if any(name.casefold() == emulator_reader.ROOT.casefold() for name in members):
        topology = emulator_reader.read_emulator_form(document, limits, report, rule_error)
    elif members.keys() & set(yaml_reader.TOP_LEVEL):
        topology = yaml_reader.read_yaml_form(document, limits, report, rule_error)
    else:
        raise ImportFailed(
            f"{source} is none of these: an ARM template (with resources), the official emulator's file (with "
            "UserConfig), a config file of Peeklock"
        )
    report.raise_if_wrong()
    return topology, [str(one) for one in report.warnings]
