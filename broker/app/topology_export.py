"""Exports the entities of a running broker or of a store as a config file.

`config/files` writes the forms. A broker that starts with the file and an empty store has the same entities,
rules and keys.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.core.entities.stored_definitions import namespace_from_json, stored_definitions
from config.files.emulator_limits import beyond_emulator
from config.files.emulator_writer import emulator_form
from config.files.topology import Topology
from config.files.yaml_writer import yaml_form
from config.model.definitions import SubscriptionDefinition
from config.model.limits import RELAXED
from config.model.names import DEFAULT_NAMESPACE, entity_name_error
from config.model.namespaces import SNAPSHOT_MARK, NamespaceDefinition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from broker.core.namespace import Namespace
    from config.model.definitions import AuthorizationRule, EntityDefinition
    from storage.contract import Store

YAML, EMULATOR = "yaml", "emulator"
FORMS = (YAML, EMULATOR)


class ExportedFile(NamedTuple):
    """A config file as plain data."""

    document: dict[str, Any]
    losses: list[str]
    """One sentence for each thing that the form cannot express, or that a broker or the emulator would refuse."""


def in_form(topology: Topology, form: str, default_lock_duration_ms: int) -> ExportedFile:
    """Returns a topology as the content of a file, for brokers with this default lock duration."""
    if form == EMULATOR:
        document, losses = emulator_form(topology)
        losses += beyond_emulator(topology)
    else:
        document, losses = yaml_form(topology, default_lock_duration_ms), []
    return ExportedFile(document, [*losses, *_dangling(topology), *_misnamed(topology)])


def _dangling(topology: Topology) -> Iterator[str]:
    """Yields entities that forward to a deleted entity. A broker accepts that; a config file must not contain it."""
    for entities in topology.namespaces.values():
        known = {path.casefold() for path in entities}
        for path, definition in entities.items():
            for name in ("forward_to", "forward_dead_letters_to"):
                target = getattr(definition, name, None)
                if target is not None and target.casefold() not in known:
                    yield f"{path}: forwards to {target!r}, which does not exist"


def _misnamed(topology: Topology) -> Iterator[str]:
    """Yields queues that were created on first use with a name that a file must not contain."""
    for entities in topology.namespaces.values():
        for path, definition in entities.items():
            if isinstance(definition, SubscriptionDefinition):
                continue
            if wrong := entity_name_error(path, RELAXED):
                yield f"{path}: {wrong}"


def as_text(document: dict[str, Any], form: str) -> str:
    """Returns the text of the file."""
    if form == EMULATOR:
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


# --- sources --------------------------------------------------------------------------------


def of_namespaces(
    namespaces: Mapping[str, Namespace],
    authorization_rules: Mapping[str, Sequence[AuthorizationRule]],
) -> Topology:
    """Returns the entities of a running broker, and the rules of whole namespaces."""
    entities = {
        name: _in_order((view.path, view.definition) for view in namespace.views())
        for name, namespace in namespaces.items()
    }
    return Topology(entities, authorization_rules)


def of_store(store: Store) -> Topology:
    """Returns the entities in a store. Raises `StorageError` if it cannot be opened."""
    store.open()
    try:
        snapshot = store.load()
    finally:
        store.close()
    by_namespace: dict[str, list[tuple[str, EntityDefinition]]] = {}
    rules: dict[str, Sequence[AuthorizationRule]] = {}
    for row in snapshot.namespaces:
        namespace = namespace_from_json(row.definition)
        if isinstance(namespace, NamespaceDefinition):
            by_namespace[row.name] = []
            rules[row.name] = namespace.authorization_rules
    for one, definition in stored_definitions(snapshot.entities, snapshot.rules):
        if SNAPSHOT_MARK not in one.namespace:
            by_namespace.setdefault(one.namespace, []).append((one.path, definition))
    if not by_namespace:
        return Topology({DEFAULT_NAMESPACE: {}})
    names = sorted(by_namespace, key=lambda name: (name != DEFAULT_NAMESPACE, name))
    return Topology({name: _in_order(by_namespace[name]) for name in names}, rules)


def _in_order(
    entities: Iterable[tuple[str, EntityDefinition]],
) -> dict[str, EntityDefinition]:
    """Returns the entities sorted by name, topics before subscriptions."""
    return dict(
        sorted(entities, key=lambda one: (isinstance(one[1], SubscriptionDefinition), one[0]))
    )
