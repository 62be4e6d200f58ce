"""The entities of a namespace by path.

Paths are compared without case and keep the case with which the entity was created.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.core.contract.errors import EntityNotFound
from broker.core.entities.authorization_index import AuthorizationIndex
from broker.core.entities.subscription import Subscription
from broker.core.entities.topic import Topic
from broker.core.queues.queue import DEAD_LETTERS, MAIN, TRANSFER_DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.core.entities.entity import Entity
    from broker.core.queues.queue import Queue

SUBSCRIPTIONS = "/subscriptions/"
_DEAD_LETTER_SUFFIX = "/$deadletterqueue"
_TRANSFER_SUFFIX = "/$transfer"
_SUBSCRIPTION_PATH = re.compile(f"(.+){SUBSCRIPTIONS}(.*)", re.ASCII | re.DOTALL | re.IGNORECASE)
"""Finds both names in the path itself: `İ`, for example, is longer in lower case."""


class Directory:
    """Entities by path."""

    __slots__ = ("_by_id", "_by_path", "_count_below", "keys", "queue_and_topic_count")

    def __init__(self) -> None:
        self._by_path: dict[str, Entity] = {}
        """By path in lower case, including subscriptions."""
        self._by_id: dict[int, Entity] = {}
        self._count_below: dict[str, int] = {}
        """The number of entities below a path, by path in lower case."""
        self.queue_and_topic_count = 0
        self.keys = AuthorizationIndex()
        """The authorization rules of entities."""

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._by_path.values())

    def get(self, path: str) -> Entity | None:
        """Returns the entity of this path, or None."""
        return self._by_path.get(path.lower())

    def has_at_or_below(self, path: str) -> bool:
        """Returns whether an entity has this path or a path below it. Nodes of an entity whose
        names begin with `$`, such as sub-queues, count as the entity."""
        key = path.lower().partition("/$")[0].removesuffix(SUBSCRIPTIONS[:-1])
        return key in self._by_path or key in self._count_below

    def entity(self, path: str) -> Entity:
        """Returns the entity of this path. Raises `EntityNotFound` if there is none."""
        entity = self._by_path.get(path.lower())
        if entity is None:
            raise EntityNotFound(path)
        return entity

    def entity_of(self, queue: Queue) -> Entity:
        """Returns the entity of a queue or sub-queue, which must not be deleted."""
        return self._by_id[queue.entity_id]

    def queue(self, path: str) -> Queue:
        """Returns the queue or sub-queue of this path. Raises `EntityNotFound` if there is none."""
        key = path.lower()
        sub_queue = MAIN
        if key.endswith(_DEAD_LETTER_SUFFIX):
            key = key[: -len(_DEAD_LETTER_SUFFIX)]
            sub_queue = DEAD_LETTERS
            if key.endswith(_TRANSFER_SUFFIX):
                key = key[: -len(_TRANSFER_SUFFIX)]
                sub_queue = TRANSFER_DEAD_LETTERS
        entity = self._by_path.get(key)
        if entity is None:
            raise EntityNotFound(path)
        return entity.queues[sub_queue]

    def topic(self, path: str) -> Topic:
        """Returns the topic of a path. Raises `EntityNotFound` if there is none."""
        topic = self._by_path.get(path.lower())
        if not isinstance(topic, Topic):
            raise EntityNotFound(path)
        return topic

    def topic_of(self, path: str) -> tuple[Topic, str]:
        """Returns the topic of the path of a subscription, and the name of the subscription. Raises
        `EntityNotFound` if there is no such topic."""
        names = _SUBSCRIPTION_PATH.fullmatch(path)
        if names is None:
            raise EntityNotFound(path)
        return self.topic(names[1]), names[2]

    def add(self, entity: Entity) -> None:
        """Add an entity. A subscription is added to its topic."""
        self._by_path[entity.path.lower()] = entity
        self._by_id[entity.id] = entity
        for path in _paths_above(entity.path):
            self._count_below[path] = self._count_below.get(path, 0) + 1
        self.keys.replace(entity.path, None, entity.definition)
        if isinstance(entity, Subscription):
            topic, name = self.topic_of(entity.path)
            entity.owner = topic
            topic.subscribe(name, entity)
        else:
            self.queue_and_topic_count += 1

    def remove(self, entity: Entity) -> None:
        """Remove a deleted entity."""
        del self._by_path[entity.path.lower()]
        del self._by_id[entity.id]
        for path in _paths_above(entity.path):
            self._count_below[path] -= 1
            if not self._count_below[path]:
                del self._count_below[path]
        entity.mark_deleted()
        self.keys.replace(entity.path, entity.definition, None)
        if isinstance(entity, Subscription):
            topic, name = self.topic_of(entity.path)
            topic.unsubscribe(name)
        else:
            self.queue_and_topic_count -= 1


def _paths_above(path: str) -> Iterator[str]:
    """`a/b/c` → `a/b`, `a`."""
    above = path.lower().rpartition("/")[0]
    while above:
        yield above
        above = above.rpartition("/")[0]
