"""Reads settings from flags, environment variables, the config file and defaults, in this order.

Each setting has a flag, a variable and a name in the file, derived from one name. `settings.py` declares the settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from config.files.document import Node
from config.files.mistakes import did_you_mean
from config.model.storage_urls import mask_password
from config.settings.setting_values import SWITCH, SettingType, ValueNotAllowed
from config.settings.settings import DECLARATIONS, Settings

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

_SECRETS = {"shared_access_key"}
"""Settings whose values are not repeated in a mistake, which ends up in a log."""

# --- the names ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with all of its names."""

    name: str
    field: str
    explanation: str
    type: SettingType[Any]

    @property
    def is_switch(self) -> bool:
        """Whether the flag alone, without a value, means true."""
        return self.type is SWITCH

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


SETTINGS = tuple(Setting(one.name, one.field, one.description, one.type) for one in DECLARATIONS)


# --- reading ------------------------------------------------------------------------


def read_settings(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    section: Node | None,
    report: ConfigReport,
    defaults: Mapping[str, Any],
) -> Settings:
    """Returns the settings. `flags` has values by name, `section` is that of the file. Wrong values are reported and
    replaced by defaults; `defaults` has those that differ, by field."""
    in_file = _members(section, report)
    values = dict(defaults)
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
    for one in SETTINGS:
        if (node := given.get(one.name)) is None:
            continue
        try:
            values[one.field] = one.type.parse(_as_text(node))
        except ValueNotAllowed as allowed:
            value = "this value" if one.name in _SECRETS else mask_password(node.kind)
            report.mistake(node, f"{value} is not allowed; expected {allowed}")
    return Settings(**values)


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
