"""What fault rules do to requests of the administration API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from protocol.faults.conditions import ExpiredToken
from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.fault_rule import OperationOfClient, decide
from protocol.http import request_paths
from protocol.identity import key_name_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from protocol.http.broker_services import BrokerServices


async def inject(
    services: BrokerServices,
    request: web.Request,
    resource: request_paths.ManagedResource,
    answer: Callable[[], Awaitable[web.Response]],
) -> web.Response:
    """Answers a request, or does to it what a rule says."""
    faults = services.faults.of(services.namespace_name)
    if faults is None:
        return await answer()
    key_name = key_name_of(request.headers.get("Authorization"))
    one = OperationOfClient(
        (Operation.ADMINISTRATION,),
        request_paths.entity_of(resource),
        key_names=() if key_name is None else (key_name,),
    )
    action = decide(faults.about(one), lambda _: True)
    if action is None:
        return await answer()
    match action.kind:
        case FaultKind.REFUSE | FaultKind.SERVER_BUSY:
            raise action.error()
        case FaultKind.EXPIRE_TOKEN:
            raise ExpiredToken
        case FaultKind.DELAY:
            await asyncio.sleep(action.seconds)
            return await answer()
    if action.is_after:
        await answer()
    if action.kind is FaultKind.NO_ANSWER:
        await asyncio.Event().wait()  # until the client closes its connection
    if request.transport is not None:
        request.transport.close()
    raise ConnectionResetError("A fault rule has dropped the connection.")
