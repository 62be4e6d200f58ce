"""Reads settings from flags, environment variables, the config file and defaults, in this order.

Each setting has a flag, a variable and a name in the file, derived from one name. `settings.py` declares the settings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from config.files.document import Node
from config.files.mistakes import did_you_mean
from config.model.storage_urls import mask_password
from config.settings.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.files.mistakes import ConfigReport

ENVIRONMENT_PREFIX = "PEEKLOCK_"

CONFIG_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG"
"""The variable with the path of the config file, used if there is no flag."""

EMULATOR_VARIABLES = {"http_port": "EMULATOR_HTTP_PORT"}
"""Variables of the official emulator that have an effect. Those of its SQL Server and its licence (SQL_SERVER,
MSSQL_SA_PASSWORD, SQL_WAIT_INTERVAL, ACCEPT_EULA) may be set and are ignored."""

_NEEDS = {"tls_key": "tls_certificate", "jwt_issuer": "jwt_keys", "jwt_audience": "jwt_keys"}
"""Settings that have no effect without another setting."""

_QUOTED = re.compile(r"'([^']*)'")

# --- the names ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with all of its names."""

    name: str
    field: str
    explanation: str
    is_switch: bool
    """Whether the flag alone, without a value, means true."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


SETTINGS = tuple(
    Setting(one.alias or field, field, one.description or "", one.annotation is bool)
    for field, one in Settings.model_fields.items()
)


# --- reading ------------------------------------------------------------------------


def read_settings(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    section: Node | None,
    report: ConfigReport,
) -> Settings:
    """Returns the settings. `flags` has values by name, `section` is that of the file. Wrong values are reported and
    replaced by defaults."""
    in_file = _members(section, report)
    given = {
        one.name: node
        for one in SETTINGS
        if (node := _given(one, flags, environment) or in_file.get(one.name)) is not None
        and _is_single_value(node, report)
    }
    for name, needed in _NEEDS.items():
        if name in given and needed not in given:
            report.warning(given[name], f"has no effect without {needed}")
    _warn_of_misspelt_variables(environment, report)
    try:
        return Settings.model_validate({name: _as_text(node) for name, node in given.items()})
    except ValidationError as error:
        for name, allowed in _allowed_values(error).items():
            node = given.pop(name)
            found = mask_password(node.kind)
            report.mistake(node, f"{found} is not allowed; expected {allowed}")
        return Settings.model_validate({name: _as_text(node) for name, node in given.items()})


def _allowed_values(error: ValidationError) -> dict[str, str]:
    """Returns what is allowed, for each setting with a wrong value."""
    allowed = {}
    for wrong in error.errors():
        context = wrong.get("ctx", {})
        # The sentence of the type, or for an enumeration its values, each in quotes.
        sentence = context.get("error") or " or ".join(_QUOTED.findall(context["expected"]))
        # The first item is the name; a second one names the alternative of a setting that may be None.
        allowed[str(wrong["loc"][0])] = str(sentence)
    return allowed


def _given(one: Setting, flags: Mapping[str, str], environment: Mapping[str, str]) -> Node | None:
    if (text := flags.get(one.name)) is not None:
        return Node(text, one.flag)
    for variable in (one.variable, EMULATOR_VARIABLES.get(one.name)):
        # Compose files pass on variables that are empty. They count as not set.
        if variable and (text := environment.get(variable)):
            return Node(text, variable)
    return None


def _members(section: Node | None, report: ConfigReport) -> dict[str, Node]:
    if section is None or section.value is None:
        return {}
    if not isinstance(section.value, dict):
        report.mistake(section, f"expected settings by name, found {section.kind}")
        return {}
    known = [one.name for one in SETTINGS]
    for name, node in section.value.items():
        if name not in known:
            report.mistake(node, f"there is no such setting{did_you_mean(name, known)}")
    return section.value


def _is_single_value(node: Node, report: ConfigReport) -> bool:
    if node.value is None:
        return False
    if isinstance(node.value, str | int | float):
        return True
    report.mistake(node, f"{node.kind} is not allowed; expected a single value")
    return False


def _as_text(node: Node) -> str:
    return str(node.value).lower() if isinstance(node.value, bool) else str(node.value)


def _warn_of_misspelt_variables(environment: Mapping[str, str], report: ConfigReport) -> None:
    # Kubernetes sets variables such as PEEKLOCK_SERVICE_HOST for a service of that name, so only names
    # that are similar to a setting are reported.
    known = [*(one.name.upper() for one in SETTINGS), "CONFIG"]
    for variable in environment:
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name != variable and name not in known and (hint := did_you_mean(name, known)):
            report.warning(Node(None, variable), f"is not a setting{hint}")
