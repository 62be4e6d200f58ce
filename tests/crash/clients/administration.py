"""The administration API and the data plane over HTTP, as far as crash runs need them.

Every entity has a version in all properties that can be set, so that a partial change is visible. A
missing answer raises; a refusal is returned as a status.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

import aiohttp

from tests.support.proton.answers import Unanswered
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER_TIMEOUT_S = 30.0
STARTING_AGAIN = 503
ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"


class Version(NamedTuple):
    """Which creation of an entity, and which change since."""

    born: int
    changed: int


def properties_of(kind: str, version: Version) -> dict[str, str]:
    """What an entity of this version is like, element by element."""
    number = version.changed
    properties = {
        "UserMetadata": f"{version.born}.{version.changed}",
        "DefaultMessageTimeToLive": f"P{1 + number % 13}D",
    }
    if kind != "Topic":
        properties["LockDuration"] = f"PT{5 + number % 50}S"
        properties["MaxDeliveryCount"] = str(1 + number % 97)
    return properties


class AdministrationClient:
    """Sends requests until `close`. Every request has its own connection."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Status and content of the answer."""
        try:
            request = self._session.request(
                method, f"{self._address}/{path}", data=body, headers=headers
            )
            async with request as answer:
                status, text = answer.status, await answer.text()
        except TimeoutError:
            raise Unanswered(f"no answer to {method} {path} for {ANSWER_TIMEOUT_S} s") from None
        except (aiohttp.ClientError, asyncio.IncompleteReadError) as failure:
            raise PeerFailed(f"{method} {path}: {failure}") from failure
        if status == STARTING_AGAIN:  # which says nothing about whether it was done
            raise PeerFailed(f"{method} {path}: {text}")
        return status, text

    async def put_entity(
        self, path: str, kind: str, version: Version, *, update: bool
    ) -> tuple[int, str]:
        elements = "".join(
            f"<{name}>{value}</{name}>" for name, value in properties_of(kind, version).items()
        )
        return await self._put(path, f"{kind}Description", elements, update=update)

    async def put_rule(self, path: str, changed: int, *, update: bool) -> tuple[int, str]:
        """A rule nothing matches."""
        expression = f"<SqlExpression>sys.Label = 'never-{changed}'</SqlExpression>"
        elements = f'<Filter i:type="SqlFilter">{expression}</Filter>'
        return await self._put(path, "RuleDescription", elements, update=update)

    async def _put(
        self, path: str, description: str, elements: str, *, update: bool
    ) -> tuple[int, str]:
        body = (
            f'<entry xmlns="{ATOM}"><content type="application/xml"><{description} '
            f'xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{elements}</{description}></content></entry>'
        )
        return await self.request("PUT", path, body, {"If-Match": "*"} if update else {})

    async def entries(self, path: str) -> dict[str, ET.Element]:
        """What a list has, by name: up to a page of it."""
        status, text = await self.request("GET", path)
        if status == 404:
            return {}
        assert status == 200, text
        return {
            entry.findtext(f"{{{ATOM}}}title") or "": entry
            for entry in ET.fromstring(text).iter(f"{{{ATOM}}}entry")
        }


def read_version(kind: str, element: ET.Element) -> Version | str:
    """The version of an entity, or how its properties contradict each other."""
    names = properties_of(kind, Version(0, 0))
    found = {name: element.findtext(f".//{{{SERVICE_BUS}}}{name}") for name in names}
    born, _, changed = (found["UserMetadata"] or "").partition(".")
    if born.isdigit() and changed.isdigit():
        version = Version(int(born), int(changed))
        if found == properties_of(kind, version):
            return version
    return str(found)


def read_rule(element: ET.Element) -> int | str:
    """The change that made a rule what it is."""
    text = element.findtext(f".//{{{SERVICE_BUS}}}SqlExpression") or ""
    number = text.removeprefix("sys.Label = 'never-").removesuffix("'")
    return int(number) if number.isdigit() else text
