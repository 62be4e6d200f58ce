"""The features that a tier does not have: Basic has only plain queues.

Lists the kinds and properties, and the sentences of refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.model.definitions import UNLIMITED_MS, QueueDefinition

if TYPE_CHECKING:
    from config.model.definitions import EntityDefinition
    from config.model.limits import Limits

_NOT_IN_BASIC = {
    "requires_session": ("RequiresSession", False),
    "requires_duplicate_detection": ("RequiresDuplicateDetection", False),
    "forward_to": ("ForwardTo", None),
    "forward_dead_letters_to": ("ForwardDeadLetteredMessagesTo", None),
    "auto_delete_on_idle_ms": ("AutoDeleteOnIdle", UNLIMITED_MS),
}
"""By field, the name of the property and its value in the Basic tier."""


def missing_feature(definition: EntityDefinition, limits: Limits) -> str | None:
    """Returns why the tier does not allow an entity, or None."""
    if limits.offers_more_than_plain_queues:
        return None
    if not isinstance(definition, QueueDefinition):
        return "Topics and subscriptions can't be created: the namespace is using the 'Basic' tier."
    for field, (name, value) in _NOT_IN_BASIC.items():
        if getattr(definition, field) != value:
            return f"The property '{name}' can't be set: the namespace is using the 'Basic' tier."
    return None
