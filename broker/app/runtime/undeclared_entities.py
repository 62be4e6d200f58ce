"""Entities that the store holds and the configuration does not declare.

An earlier version of the file declared them, or the administration API created them. At start the
broker names them in one log line, and drops them if the setting says so. Entities that clients
create later are not concerned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from config.settings.settings import UndeclaredEntities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.core.contract.turn import Turn
    from broker.core.namespace import Namespace
    from config.files.topology import Topology

log = structlog.get_logger("peeklock.core")

NAMES_SHOWN_MAX = 5


def handle_undeclared_entities(
    namespaces: Mapping[str, Namespace],
    topology: Topology,
    choice: UndeclaredEntities,
    now_ms: int,
    turn: Turn,
) -> None:
    """Logs undeclared entities. Deletes them and their messages if the setting says so."""
    total = 0
    found: list[tuple[str, str]] = []
    for name, namespace in namespaces.items():
        declared = {path.lower() for path in topology.namespaces.get(name, ())}
        paths = [view.path for view in namespace.views()]
        total += len(paths)
        found += [(name, path) for path in paths if path.lower() not in declared]
    if not found:
        return
    drops = choice is UndeclaredEntities.DROP
    if drops:
        for name, path in found:
            namespaces[name].delete_if_exists(path, now_ms, turn)
    log.info(
        "entities.undeclared",
        text=f"{total} entities in the store, {len(found)} of them not declared: "
        + ("dropped" if drops else "kept; undeclared_entities=drop drops them"),
        first=[path for _, path in found[:NAMES_SHOWN_MAX]],
    )
