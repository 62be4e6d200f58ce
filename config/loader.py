"""Loads the settings and the topology with which the broker starts.

Finds the config file, detects its form and reads it. Returns frozen data, or raises one `ConfigError` with every
mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from config.files import emulator_reader, yaml_reader
from config.files.document import Node, read_document
from config.files.mistakes import ConfigError, ConfigReport, Mistake
from config.files.node_values import SETTINGS
from config.settings.setting_sources import CONFIG_VARIABLE, read_settings
from config.settings.setting_values import read_path
from config.settings.settings import default_storage_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.files.node_values import RuleCheck
    from config.files.topology import Topology
    from config.settings.settings import Settings

EMULATOR_FILE = Path("/ServiceBus_Emulator/ConfigFiles/Config.json")
"""The config file in the container of the official emulator. It is read if it exists and no other file is
named."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    settings: Settings
    topology: Topology
    warnings: tuple[Mistake, ...] = ()
    """Reported, but no reason not to start."""


def load(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    wrong_rule: RuleCheck,
    emulator_file: Path = EMULATOR_FILE,
) -> LoadedConfig:
    """Loads everything. `flags` has the values by the name of the setting, and the config file as `config`."""
    report = ConfigReport()
    document = _document(flags, environment, emulator_file, report)
    section = None
    if document is not None and isinstance(document.value, dict):
        # The names of the emulator's form are those of a form without case. The other form reports another spelling.
        section = next(
            (node for name, node in document.value.items() if name.casefold() == SETTINGS), None
        )
    defaults = {} if document is None else {"storage": default_storage_of(Path(document.source))}
    settings = read_settings(flags, environment, section, report, defaults)
    if document is None:
        topology = emulator_reader.default_topology(settings.limits)
    elif _is_emulator_form(document):
        topology = emulator_reader.read_emulator_form(document, settings.limits, report, wrong_rule)
    else:
        topology = yaml_reader.read_yaml_form(document, settings.limits, report, wrong_rule)
    report.raise_if_wrong()
    return LoadedConfig(settings, topology, tuple(report.warnings))


def _document(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    emulator_file: Path,
    report: ConfigReport,
) -> Node | None:
    named = flags.get("config") or environment.get(CONFIG_VARIABLE)
    if not named and not emulator_file.exists():
        return None
    try:
        document = read_document(_path(named) if named else emulator_file, report)
    except ConfigError as error:  # the flags may have mistakes as well: report them together
        report.mistakes += error.mistakes
        return None
    if document.value is None:
        report.mistake(document, "the file is empty; it must declare queues or topics, or settings")
        return None
    names = document.value.keys() if isinstance(document.value, dict) else set()
    if "resources" in names and not names & {emulator_reader.ROOT, *yaml_reader.TOP_LEVEL}:
        text = f"is an ARM template; `peeklock import {document.source} --output entities.yaml` writes a config file"
        report.mistake(document, text)
        return None
    return document


def _path(named: str) -> Path:
    try:
        return read_path(named)
    except ValueError as error:
        raise ConfigError([Mistake(named, None, "", f"is not {error}")]) from error


def _is_emulator_form(document: Node) -> bool:
    if not isinstance(document.value, dict):
        return False
    if any(name.casefold() == emulator_reader.ROOT.casefold() for name in document.value):
        return True
    # A misspelt root is reported as such, not as an unknown name in our own form.
    return document.source.endswith(".json") and not document.value.keys() & yaml_reader.TOP_LEVEL
