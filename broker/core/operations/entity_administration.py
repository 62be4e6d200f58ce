"""Creates, changes, deletes and lists entities.

Each request returns the value of its reply, or raises the refusal before anything has changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract.effects import AttachRefused, Detached, EntityView
from broker.core.contract.errors import (
    ArgumentError,
    BrokerError,
    EntityAlreadyExists,
    EntityNotFound,
    NotAllowed,
    QuotaExceeded,
)
from broker.core.contract.records import EntityDeleted
from broker.core.entities.entity import Entity
from broker.core.entities.stored_definitions import definition_from_json
from broker.core.entities.subscription import Subscription
from broker.core.entities.topic import Topic
from broker.core.operations.forwarding import Forwarding
from config.model.definitions import (
    ENTITY_KINDS,
    UNLIMITED_MS,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.names import first_use_address_error, subscription_path
from config.model.tier_features import missing_feature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.core.contract import commands as ask
    from broker.core.contract.records import EntityStored, RuleRow
    from broker.core.contract.turn import Turn
    from broker.core.entities.directory import Directory
    from broker.core.operations.admission import Admission
    from broker.core.operations.link_operations import LinkOperations
    from broker.core.operations.rule_administration import RuleAdministration
    from broker.core.queues.namespace_context import NamespaceContext
    from broker.core.queues.queue import Queue
    from broker.core.routing.compiled_rule import CompiledRule
    from config.model.definitions import EntityDefinition

_KINDS_IN_ORDER = {QueueDefinition: 0, TopicDefinition: 0, SubscriptionDefinition: 1}
"""A topic must exist before its subscriptions."""
_CANNOT_CHANGE = "The value for the {} property of an existing {{}} cannot be changed."
FIXED_PROPERTIES = {
    "requires_session": _CANNOT_CHANGE.format("RequiresSession"),
    "requires_duplicate_detection": _CANNOT_CHANGE.format("RequiresDuplicateDetection"),
    "enable_partitioning": "Partitioning cannot be changed for {}.",
}
"""Properties that cannot be changed after creation, and the error of the service for an attempt,
with a place for the kind of the entity. The Go SDK's tests look for these texts."""


class DeclarationRefused(Exception):
    """A config file declares entities that cannot be made of the stored ones. No client has asked for that: the
    broker does not start."""


class EntityAdministration:
    """Carries out the commands about entities."""

    __slots__ = ("_context", "_directory", "_forwarding", "_links", "_namespace", "_rules")

    def __init__(
        self,
        namespace: str,
        context: NamespaceContext,
        directory: Directory,
        links: LinkOperations,
        admission: Admission,
        rules: RuleAdministration,
    ) -> None:
        self._namespace = namespace
        self._context = context
        self._directory = directory
        self._links = links
        self._rules = rules
        self._forwarding = Forwarding(directory, admission, context.backlog)

    def retry_forwarding(self) -> None:
        """Retry forwarding in the next turn: there is room again."""
        self._forwarding.retry()

    # --- at start ---------------------------------------------------------------------------

    def declare(self, definitions: Mapping[str, EntityDefinition], now_ms: int, turn: Turn) -> None:
        """Create or change entities, so that they are as defined. Fixed properties of entities with messages are
        kept. An empty entity of another kind is replaced. Raises `DeclarationRefused` before anything has changed
        if one has messages."""
        self._check_kinds(definitions)
        for path, definition in sorted(
            definitions.items(), key=lambda entry: _KINDS_IN_ORDER[type(entry[1])]
        ):
            entity = self._directory.get(path)
            if entity is not None and type(definition) is not type(entity.definition):
                self.delete(entity, now_ms, turn)
                entity = None
            if entity is None:
                self._create(path, definition, now_ms, turn)
                continue
            if entity.main.count:
                self._change(
                    entity, _keeping(definition, entity.definition, FIXED_PROPERTIES), now_ms, turn
                )
            else:
                self._change(entity, definition, now_ms, turn)
            if isinstance(entity, Subscription) and isinstance(definition, SubscriptionDefinition):
                self._rules.declare(entity, definition.rules, now_ms, turn)

    def _check_kinds(self, definitions: Mapping[str, EntityDefinition]) -> None:
        """Raises `DeclarationRefused` if entities with messages are declared as another kind."""
        refusals: list[str] = []
        for path, definition in definitions.items():
            entity = self._directory.get(path)
            if entity is None or type(definition) is type(entity.definition):
                continue
            count = sum(queue.count for one in (entity, *entity.dependents) for queue in one.queues)
            if count:
                declared = ENTITY_KINDS[type(definition)]
                messages = "1 message" if count == 1 else f"{count} messages"
                refusals.append(
                    f"The config file declares the {declared} '{path}', but the store has a {entity.kind} of this "
                    f"name in the namespace '{self._namespace}', with {messages}. Give the {declared} another name, "
                    f"or start with the earlier config file and receive or delete what the {entity.kind} has: an "
                    f"empty one is replaced."
                )
        if refusals:
            raise DeclarationRefused("\n".join(refusals))

    def delete_if_exists(self, path: str, now_ms: int, turn: Turn) -> None:
        """Delete an entity if it exists. A subscription may have been deleted with its topic."""
        entity = self._directory.get(path)
        if entity is not None:
            self.delete(entity, now_ms, turn)

    def restore(self, stored: EntityStored, rules: Sequence[RuleRow], now_ms: int) -> Entity:
        """Restore an entity without messages."""
        definition = definition_from_json(stored.definition)
        entity = self._build(stored.entity_id, stored.path, definition, now_ms)
        if isinstance(entity, Subscription):
            self._rules.restore(entity, rules)
        entity.restore_times(stored.created_time_ms, stored.updated_time_ms)
        return entity

    # --- requests ---------------------------------------------------------------------------

    def create_entity(self, command: ask.CreateEntity, now_ms: int, turn: Turn) -> EntityView:
        """Create a queue, topic or subscription."""
        path, definition = command.path, command.definition
        limits = self._context.limits
        rules: list[CompiledRule] = []
        if self._directory.get(path) is not None:
            raise EntityAlreadyExists(f"An entity with the name '{path}' already exists.")
        if len(path) > limits.entity_path_max_characters:
            raise ArgumentError(
                f"The path of an entity has at most {limits.entity_path_max_characters} characters."
            )
        if isinstance(definition, SubscriptionDefinition):
            topic, name = self._directory.topic_of(path)
            path = subscription_path(topic.path, name)
            if len(name) > limits.name_max_characters:
                raise ArgumentError(
                    f"A subscription's name has at most {limits.name_max_characters} characters."
                )
            if len(topic.subscriptions) >= limits.subscriptions_per_topic_max:
                raise QuotaExceeded(
                    f"The topic '{topic.path}' has {limits.subscriptions_per_topic_max} "
                    "subscriptions, which is the maximum."
                )
            rules = self._rules.compile_first(definition.rules, now_ms, command.compiled)
            topic.record_access(now_ms)
        elif self._directory.queue_and_topic_count >= limits.entities_per_namespace_max:
            raise QuotaExceeded(
                f"The namespace has {limits.entities_per_namespace_max} queues and topics, "
                "which is the maximum."
            )
        self._check_features(definition)
        self._forwarding.check(path, definition, None)
        return self._create(path, definition, now_ms, turn, rules).view()

    def update_entity(self, command: ask.UpdateEntity, now_ms: int, turn: Turn) -> EntityView:
        """Change an entity. Attached links see the change at once."""
        entity = self._directory.entity(command.path)
        before = entity.definition
        if type(command.definition) is not type(before):
            raise ArgumentError(
                f"The entity '{entity.path}' is a {entity.kind}, and its kind cannot be changed."
            )
        # The definition of a subscription has no rules here, so an update does not change rules.
        definition = _keeping(command.definition, before, command.keeps)
        for name, sentence in FIXED_PROPERTIES.items():
            if getattr(definition, name, None) != getattr(before, name, None):
                raise ArgumentError(sentence.format(entity.kind.capitalize()))
        for name, refusal in command.refusals.items():
            if getattr(definition, name, None) != getattr(before, name, None):
                raise refusal
        self._check_features(definition)
        self._forwarding.check(entity.path, definition, before)
        entity.restart_idle_time(now_ms)
        self._change(entity, definition, now_ms, turn)
        return entity.view()

    def delete_entity(self, command: ask.DeleteEntity, now_ms: int, turn: Turn) -> None:
        """Delete an entity with its messages, and a topic with its subscriptions."""
        entity = self._directory.entity(command.path)
        entity.restart_idle_time(now_ms)  # that of the topic of a subscription
        self.delete(entity, now_ms, turn)

    def get_entity(self, command: ask.GetEntity, now_ms: int, turn: Turn) -> EntityView:
        """Returns one entity."""
        del now_ms, turn
        return self._directory.entity(command.path).view()

    def list_entities(self, command: ask.ListEntities, now_ms: int, turn: Turn) -> list[EntityView]:
        """Returns entities of a kind, ordered by name."""
        del now_ms, turn
        if command.topic is not None:
            entities: Iterable[Entity] = self._directory.topic(command.topic).subscriptions.values()
        else:
            entities = (entity for entity in self._directory if entity.kind == command.kind)
        ordered = sorted(entities, key=lambda entity: entity.path.lower())
        top = min(command.top, self._context.limits.list_max_entities)
        return [entity.view() for entity in ordered[command.skip : command.skip + top]]

    def _check_features(self, definition: EntityDefinition) -> None:
        if missing := missing_feature(definition, self._context.limits):
            raise ArgumentError(missing)

    # --- doing it ---------------------------------------------------------------------------

    def create_on_first_use(self, path: str, now_ms: int, turn: Turn) -> None:
        """Create a queue for a path that a client uses, if nothing exists there and the path is
        valid."""
        limits = self._context.limits
        if (
            self._directory.get(path) is None
            and "/$" not in path
            and first_use_address_error(path, limits) is None
            and self._directory.queue_and_topic_count < limits.entities_per_namespace_max
        ):
            definition = QueueDefinition(lock_duration_ms=limits.lock_duration_default_ms)
            self._create(path, definition, now_ms, turn)

    def _create(
        self,
        path: str,
        definition: EntityDefinition,
        now_ms: int,
        turn: Turn,
        rules: Sequence[CompiledRule] | None = None,
    ) -> Entity:
        """Create an entity. `rules` are the rules of a subscription if they are compiled already."""
        if rules is None and isinstance(definition, SubscriptionDefinition):
            rules = self._rules.compile_first(definition.rules, now_ms)
        entity_id = self._context.ids.take_entity()
        entity = self._build(entity_id, path, _without_idle_deletion(definition), now_ms)
        turn.records.append(entity.record(self._namespace))
        if isinstance(entity, Subscription):
            self._rules.create_first(entity, rules or (), turn)
        self._forwarding.retry()
        return entity

    def _build(
        self, entity_id: int, path: str, definition: EntityDefinition, now_ms: int
    ) -> Entity:
        entity: Entity
        if isinstance(definition, TopicDefinition):
            entity = Topic(self._context, entity_id, path, definition, now_ms)
        elif isinstance(definition, SubscriptionDefinition):
            topic, _ = self._directory.topic_of(path)
            entity = Subscription(self._context, entity_id, path, definition, now_ms, topic.usage)
        else:
            entity = Entity(self._context, entity_id, path, definition, now_ms)
        self._directory.add(entity)
        self._forwarding.set_up(entity)
        return entity

    def _change(
        self, entity: Entity, definition: EntityDefinition, now_ms: int, turn: Turn
    ) -> None:
        definition = _without_idle_deletion(definition)
        if isinstance(definition, SubscriptionDefinition):
            definition = replace(definition, rules=())
        if definition == entity.definition:
            return
        self._directory.keys.replace(entity.path, entity.definition, definition)
        entity.redefine(definition, now_ms)
        turn.records.append(entity.record(self._namespace))
        if isinstance(entity, Subscription):
            topic, name = self._directory.topic_of(entity.path)
            topic.subscribe(name, entity)
        self._forwarding.set_up(entity)
        self._end_receiving(entity, now_ms, turn)
        self._forwarding.retry()

    def _end_receiving(self, entity: Entity, now_ms: int, turn: Turn) -> None:
        """Detach receivers that could not attach now."""
        try:
            entity.check_receiving()
        except BrokerError as error:
            self._detach_receivers(entity, error, now_ms, turn)
        if entity.main.is_forwarding:
            forwarded = NotAllowed("Messages of this entity are forwarded, not received here.")
            self._detach_receivers(entity, forwarded, now_ms, turn, entity.main)

    def _detach_receivers(
        self,
        entity: Entity,
        error: BrokerError,
        now_ms: int,
        turn: Turn,
        queue: Queue | None = None,
    ) -> None:
        for receiver in entity.receivers:
            if queue is None or receiver.queue is queue:
                waiting = receiver.waits_for_session
                self._links.detach_receiver(receiver, now_ms, turn)
                effect = AttachRefused if waiting else Detached
                turn.effects.append(effect(receiver.peer, error))

    def delete(self, entity: Entity, now_ms: int, turn: Turn) -> None:
        """Delete an entity and detach its links."""
        for dependent in entity.dependents:
            self.delete(dependent, now_ms, turn)
        error = EntityNotFound(entity.path)
        self._detach_receivers(entity, error, now_ms, turn)
        turn.effects += [Detached(peer, error) for peer in entity.senders]
        for queue in entity.queues:
            self._forwarding.end(queue)
            queue.close(turn)
        if entity.duplicates is not None and (deleted := entity.duplicates.close()):
            self._context.backlog.add(deleted)
        self._directory.remove(entity)
        entity.schedule_idle_check(now_ms)
        turn.records.append(EntityDeleted(entity.id))

    def restart_idle_time(self, queue: Queue, now_ms: int) -> None:
        """The idle time of the entity of a queue begins again."""
        self._directory.entity_of(queue).restart_idle_time(now_ms)

    def delete_if_idle(self, entity: Entity, now_ms: int, turn: Turn) -> None:
        """Delete an entity if it has been idle for too long."""
        if entity.is_idle(now_ms):
            self.delete(entity, now_ms, turn)
        else:
            entity.schedule_idle_check(now_ms)


def _keeping(
    definition: EntityDefinition, before: EntityDefinition, names: Iterable[str]
) -> EntityDefinition:
    """Returns the definition with the earlier values of these fields, if its kind has them."""
    kept = {name: getattr(before, name) for name in names if hasattr(definition, name)}
    return replace(definition, **kept)


def _without_idle_deletion(definition: EntityDefinition) -> EntityDefinition:
    """A subscription that forwards is never deleted because it is idle. The service shows that."""
    if isinstance(definition, SubscriptionDefinition) and definition.forward_to is not None:
        return replace(definition, auto_delete_on_idle_ms=UNLIMITED_MS)
    return definition
