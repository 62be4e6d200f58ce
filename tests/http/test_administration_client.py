"""Python's stock administration client, unmodified, against the HTTP side over TLS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdministrationClient,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.harness import HttpHarness

KEYS = [
    AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        key_name="reader",
        primary_key="cHJpbWFyeQ==",
        secondary_key="c2Vjb25kYXJ5",
        rights=[AccessRights.LISTEN],
    )
]

QUEUE = {
    "auto_delete_on_idle": timedelta(minutes=10),
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(days=1, minutes=11, seconds=2, milliseconds=345),
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "enable_batched_operations": False,
    "enable_express": True,
    "enable_partitioning": True,
    "lock_duration": timedelta(seconds=13),
    "max_delivery_count": 14,
    "max_size_in_megabytes": 3072,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "user_metadata": "café & <metadata>",
    "max_message_size_in_kilobytes": 2048,
}
"""Every property of a queue that does not forward, none at its default."""


def test_a_queue_reads_back_with_every_property_it_was_created_with(admin):
    """What `create_queue` was given, `create_queue` and `get_queue` return."""
    created = admin.create_queue("every-property", authorization_rules=KEYS, **QUEUE)
    read = admin.get_queue("every-property")
    for properties in (created, read):
        assert {name: getattr(properties, name) for name in QUEUE} == QUEUE
        assert "every-property" == properties.name
        assert EntityStatus.ACTIVE == properties.status
        assert "Available" == properties.availability_status
        (rule,) = properties.authorization_rules
        assert ("reader", "cHJpbWFyeQ==", "c2Vjb25kYXJ5") == (
            rule.key_name,
            rule.primary_key,
            rule.secondary_key,
        )
        assert [AccessRights.LISTEN] == rule.rights
