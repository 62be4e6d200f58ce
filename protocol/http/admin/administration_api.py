"""The administration API: translates Atom requests into entity commands, and answers into entries and feeds.

Checks requests and writes answers; the core decides what happens to an entity. There are no ETags: a PUT with any
`If-Match` updates, a PUT without it creates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from broker.core.contract import commands
from broker.core.contract.effects import EntityView
from broker.core.contract.errors import ArgumentError, BrokerError, EntityNotFound
from config.model import names
from config.model.definitions import (
    EntityKind,
    QueueDefinition,
    RuleDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import Tier
from protocol.http import atom, request_bodies, request_paths
from protocol.http.admin import administration_faults, description_reader, descriptions, rules_xml
from protocol.http.admin.administration_request import AdministrationRequest
from protocol.http.error_responses import InvalidVerb, MethodNotAllowed
from protocol.identity import SEND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from config.model.definitions import EntityDefinition
    from protocol.http.broker_services import BrokerServices


FORWARDING_TOKENS = {
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_letters_to": "ServiceBusDlqSupplementaryAuthorization",
}
"""For each field of a forwarding target, the header with a token for the target."""

Answer = TypeVar("Answer")


class AdministrationApi:
    """Serves entity, rule and namespace requests."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._limits = services.limits
        self._operations: dict[
            tuple[type[request_paths.ManagedResource], str],
            Callable[[AdministrationRequest, Any], Awaitable[web.Response]],
        ] = {
            (request_paths.NamespaceRoot, "GET"): self._get_root,
            (request_paths.NamespaceInfo, "GET"): self._get_namespace,
            (request_paths.EntityList, "GET"): self._list_entities,
            (request_paths.EntityResource, "GET"): self._get_entity,
            (request_paths.EntityResource, "PUT"): self._put_entity,
            (request_paths.EntityResource, "DELETE"): self._delete_entity,
            (request_paths.SubscriptionList, "GET"): self._list_subscriptions,
            (request_paths.SubscriptionResource, "GET"): self._get_entity,
            (request_paths.SubscriptionResource, "PUT"): self._put_subscription,
            (request_paths.SubscriptionResource, "DELETE"): self._delete_entity,
            (request_paths.RuleList, "GET"): self._list_rules,
            (request_paths.RuleResource, "GET"): self._get_rule,
            (request_paths.RuleResource, "PUT"): self._put_rule,
            (request_paths.RuleResource, "DELETE"): self._delete_rule,
        }

    async def handle(
        self, request: web.Request, resource: request_paths.ManagedResource
    ) -> web.Response:
        """Answers a request to the administration API."""
        if isinstance(resource, request_paths.SubQueueResource):
            raise InvalidVerb(request.method)
        operation = self._operations.get((type(resource), request.method))
        if operation is None:
            raise MethodNotAllowed(f"{request.method} cannot be used on '{request.path}'.")
        call = AdministrationRequest.of(request)
        if self._services.faults.is_used:
            return await administration_faults.inject(
                self._services, request, resource, lambda: operation(call, resource)
            )
        return await operation(call, resource)

    async def _ask(self, answer: type[Answer], build: Callable[[Peer, object], Command]) -> Answer:
        value = await self._services.ask(build)
        assert isinstance(value, answer), f"the core answered with {type(value).__name__}"
        return value

    async def _view(self, path: str) -> EntityView:
        return await self._ask(EntityView, lambda peer, mark: commands.GetEntity(peer, mark, path))

    # --- queues, topics, subscriptions ---------------------------------------------------------

    async def _get_entity(
        self,
        call: AdministrationRequest,
        resource: request_paths.EntityResource | request_paths.SubscriptionResource,
    ) -> web.Response:
        """Answers with an entity, or with an empty feed, as the service does for a missing queue or topic.

        All SDKs take the feed for a missing entity: .NET, Java and Python because it is no entry, JavaScript
        because it has no entries, Go because of its title.
        """
        try:
            view = await self._view(resource.path)
        except EntityNotFound:
            if isinstance(resource, request_paths.SubscriptionResource) and await self.exists(
                request_paths.EntityResource(resource.topic)
            ):
                raise
            return self.public_feed()
        return _entry_response(self._entry(call, view))

    async def exists(
        self, resource: request_paths.EntityResource | request_paths.NamespaceRoot
    ) -> bool:
        """Returns whether the queue or topic exists."""
        if isinstance(resource, request_paths.NamespaceRoot):
            return False
        try:
            await self._view(resource.path)
        except EntityNotFound:
            return False
        return True

    async def _get_root(
        self, _call: AdministrationRequest, _resource: request_paths.NamespaceRoot
    ) -> web.Response:
        return self.public_feed()

    def public_feed(self) -> web.Response:
        """Returns the answer of the service for its root and for a missing queue or topic."""
        text = atom.public_feed(self._services.now_ms(), self._services.sources.new_uuid())
        return _atom_response(text, atom.CONTENT_TYPE_FEED, 200)

    async def _put_entity(
        self, call: AdministrationRequest, resource: request_paths.EntityResource
    ) -> web.Response:
        _check_name(resource.path, names.entity_name_error(resource.path, self._limits))
        description = atom.any_description(
            await request_bodies.read(call.request, atom.BODY_MAX_BYTES)
        )
        match description.name:
            case "QueueDescription":
                queue = QueueDefinition(lock_duration_ms=self._limits.lock_duration_default_ms)
                return await self._put(call, resource.path, description, queue)
            case "TopicDescription":
                return await self._put(call, resource.path, description, TopicDefinition())
            case other:
                raise ArgumentError(f"A {other[:100]} cannot describe '{resource.path}'.")

    async def _put_subscription(
        self, call: AdministrationRequest, resource: request_paths.SubscriptionResource
    ) -> web.Response:
        wrong = names.subscription_name_error(resource.name, self._limits)
        _check_name(resource.name, wrong)
        description = atom.description(
            await request_bodies.read(call.request, atom.BODY_MAX_BYTES), "SubscriptionDescription"
        )
        first_rule = rules_xml.read_default(
            description.child("DefaultRuleDescription"), self._services.now_ms()
        )
        _check_name(first_rule.name, names.rule_name_error(first_rule.name, self._limits))
        initial = SubscriptionDefinition(
            lock_duration_ms=self._limits.lock_duration_default_ms, rules=(first_rule,)
        )
        return await self._put(call, resource.path, description, initial)

    async def _put(
        self,
        call: AdministrationRequest,
        path: str,
        description: atom.Element,
        initial: description_reader.Definition,
    ) -> web.Response:
        description_reader.check_version(description, initial, call.api_version)
        definition = description_reader.read(description, initial, self._limits)
        refusals = self._forwarding_refusals(call, definition)
        if call.is_update:
            keeps = description_reader.kept_by_update(description, definition)
            view = await self._ask(
                EntityView,
                lambda peer, mark: commands.UpdateEntity(
                    peer, mark, path, definition, keeps, refusals
                ),
            )
            return _entry_response(self._entry(call, view))
        for refusal in refusals.values():
            raise refusal
        view = await self._ask(
            EntityView, lambda peer, mark: commands.CreateEntity(peer, mark, path, definition)
        )
        return _entry_response(self._entry(call, view), 201)

    def _forwarding_refusals(
        self, call: AdministrationRequest, definition: EntityDefinition
    ) -> dict[str, BrokerError]:
        """Returns, by field, why the client may not forward to a target. It needs the claim Send on the target, in
        the token of the request or in the one that SDKs add for this. The core ignores the refusal if the
        target does not change."""
        refusals: dict[str, BrokerError] = {}
        headers = call.request.headers
        for name, header in FORWARDING_TOKENS.items() if self._services.is_strict else ():
            target = getattr(definition, name, None)
            if target is not None:
                token = headers.get(header) or headers.get("Authorization")
                try:
                    self._services.authorize(token, target, SEND, call.host)
                except BrokerError as error:
                    refusals[name] = error
        return refusals

    async def _delete_entity(
        self,
        _call: AdministrationRequest,
        resource: request_paths.EntityResource | request_paths.SubscriptionResource,
    ) -> web.Response:
        await self._services.ask(
            lambda peer, mark: commands.DeleteEntity(peer, mark, resource.path)
        )
        return web.Response(status=200)

    async def _list_entities(
        self, call: AdministrationRequest, resource: request_paths.EntityList
    ) -> web.Response:
        return await self._list(call, resource.kind, None)

    async def _list_subscriptions(
        self, call: AdministrationRequest, resource: request_paths.SubscriptionList
    ) -> web.Response:
        return await self._list(call, EntityKind.SUBSCRIPTION, resource.topic)

    async def _list(
        self, call: AdministrationRequest, kind: EntityKind, topic: str | None
    ) -> web.Response:
        skip, top = call.number("$skip", 0), call.page_size
        # One more than the page has: if there is one, there is a next page.
        views = await self._ask(
            list,
            lambda peer, mark: commands.ListEntities(peer, mark, kind, topic, skip, top + 1),
        )
        entries = [self._entry(call, view) for view in views[:top]]
        return self._feed_response(call, f"{kind.title()}s", entries, has_more=len(views) > top)

    def _entry(self, call: AdministrationRequest, view: EntityView) -> atom.Entry:
        context = descriptions.DescriptionContext(
            call.host,
            call.api_version,
            self._limits.message_default_kilobytes,
            self._limits.partition_count,
        )
        name = view.path
        if isinstance(view.definition, SubscriptionDefinition):
            name = view.path.rpartition("/")[2]
        return atom.Entry(
            name,
            call.href(view.path),
            self._services.namespace_name,
            view.created_time_ms,
            view.updated_time_ms,
            descriptions.write(view, context),
        )

    # --- rules ---------------------------------------------------------------------------------

    async def _get_rule(
        self, call: AdministrationRequest, resource: request_paths.RuleResource
    ) -> web.Response:
        rule = await self._ask(
            RuleDefinition,
            lambda peer, mark: commands.GetRule(
                peer, mark, resource.subscription.path, resource.name
            ),
        )
        return _entry_response(self._rule_entry(call, resource.subscription, rule))

    async def _put_rule(
        self, call: AdministrationRequest, resource: request_paths.RuleResource
    ) -> web.Response:
        _check_name(resource.name, names.rule_name_error(resource.name, self._limits))
        description = atom.description(
            await request_bodies.read(call.request, atom.BODY_MAX_BYTES), rules_xml.DESCRIPTION
        )
        rule = rules_xml.read(description, resource.name, self._services.now_ms())
        stored = await self._ask(
            RuleDefinition,
            lambda peer, mark: commands.AddRule(
                peer, mark, resource.subscription.path, rule, replace=call.is_update
            ),
        )
        entry = self._rule_entry(call, resource.subscription, stored)
        return _entry_response(entry, 200 if call.is_update else 201)

    async def _delete_rule(
        self, _call: AdministrationRequest, resource: request_paths.RuleResource
    ) -> web.Response:
        await self._services.ask(
            lambda peer, mark: commands.RemoveRule(
                peer, mark, resource.subscription.path, resource.name
            )
        )
        return web.Response(status=200)

    async def _list_rules(
        self, call: AdministrationRequest, resource: request_paths.RuleList
    ) -> web.Response:
        skip, top = call.number("$skip", 0), call.page_size
        found = await self._ask(
            list,
            lambda peer, mark: commands.ListRules(
                peer, mark, resource.subscription.path, skip, top + 1
            ),
        )
        entries = [self._rule_entry(call, resource.subscription, rule) for rule in found[:top]]
        return self._feed_response(call, "Rules", entries, has_more=len(found) > top)

    def _rule_entry(
        self,
        call: AdministrationRequest,
        subscription: request_paths.SubscriptionResource,
        rule: RuleDefinition,
    ) -> atom.Entry:
        return atom.Entry(
            rule.name,
            call.href(f"{subscription.path}/Rules/{rule.name}"),
            self._services.namespace_name,
            rule.created_time_ms,
            rule.created_time_ms,
            rules_xml.write(rule),
        )

    # --- the namespace -------------------------------------------------------------------------

    async def _get_namespace(
        self, call: AdministrationRequest, _resource: request_paths.NamespaceInfo
    ) -> web.Response:
        services = self._services
        created = atom.timestamp(services.created_time_ms)
        parts = [
            f"<CreatedTime>{created}</CreatedTime>",
            atom.element("MessagingSKU", services.tier.value),
            "<MessagingUnits>1</MessagingUnits>" if services.tier is Tier.PREMIUM else "",
            f"<ModifiedTime>{created}</ModifiedTime>",
            atom.element("Name", services.namespace_name),
            "<NamespaceType>Messaging</NamespaceType>",
        ]
        return _entry_response(
            atom.Entry(
                services.namespace_name,
                call.href("$namespaceinfo"),
                services.namespace_name,
                services.created_time_ms,
                services.created_time_ms,
                atom.described("NamespaceInfo", "".join(parts)),
            )
        )

    # --- answers -------------------------------------------------------------------------------

    def _feed_response(
        self,
        call: AdministrationRequest,
        title: str,
        entries: Iterable[atom.Entry],
        *,
        has_more: bool,
    ) -> web.Response:
        path = call.request.path.strip("/")
        next_href = None
        if has_more:
            top = call.page_size
            skip = call.number("$skip", 0) + top
            next_href = f"{call.href(path)}&$skip={skip}&$top={top}"
        text = atom.feed(title, call.href(path), next_href, self._services.now_ms(), entries)
        return _atom_response(text, atom.CONTENT_TYPE_FEED, 200)


def _check_name(name: str, wrong: str | None) -> None:
    if wrong is not None:
        raise ArgumentError(f"'{name[:300]}' cannot be used as a name: {wrong}.")


def _entry_response(entry: atom.Entry, status: int = 200) -> web.Response:
    return _atom_response(atom.entry(entry), atom.CONTENT_TYPE_ENTRY, status)


def _atom_response(text: str, content_type: str, status: int) -> web.Response:
    return web.Response(status=status, body=text.encode(), headers={"Content-Type": content_type})
