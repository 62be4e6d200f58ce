"""Entities made, changed and deleted over HTTP, with messages in them, under names that come again.

One coroutine for each queue or topic changes it step by step; in every new run of the broker it
first looks at all of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.crash.client_workload import ClientWorkload, Pace
from tests.crash.clients.administration import (
    AdministrationClient,
    Version,
    read_rule,
    read_version,
)
from tests.crash.ledgers.entities import EntityLedger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings

QUEUES = tuple(f"crash-made-queue-{number}" for number in range(3))
TOPICS = tuple(f"crash-made-topic-{number}" for number in range(2))
SUBSCRIPTIONS = ("one", "two")
DEFAULT_RULE, EXTRA_RULE = "$Default", "extra"
STEPS_PER_S = 25
MESSAGES_AT_ONCE = 3
OK, CREATED, NO_CONTENT, NOT_FOUND = 200, 201, 204, 404


class Subscription(NamedTuple):
    name: str
    version: Version | str
    rule: int | str | None
    """The change that made its extra rule; None without one."""


class Tree(NamedTuple):
    """A queue, or a topic with all below it."""

    version: Version | str
    subscriptions: tuple[Subscription, ...] = ()

    def with_subscription(self, subscription: Subscription) -> Tree:
        others = [one for one in self.subscriptions if one.name != subscription.name]
        return self._replace(subscriptions=tuple(sorted([*others, subscription])))

    def without_subscription(self, name: str) -> Tree:
        others = [one for one in self.subscriptions if one.name != name]
        return self._replace(subscriptions=tuple(others))


class Administration(ClientWorkload):
    name = "entities made and deleted over HTTP"

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._book: EntityLedger[Tree] = EntityLedger((*QUEUES, *TOPICS))
        self._changes = 0
        self._messages = 0

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._work_on_all()

    async def _work_on_all(self) -> None:
        client = AdministrationClient(self.surroundings.http_port)
        try:
            async with asyncio.TaskGroup() as group:
                for name in QUEUES:
                    group.create_task(
                        self._work_on(client, name, self._look_at_queue, self._queue_step)
                    )
                for name in TOPICS:
                    group.create_task(
                        self._work_on(client, name, self._look_at_topic, self._topic_step)
                    )
        finally:
            await client.close()

    async def _work_on(
        self,
        client: AdministrationClient,
        name: str,
        look: Callable[[AdministrationClient, str], Awaitable[None]],
        step: Callable[[AdministrationClient, str, Tree], Awaitable[None]],
    ) -> None:
        await look(client, name)
        pace = Pace(STEPS_PER_S)
        while not self.stopping:
            await pace.turn()
            tree = self._book.value(name)
            if tree is None:
                await self._create(client, name)
            else:
                await step(client, name, tree)

    # ---- looking ------------------------------------------------------------------------------

    async def _look_at_queue(self, client: AdministrationClient, name: str) -> None:
        found = await client.entries(name)
        tree = Tree(read_version("Queue", found[name])) if found else None
        self._book.seen(name, tree)

    async def _look_at_topic(self, client: AdministrationClient, name: str) -> None:
        found = await client.entries(name)
        below = await client.entries(f"{name}/Subscriptions")
        subscriptions = [
            Subscription(
                subscription,
                read_version("Subscription", element),
                await self._look_at_rules(client, f"{name}/Subscriptions/{subscription}"),
            )
            for subscription, element in below.items()
        ]
        tree = None
        if found:
            version = read_version("Topic", found[name])
            tree = Tree(version, tuple(sorted(subscriptions)))
        elif subscriptions:
            tree = Tree("no topic", tuple(sorted(subscriptions)))
        self._book.seen(name, tree)

    @staticmethod
    async def _look_at_rules(client: AdministrationClient, path: str) -> int | str | None:
        found = await client.entries(f"{path}/Rules")
        if DEFAULT_RULE not in found or not {DEFAULT_RULE, EXTRA_RULE}.issuperset(found):
            return f"rules {sorted(found)}"
        return read_rule(found[EXTRA_RULE]) if EXTRA_RULE in found else None

    # ---- changing -----------------------------------------------------------------------------

    async def _change(
        self, name: str, tree: Tree | None, request: Awaitable[tuple[int, str]]
    ) -> None:
        self._book.changing(name, tree)
        status, text = await request
        if status in {OK, CREATED}:
            self._book.changed(name)
        else:
            self._book.change_refused(name, f"{status} {text[:300]}")

    def _next_change(self) -> int:
        self._changes += 1
        return self._changes

    async def _create(self, client: AdministrationClient, name: str) -> None:
        number = self._next_change()
        version = Version(number, number)
        kind = "Queue" if name in QUEUES else "Topic"
        request = client.put_entity(name, kind, version, update=False)
        await self._change(name, Tree(version), request)

    async def _update(self, client: AdministrationClient, name: str, tree: Tree) -> None:
        assert isinstance(tree.version, Version)
        version = tree.version._replace(changed=self._next_change())
        kind = "Queue" if name in QUEUES else "Topic"
        request = client.put_entity(name, kind, version, update=True)
        await self._change(name, tree._replace(version=version), request)

    async def _delete(self, client: AdministrationClient, name: str) -> None:
        await self._change(name, None, client.request("DELETE", name))

    async def _queue_step(self, client: AdministrationClient, name: str, tree: Tree) -> None:
        assert isinstance(tree.version, Version)
        place = f"{name}, born {tree.version.born}"
        match self.chance.randrange(8):
            case 0 | 1:
                await self._update(client, name, tree)
            case 2:
                await self._take_all(client, name, place)
            case 3:
                await self._delete(client, name)
            case _:
                await self._put_messages(client, name, [place])

    async def _topic_step(self, client: AdministrationClient, name: str, tree: Tree) -> None:
        wanted = self.chance.choice(SUBSCRIPTIONS)
        subscription = next((one for one in tree.subscriptions if one.name == wanted), None)
        path = f"{name}/Subscriptions/{wanted}"
        choice = self.chance.randrange(14)
        if choice == 0:
            await self._delete(client, name)
        elif choice == 1:
            await self._update(client, name, tree)
        elif choice < 6:
            places = [_place(name, one) for one in tree.subscriptions]
            await self._put_messages(client, name, places)
        elif subscription is None:
            number = self._next_change()
            made = Subscription(wanted, Version(number, number), None)
            request = client.put_entity(path, "Subscription", Version(number, number), update=False)
            await self._change(name, tree.with_subscription(made), request)
        elif choice < 8:
            await self._take_all(client, path, _place(name, subscription))
        elif choice < 10:
            assert isinstance(subscription.version, Version)
            version = subscription.version._replace(changed=self._next_change())
            changed = tree.with_subscription(subscription._replace(version=version))
            request = client.put_entity(path, "Subscription", version, update=True)
            await self._change(name, changed, request)
        elif choice < 13:
            await self._change_rule(client, name, tree, subscription)
        else:
            without = tree.without_subscription(wanted)
            await self._change(name, without, client.request("DELETE", path))

    async def _change_rule(
        self, client: AdministrationClient, name: str, tree: Tree, subscription: Subscription
    ) -> None:
        path = f"{name}/Subscriptions/{subscription.name}/Rules/{EXTRA_RULE}"
        number = None
        if subscription.rule is None or self.chance.random() < 0.5:
            number = self._next_change()
            request = client.put_rule(path, number, update=subscription.rule is not None)
        else:
            request = client.request("DELETE", path)
        changed = tree.with_subscription(subscription._replace(rule=number))
        await self._change(name, changed, request)

    # ---- messages -----------------------------------------------------------------------------

    async def _put_messages(
        self, client: AdministrationClient, name: str, places: list[str]
    ) -> None:
        for _ in range(MESSAGES_AT_ONCE):
            self._messages += 1
            text = f"message {self._messages} to {', '.join(places)}"
            self._book.putting(places, text)
            status, answer = await client.request("POST", f"{name}/messages", text)
            assert status == CREATED, answer
            self._book.put(places, text)

    async def _take_all(self, client: AdministrationClient, path: str, place: str) -> None:
        text: str | None = ""
        while text is not None:
            self._book.taking(place)
            status, content = await client.request("DELETE", f"{path}/messages/head?timeout=0")
            assert status in {OK, NO_CONTENT}, content
            text = content if status == OK else None
            self._book.took(place, text)

    # ---- the end ------------------------------------------------------------------------------

    async def conclude(self) -> Report:
        client = AdministrationClient(self.surroundings.http_port)
        try:
            for name in QUEUES:
                await self._look_at_queue(client, name)
            for name in TOPICS:
                await self._look_at_topic(client, name)
            for name in (*QUEUES, *TOPICS):
                await self._empty(client, name)
            for kind, names in (("Queues", QUEUES), ("Topics", TOPICS)):
                await self._look_at_list(client, kind, names)
        finally:
            await client.close()
        return self._book.audit()

    async def _empty(self, client: AdministrationClient, name: str) -> None:
        tree = self._book.value(name)
        if tree is None:
            return
        if name in QUEUES:
            assert isinstance(tree.version, Version)
            await self._take_all(client, name, f"{name}, born {tree.version.born}")
        for one in tree.subscriptions:
            await self._take_all(client, f"{name}/Subscriptions/{one.name}", _place(name, one))

    async def _look_at_list(
        self, client: AdministrationClient, kind: str, names: tuple[str, ...]
    ) -> None:
        """Lists and single looks must agree."""
        listed = await client.entries(f"$Resources/{kind}")
        for name in names:
            if (name in listed) != (self._book.value(name) is not None):
                self._book.wrongly_listed(name)


def _place(topic: str, subscription: Subscription) -> str:
    """A subscription, and which creation of it."""
    assert isinstance(subscription.version, Version)
    return f"{topic}/{subscription.name}, born {subscription.version.born}"
