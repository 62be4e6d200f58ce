"""Reading a config file the way the broker does, and telling only what matters to a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from config.files.mistakes import ConfigError
from config.loader import LoadedConfig, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.model.definitions import RuleDefinition
    from config.model.limits import Limits

NOWHERE = Path("/nonexistent/Config.json")


def any_rule(_rule: RuleDefinition, _limits: Limits) -> str | None:
    """In place of the core's check of SQL texts: all are fine."""
    return None


def read(path: Path, **flags: str) -> LoadedConfig:
    return load({"config": str(path), **flags}, {}, any_rule, NOWHERE)


def entities(path: Path) -> Mapping[str, Any]:
    """Of a file's only namespace."""
    (only,) = read(path).topology.namespaces.values()
    return only


def mistakes(path: Path, **flags: str) -> list[str]:
    """Everything that is wrong with a file, with the file's own name left out."""
    with pytest.raises(ConfigError) as caught:
        read(path, **flags)
    return [str(one).removeprefix(f"{path}:").strip() for one in caught.value.mistakes]


def warnings(path: Path, **flags: str) -> list[str]:
    """Everything doubtful in a file that is right, with the file's own name left out."""
    return [str(one).removeprefix(f"{path}:").strip() for one in read(path, **flags).warnings]
