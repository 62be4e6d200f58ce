"""Clients that change the same entity at the same time: what was acknowledged is there afterwards."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

CREATIONS = 60
UPDATES = 60
ENTITIES = 20
XML = (
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
    'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
)
RULE = (
    '<RuleDescription {xml}><Filter i:type="CorrelationFilter"><Label>{name}</Label></Filter>'
    "</RuleDescription>"
)
KEY = (
    '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
    "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
    "<Rights><AccessRights>Send</AccessRights></Rights><KeyName>sender</KeyName>"
    f"<PrimaryKey>{'p' * 43}=</PrimaryKey><SecondaryKey>{'s' * 43}=</SecondaryKey>"
    "</AuthorizationRule></AuthorizationRules>"
)
SUBSCRIPTION = "/t/Subscriptions/s"


def entry(description: str) -> str:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f"{description}</content></entry>"
    )


class Http:
    """Requests that run beside each other, as many connections as there are of them."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def ask(
        self, method: str, path: str, body: str = "", *, update: bool = False
    ) -> tuple[int, str]:
        headers = {"If-Match": "*"} if update else {}
        async with self._session.request(
            method, self._base + path, data=body.encode(), headers=headers
        ) as answer:
            return answer.status, await answer.text()

    async def describe(
        self, path: str, kind: str, content: str = "", *, update: bool = False
    ) -> int:
        body = entry(f"<{kind}Description {XML}>{content}</{kind}Description>")
        return (await self.ask("PUT", path, body, update=update))[0]

    async def add_rule(self, name: str) -> int:
        body = entry(RULE.format(xml=XML, name=name))
        return (await self.ask("PUT", f"{SUBSCRIPTION}/Rules/{name}", body))[0]

    async def rule_names(self) -> set[str]:
        names: set[str] = set()
        for skip in range(0, 1_000, 100):
            _, feed = await self.ask("GET", f"{SUBSCRIPTION}/Rules?$skip={skip}&$top=100")
            found = [part.partition("</Name>")[0] for part in feed.split("<Name>")[1:]]
            if not found:
                break
            names.update(found)
        return names


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def process(request, tmp_path_factory) -> Iterator[BrokerProcess]:
    storage = "memory:"
    if request.param == "sqlite":
        storage = f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.db'}"
    with BrokerProcess(storage=storage) as process:
        yield process


@pytest.fixture
def broker(process) -> Iterator[BrokerProcess]:
    """One broker for all tests of a storage. Its entities are deleted after each test."""
    yield process
    for path in ("/t", "/same", *(f"/e{number}" for number in range(ENTITIES))):
        status, _ = process.request("DELETE", path)
        assert status in {200, 404}


def over_http(broker: BrokerProcess, scenario: Callable[[Http], Awaitable[None]]) -> None:
    async def run() -> None:
        connector = aiohttp.TCPConnector(limit=16)
        async with aiohttp.ClientSession(connector=connector) as session:
            await scenario(Http(session, f"http://127.0.0.1:{broker.http_port}"))

    asyncio.run(run())


class RuleManager(threading.Thread):
    """Adds rules over AMQP, as the rule managers of the SDKs do."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._url = f"amqp://127.0.0.1:{port}"
        self.statuses: list[int] = []

    def run(self) -> None:
        connection = BlockingConnection(self._url, timeout=20, allowed_mechs="ANONYMOUS")
        address = "t/Subscriptions/s/$management"
        answers = connection.create_receiver(address, credit=10)
        requests = connection.create_sender(address)
        for number in range(CREATIONS):
            description = {"sql-filter": {"expression": f"x = {number}"}}
            requests.send(
                Message(
                    id=uuid.uuid4(),
                    properties={"operation": "com.microsoft:add-rule"},
                    body={"rule-name": f"amqp-{number}", "rule-description": description},
                )
            )
            properties: Any = answers.receive().properties
            answers.accept()
            self.statuses.append(int(properties["statusCode"]))
        connection.close()


def test_no_acknowledged_rule_is_lost_beside_updates_of_its_subscription(broker):
    """Rules created over HTTP and AMQP, the subscription updated all the while."""

    async def scenario(http: Http) -> None:
        assert 201 == await http.describe("/t", "Topic")
        assert 201 == await http.describe(SUBSCRIPTION, "Subscription")
        manager = RuleManager(broker.amqp_port)
        manager.start()
        try:
            created, updated = await asyncio.gather(
                asyncio.gather(*(http.add_rule(f"http-{n}") for n in range(CREATIONS))),
                asyncio.gather(
                    *(
                        http.describe(
                            SUBSCRIPTION,
                            "Subscription",
                            f"<MaxDeliveryCount>{n + 1}</MaxDeliveryCount>",
                            update=True,
                        )
                        for n in range(UPDATES)
                    )
                ),
            )
        finally:
            await asyncio.to_thread(manager.join)
        assert {201} == set(created)
        assert {200} == set(updated)
        assert [200] * CREATIONS == manager.statuses
        expected = {f"{how}-{n}" for how in ("http", "amqp") for n in range(CREATIONS)}
        assert expected | {"$Default"} == await http.rule_names()

    over_http(broker, scenario)
    if broker.storage != "memory:":
        broker.restart()

        async def afterwards(http: Http) -> None:
            assert 2 * CREATIONS + 1 == len(await http.rule_names())

        over_http(broker, afterwards)


def test_a_removed_rule_stays_removed_beside_updates(broker):
    """An update that began before the removal does not bring the rule back."""

    async def scenario(http: Http) -> None:
        await http.describe("/t", "Topic")
        await http.describe(SUBSCRIPTION, "Subscription")
        for number in range(CREATIONS):
            assert 201 == await http.add_rule(f"r{number}")
        removals = (http.ask("DELETE", f"{SUBSCRIPTION}/Rules/r{n}") for n in range(CREATIONS))
        updates = (
            http.describe(
                SUBSCRIPTION, "Subscription", f"<UserMetadata>{n}</UserMetadata>", update=True
            )
            for n in range(UPDATES)
        )
        removed, _ = await asyncio.gather(asyncio.gather(*removals), asyncio.gather(*updates))
        assert {200} == {status for status, _ in removed}
        assert {"$Default"} == await http.rule_names()

    over_http(broker, scenario)


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_keys_survive_updates_that_do_not_mention_them(broker, kind):
    """An update without AuthorizationRules keeps those there are when it runs, not when it came."""

    async def scenario(http: Http) -> None:
        for number in range(ENTITIES):
            path = f"/e{number}"
            await http.describe(path, kind)
            updates = [
                http.describe(path, kind, f"<UserMetadata>{n}</UserMetadata>", update=True)
                for n in range(5)
            ]
            statuses = await asyncio.gather(
                *updates[:2], http.describe(path, kind, KEY, update=True), *updates[2:]
            )
            assert {200} == set(statuses)
            _, shown = await http.ask("GET", path)
            assert "<KeyName>sender</KeyName>" in shown

    over_http(broker, scenario)


def test_an_update_does_not_bring_a_deleted_entity_back(broker):
    """Each update beside deletions and creations changes an existing entity, or is answered with
    404."""

    async def scenario(http: Http) -> None:
        await http.describe("/t", "Topic")
        for _ in range(20):
            await http.describe(SUBSCRIPTION, "Subscription")
            assert 201 == await http.add_rule("old")
            (status, _), *others = await asyncio.gather(
                http.ask("DELETE", SUBSCRIPTION),
                http.describe(
                    SUBSCRIPTION, "Subscription", "<UserMetadata>u</UserMetadata>", update=True
                ),
                http.describe(SUBSCRIPTION, "Subscription"),
            )
            assert 200 == status
            assert set(others) <= {200, 201, 404, 409}
            if 201 in others:
                assert {"$Default"} == await http.rule_names()  # never the rules of the one before
                await http.ask("DELETE", SUBSCRIPTION)
            assert 404 == (await http.ask("GET", SUBSCRIPTION))[0]

    over_http(broker, scenario)


def test_of_creations_of_one_name_one_succeeds(broker):
    """The others are refused, because the entity exists."""

    async def scenario(http: Http) -> None:
        await http.describe("/t", "Topic")
        entities = await asyncio.gather(*(http.describe("/same", "Queue") for _ in range(20)))
        assert [201] + [409] * 19 == sorted(entities)
        await http.describe(SUBSCRIPTION, "Subscription")
        rules = await asyncio.gather(*(http.add_rule("same") for _ in range(20)))
        assert [201] + [409] * 19 == sorted(rules)

    over_http(broker, scenario)
