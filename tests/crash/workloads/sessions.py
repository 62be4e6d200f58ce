"""Sessions: held by name or as they come, read and written, closed with work left over.

Senders spread their messages over all sessions; each holder looks at the state first, receives some
messages, completes most of them and says in the state how far it got.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from protocol.codec import Int, Timestamp
from tests.crash.client_workload import QUIET_S, WAIT_S, ClientWorkload, Outgoing
from tests.crash.clients.messages import decode_message, encode_message
from tests.crash.ledgers.sessions import SessionLedger
from tests.crash.workload import LOCK
from tests.support.proton.answers import Refused

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tests.crash.ledgers.messages import Ledger, Link, MessageKey
    from tests.crash.ledgers.report import Report
    from tests.crash.workload import Surroundings
    from tests.support.proton.answers import Outcome
    from tests.support.proton.client import ProtonClient
    from tests.support.proton.links import Receiver
    from tests.support.proton.nodes import Management

QUEUE = "crash-sessions"
SESSIONS = tuple(f"session-{number}" for number in range(12))
HOLDERS = 4
RATE_PER_S = 150
MAX_BACKLOG = 800
MAX_RECEIVED = 30
NAMED_SHARE = 0.5
COMPLETED_SHARE = 0.9
CLEARED_SHARE = 0.2
ACCEPT_TIMEOUT_MS = 500
STATE_BYTES = 300
PAUSE_S = 0.02
PATIENCE = 500
"""So many pauses are enough for the broker to notice that a connection is gone."""
OK = 200

ALL_SESSIONS = Timestamp(253_402_300_800_000)
"""The year 10000 stands for any time."""
CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"
NO_SESSION = "com.microsoft:timeout"


class Sessions(ClientWorkload):
    name = "sessions and their states"
    queues: ClassVar[Mapping[str, Any]] = {QUEUE: {**LOCK, "requires_session": True}}

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._book = SessionLedger(SESSIONS)
        self._next_index = dict.fromkeys(SESSIONS, 0)
        self._states_set = 0

    @property
    def ledgers(self) -> Iterable[Ledger]:
        return (self._book.messages,)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.send_steadily(QUEUE, RATE_PER_S, self._next_message)
        for number in range(HOLDERS):
            yield self._hold(number)

    def run_over(self) -> None:
        self._book.all_dropped(self.surroundings.now_ms())

    # ---- sending ------------------------------------------------------------------------------

    def _next_message(self) -> Outgoing | None:
        if self._book.messages.backlog > MAX_BACKLOG:
            return None
        session = self.chance.choice(SESSIONS)
        key = (session, self._next_index[session])
        self._next_index[session] += 1
        self._book.messages.sending(key)
        return Outgoing(encode_message(key, session_id=session), partial(self._sent, key))

    def _sent(self, key: MessageKey, outcome: Outcome) -> None:
        ledger = self._book.messages
        (ledger.accepted if outcome.is_accepted else ledger.refused)(key)

    # ---- holding ------------------------------------------------------------------------------

    async def _hold(self, number: int) -> None:
        client = self.connect(f"holder-{number}")
        management = await client.management(QUEUE)
        while not self.stopping:
            wanted = self.chance.choice(SESSIONS) if self.chance.random() < NAMED_SHARE else None
            credit = self.chance.randrange(1, MAX_RECEIVED)
            held = await self._accept(client, wanted, credit)
            if held is None:
                await asyncio.sleep(PAUSE_S)
                continue
            session, receiver, link = held
            await self._look_at_state(management, session)
            for _ in range(credit):
                if not await self._receive_one(session, receiver, link, COMPLETED_SHARE):
                    break
            await self._set_state(management, session)
            await self._give_back(session, receiver)

    async def _accept(
        self, client: ProtonClient, wanted: str | None, credit: int
    ) -> tuple[str, Receiver, Link] | None:
        try:
            session, receiver = await client.accept_session(
                QUEUE, wanted, credit, ACCEPT_TIMEOUT_MS
            )
        except Refused as refusal:
            expected = NO_SESSION if wanted is None else CANNOT_BE_LOCKED
            if not str(refusal).startswith(expected):
                raise
            self._book.not_taken()
            return None
        link = self.new_link()
        self._book.taken(session, link.number, self.surroundings.now_ms())
        return session, receiver, link

    async def _accept_at_last(
        self, client: ProtonClient, session: str
    ) -> tuple[str, Receiver, Link] | None:
        """The broker may not have noticed yet that the last holder is gone."""
        for _ in range(PATIENCE):
            held = await self._accept(client, session, MAX_RECEIVED)
            if held is not None:
                return held
            await asyncio.sleep(PAUSE_S)
        return None

    async def _give_back(self, session: str, receiver: Receiver) -> None:
        self._book.giving_back(session)
        await receiver.detach()

    async def _receive_one(
        self,
        session: str,
        receiver: Receiver,
        link: Link,
        completed_share: float,
        wait_s: float = WAIT_S,
    ) -> bool:
        arrival = await receiver.next(wait_s)
        if arrival is None:
            return False
        key, sequence_number = decode_message(arrival.message)
        ledger = self._book.messages
        if ledger.delivered(key, sequence_number, link):
            if key[0] != session:
                self._book.violate("in another session", f"{key} came in {session}")
            if self.chance.random() < completed_share:
                self.complete(receiver.client, arrival, key, link, ledger)
        return True

    # ---- state --------------------------------------------------------------------------------

    async def _look_at_state(self, management: Management, session: str) -> None:
        status, answer = await management.request("get-session-state", {"session-id": session})
        assert status == OK, answer
        self._book.state_seen(session, answer["session-state"])

    async def _set_state(self, management: Management, session: str) -> None:
        self._states_set += 1
        state = None
        if self.chance.random() >= CLEARED_SHARE:
            state = f"{session}, {self._states_set}".encode().ljust(STATE_BYTES)
        self._book.setting_state(session, state)
        status, answer = await management.request(
            "set-session-state", {"session-id": session, "session-state": state}
        )
        assert status == OK, answer
        self._book.state_set(session)

    # ---- the end ------------------------------------------------------------------------------

    async def conclude(self) -> Report:
        client = self.connect("drain")
        management = await client.management(QUEUE)
        for session in SESSIONS:
            held = await self._accept_at_last(client, session)
            if held is None:
                self._book.never_free(session)
                continue
            _, receiver, link = held
            await self._look_at_state(management, session)
            while await self._receive_one(session, receiver, link, 1.0, QUIET_S):
                pass
            await self._give_back(session, receiver)
        for key in await self.peek(client, QUEUE, len(SESSIONS)):
            self._book.violate("left over", f"{key}")
        for key in await self.peek(client, f"{QUEUE}/$DeadLetterQueue", len(SESSIONS)):
            self._book.messages.dead_lettered(key)
        request = {"last-updated-time": ALL_SESSIONS, "skip": Int(0), "top": Int(100)}
        _, answer = await management.request("get-message-sessions", request)
        self._book.sessions_seen(list(answer["sessions-ids"].items) if answer else [])
        return self._book.audit()
