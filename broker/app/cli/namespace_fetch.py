"""Fetches the entities of a live namespace through the administration API of Service Bus.

Works with the cloud, with the official emulator and with Peeklock. It only reads.
"""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from broker.app.cli.connection_strings import read_connection_string
from broker.core.contract.errors import ArgumentError
from config.files.topology import Topology
from config.model.definitions import (
    DEFAULT_MAX_SIZE_MEGABYTES,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import RELAXED
from config.model.names import DEFAULT_NAMESPACE, subscription_path
from protocol.http import atom
from protocol.http.admin import description_reader, rules_xml
from protocol.identity import sas

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from config.model.definitions import EntityDefinition, RuleDefinition

PAGE_ENTITIES = 100
API_VERSION = "2021-05"
TOKEN_LIFETIME_S = 900
TIMEOUT_S = 60
EMULATOR_PORT = 5300
CLOUD_PORT = 443
USUAL_MESSAGE_KILOBYTES = (256, 1024)
"""The largest message of an entity in the Standard tier, and by default in the Premium tier."""
_UNUSED = {
    "IsClientAffine": "subscriptions of JMS clients are ordinary ones here",
}
"""Elements that change nothing here if they are true, and what to say."""


class ImportFailed(Exception):
    """The entities could not be read. The text says why."""


class LiveNamespace(NamedTuple):
    """The administration API of a namespace, and a key."""

    host: str
    port: int
    key_name: str
    key: str
    has_tls: bool
    authority: Path | None = None
    """File of the trusted certificates; None for those of the system."""

    def connect(self) -> http.client.HTTPConnection:
        """Returns a connection that is not open yet."""
        if not self.has_tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        file = None if self.authority is None else str(self.authority)
        context = ssl.create_default_context(cafile=file)
        return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_S, context=context)


def live_namespace(connection_string: str, authority: Path | None = None) -> LiveNamespace:
    """Returns the namespace of a connection string. Raises `ImportFailed`.

    With UseDevelopmentEmulator=true the namespace is one of a local broker, which needs no TLS.
    """
    read = read_connection_string(connection_string)
    if read is None:
        raise ImportFailed(
            "a connection string has Endpoint=sb://HOST, SharedAccessKeyName and SharedAccessKey, with semicolons "
            "between them; the key needs the claim Manage"
        )
    is_local = read.is_for_emulator and authority is None
    port = read.port or (EMULATOR_PORT if is_local else CLOUD_PORT)
    return LiveNamespace(read.host, port, read.key_name, read.key, not is_local, authority)


def fetch_topology(live: LiveNamespace, *, with_keys: bool) -> tuple[Topology, list[str]]:
    """Returns the entities of a namespace, and a sentence for everything that is not carried over. Raises
    `ImportFailed`."""
    connection = live.connect()
    try:
        return _Fetch(live, connection, with_keys=with_keys).topology()
    except (OSError, http.client.HTTPException) as error:
        raise ImportFailed(f"{live.host}:{live.port} does not answer: {error}") from error
    finally:
        connection.close()


class _Fetch:
    def __init__(
        self, live: LiveNamespace, connection: http.client.HTTPConnection, *, with_keys: bool
    ) -> None:
        self._live = live
        self._connection = connection
        self._with_keys = with_keys
        self._losses: list[str] = []

    def topology(self) -> tuple[Topology, list[str]]:
        entities: dict[str, EntityDefinition] = {}
        for name, description in self._entries("$Resources/Queues"):
            self._add(entities, name, QueueDefinition(), description)
        for name, description in self._entries("$Resources/Topics"):
            self._add(entities, name, TopicDefinition(), description)
        topics = [path for path, one in entities.items() if isinstance(one, TopicDefinition)]
        for topic in topics:
            for name, description in self._entries(f"{_quoted(topic)}/Subscriptions"):
                path = subscription_path(topic, name)
                self._add(entities, path, SubscriptionDefinition(), description)
                one = entities.get(path)
                if isinstance(one, SubscriptionDefinition):
                    rules = self._rules(topic, name)
                    entities[path] = replace(one, rules=tuple(rules))
        return Topology({DEFAULT_NAMESPACE: entities}), self._losses

    def _add(
        self,
        entities: dict[str, EntityDefinition],
        path: str,
        base: QueueDefinition | TopicDefinition | SubscriptionDefinition,
        description: atom.Element,
    ) -> None:
        if not self._with_keys:
            rules = description.child("AuthorizationRules")
            names = [rule.text_of("KeyName") for rule in rules.children] if rules else []
            if names:
                self._losses.append(
                    f"{path}: the authorization rules {', '.join(map(str, names))} are left out; --with-keys "
                    "writes them with their keys"
                )
                assert rules is not None
                description.children.remove(rules)
        for child in description.children:
            if child.name in _UNUSED and child.text.strip().lower() == "true":
                self._losses.append(f"{path}: {child.name}: {_UNUSED[child.name]}")
        try:
            definition: EntityDefinition
            match base:
                case QueueDefinition():
                    definition = description_reader.read(description, base, RELAXED)
                case TopicDefinition():
                    definition = description_reader.read(description, base, RELAXED)
                case SubscriptionDefinition():
                    definition = description_reader.read(description, base, RELAXED)
        except ArgumentError as error:
            self._losses.append(f"{path}: is left out: {error}")
        else:
            entities[path] = _without_usual_sizes(definition)

    def _rules(self, topic: str, subscription: str) -> Iterator[RuleDefinition]:
        path = f"{_quoted(topic)}/Subscriptions/{_quoted(subscription)}/Rules"
        for name, description in self._entries(path):
            try:
                yield rules_xml.read(description, name, 0)
            except ArgumentError as error:
                self._losses.append(
                    f"{subscription_path(topic, subscription)}: the rule {name!r} is left out: {error}"
                )

    def _entries(self, path: str) -> Iterator[tuple[str, atom.Element]]:
        """Yields the names and the descriptions of a list, page by page."""
        skip = 0
        while True:
            feed = self._get(f"/{path}?$skip={skip}&$top={PAGE_ENTITIES}&api-version={API_VERSION}")
            entries = [child for child in feed.children if child.name == "entry"]
            for entry in entries:
                content = entry.child("content")
                if content is not None and content.children:
                    yield (entry.text_of("title") or "").strip(), content.children[0]
            if len(entries) < PAGE_ENTITIES:
                return
            skip += len(entries)

    def _get(self, target: str) -> atom.Element:
        live = self._live
        expires_at_s = int(time.time()) + TOKEN_LIFETIME_S if live.has_tls else sas.YEAR_9999_S
        token = sas.make(f"http://{live.host}/", live.key_name, live.key, expires_at_s)
        self._connection.request("GET", target, headers={"Authorization": token})
        response = self._connection.getresponse()
        body = response.read()
        if response.status != http.HTTPStatus.OK:
            said = body.decode("utf-8", "replace").strip()[:300]
            raise ImportFailed(f"{live.host} refuses {target}: {response.status} {said}")
        try:
            return atom.parse(body)
        except ArgumentError as error:
            raise ImportFailed(
                f"{live.host} answered {target} with something else: {error}"
            ) from error


def _without_usual_sizes(definition: EntityDefinition) -> EntityDefinition:
    """Returns a definition without sizes that every entity has unless they were set. Answers always have them."""
    if isinstance(definition, SubscriptionDefinition):
        return definition
    if definition.max_size_megabytes == DEFAULT_MAX_SIZE_MEGABYTES:
        definition = replace(definition, max_size_megabytes=None)
    if definition.max_message_size_kilobytes in USUAL_MESSAGE_KILOBYTES:
        definition = replace(definition, max_message_size_kilobytes=None)
    return definition


def _quoted(path: str) -> str:
    return quote(path, safe="/")
