"""The commands of random clients, built from what the clients know.

Has the commands and their frequencies, for hypothesis and for the seeded generator. `comparison.py`
checks the results.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.core.contract import commands as ask
from broker.core.contract.commands import SessionRequest
from broker.core.contract.settlement_values import ReceiveMode
from config.model.definitions import (
    UNLIMITED_MS,
    CorrelationFilter,
    EntityStatus,
    RuleDefinition,
    TopicDefinition,
)
from tests.model.durability_checks import Given, Sent
from tests.model.model_entities import DEFERRED, SCHEDULED
from tests.model.model_operations import DEAD_SUFFIX
from tests.model.random_clients import FLOODS, PAUSES_MS, Choices, Clients
from tests.model.run_entities import (
    ENTITIES,
    LIVE_MS,
    LOCK_MS,
    SEND_VIA,
    SESSIONS,
    mark_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from config.model.definitions import EntityDefinition

SHORT_PAUSES_MS = (1, 1_000, 1_000, LOCK_MS // 2)
RULES = (RuleDefinition("red", CorrelationFilter(label="red")), RuleDefinition("any"))
STATE_BYTES = (1, 3, 300 * 1024)


class RandomCommands(Clients):
    """Call a move by name with a source of choices."""

    # --- moves: sending ---------------------------------------------------------------------

    def send(self, choices: Choices) -> None:
        if not self.known.senders:
            self.attach_sender(choices)
            return
        sender = choices.pick(list(self.known.senders))
        messages = self.messages(choices, self.known.senders[sender])
        transaction_id = self.transaction(choices)
        held = transaction_id is not None
        if choices.rarely(3):
            handle = Sent([mark_of(message) for message in messages], held=held)
            command: Command = ask.SendBatch(sender, messages, handle, transaction_id)
        else:
            handles = [
                None if choices.rarely(8) else Sent([mark_of(message)], held=held)
                for message in messages
            ]
            command = ask.Send(sender, messages, handles, transaction_id)
        self.do(choices, command)

    def schedule(self, choices: Choices) -> None:
        path = self.send_path(choices)
        messages = self.messages(choices, path, scheduled=not choices.rarely(6))
        self.do(
            choices,
            ask.Schedule(
                self.client("asker"),
                self.name("schedule"),
                path,
                messages,
                self.transaction(choices),
            ),
        )

    def cancel(self, choices: Choices) -> None:
        path = self.send_path(choices)
        numbers = self.numbers_of(choices, path, SCHEDULED)
        if not numbers:
            self.schedule(choices)
            return
        asker = self.client("asker")
        transaction_id = self.transaction(choices)
        self.do(
            choices,
            ask.CancelScheduled(asker, self.name("cancel"), path, numbers, transaction_id),
        )

    # --- moves: links -----------------------------------------------------------------------

    def attach_sender(self, choices: Choices) -> None:
        path = choices.pick(self.focus)
        path += DEAD_SUFFIX if choices.rarely(12) else ""
        via = None
        if self.focus == SEND_VIA:
            via = choices.pick((None, *self.focus))
        self.do(choices, ask.AttachSender(self.client("sender"), path, via))

    def attach_receiver(self, choices: Choices) -> None:
        path = self.receive_path(choices)
        session = None
        if self.has_sessions(path) != choices.rarely(12):
            session_id = choices.pick((*SESSIONS, None, None, None))
            session = SessionRequest(session_id, choices.pick((1_000, 15_000, 65_000)))
        modes = (ReceiveMode.PEEK_LOCK, ReceiveMode.PEEK_LOCK, ReceiveMode.RECEIVE_AND_DELETE)
        client = self.client("receiver")
        self.do(choices, ask.AttachReceiver(client, path, choices.pick(modes), session))
        if choices.rarely(2):
            self.do(choices, ask.Credit(client, choices.number(1, 3)))

    def credit(self, choices: Choices) -> None:
        if not self.known.receivers:
            self.attach_receiver(choices)
            return
        receiver = choices.pick(list(self.known.receivers))
        more = choices.pick(FLOODS) if self.floods and choices.rarely(2) else choices.number(0, 4)
        limit = self.known.got[receiver] + more
        drain = choices.rarely(5)
        if drain:
            # What arrives in the same turn may or may not be drained: that would be a race.
            self.do(choices, ask.Tick(), alone=True)
        self.do(choices, ask.Credit(receiver, limit, drain), alone=drain)

    def detach(self, choices: Choices) -> None:
        known = self.known
        links = [*known.receivers, *known.asked, *known.senders, *known.gone[-3:]]
        if not links:
            return
        peers = [choices.pick(links)]
        if choices.rarely(3):
            peers.append(choices.pick([link for link in links if link not in peers] or peers))
        for peer in peers:
            for clients in (known.receivers, known.asked, known.senders):
                clients.pop(peer, None)
            if peer not in known.gone:
                known.gone.append(peer)
        self.do(choices, ask.Detach(list(dict.fromkeys(peers)), choices.rarely(2)))

    # --- moves: settling --------------------------------------------------------------------

    def settle(self, choices: Choices) -> None:
        paths = [one.path for one in self.known.taken if self.is_locked(one)]
        receivers = [one for one, path in self.known.receivers.items() if path in paths]
        if not receivers:
            self.settle_by_token(choices)
            return
        receiver = choices.pick(receivers)
        taken = self.some_taken(choices, self.known.receivers[receiver])
        transaction_id = self.transaction(choices)
        held = transaction_id is not None
        handles = [
            None if choices.rarely(8) else Given(one.mark, one.id, held=held) for one in taken
        ]
        tokens = [one.token for one in taken]
        settlement = self.settlement(choices)
        self.do(choices, ask.Settle(receiver, tokens, handles, settlement, transaction_id))

    def settle_by_token(self, choices: Choices) -> None:
        taken = self.some_taken(choices)
        if not taken:
            self.credit(choices)
            return
        one = taken[0]
        self.do(
            choices,
            ask.SettleByToken(
                self.client("asker"),
                self.name("settle"),
                one.path,
                [one.token for one in taken],
                self.settlement(choices),
                one.session_id if self.has_sessions(one.path) else None,
                self.transaction(choices),
            ),
        )

    def renew(self, choices: Choices) -> None:
        taken = self.some_taken(choices)
        if not taken:
            self.credit(choices)
            return
        tokens = list(dict.fromkeys(one.token for one in taken))
        asker = self.client("asker")
        self.do(choices, ask.RenewLocks(asker, self.name("renew"), taken[0].path, tokens))

    # --- moves: looking and fetching --------------------------------------------------------

    def peek(self, choices: Choices) -> None:
        path = self.receive_path(choices)
        session_id = choices.pick((None, *SESSIONS)) if self.has_sessions(path) else None
        command = ask.Peek(
            self.client("asker"),
            self.name("peek"),
            path,
            choices.pick((0, 1, 3, 5)),
            choices.pick((100, 1, 2)),
            session_id,
        )
        self.do(choices, command)

    def fetch(self, choices: Choices) -> None:
        path = self.receive_path(choices)
        numbers = self.numbers_of(choices, path, DEFERRED)
        if not numbers:
            self.credit(choices)
            return
        session_id = None
        if self.has_sessions(path) and choices.rarely(2):
            session_id = choices.pick(SESSIONS)
        command = ask.ReceiveDeferred(
            self.client("asker"),
            self.name("fetch"),
            path,
            numbers,
            choices.pick(list(ReceiveMode)),
            session_id,
        )
        self.do(choices, command)

    def delete_messages(self, choices: Choices) -> None:
        path = self.receive_path(choices)
        before_ms = self.comparison.now_ms - choices.pick((0, -1, LOCK_MS))
        session_id = choices.pick((None, *SESSIONS)) if self.has_sessions(path) else None
        count = choices.pick((1, 2, 5, 6))
        asker = self.client("asker")
        command = ask.DeleteMessages(asker, self.name("delete"), path, count, before_ms, session_id)
        self.do(choices, command)

    # --- moves: sessions --------------------------------------------------------------------

    def session(self, choices: Choices) -> None:
        paths = [path for path in self.focus if self.has_sessions(path)] or [self.focus[-1]]
        path = choices.pick(paths)
        session_id = choices.pick(SESSIONS)
        asker, request = self.client("asker"), self.name("session")
        what = choices.pick(("set", "renew", "get", "clear", "list", "list since"))
        since_ms = self.comparison.now_ms - choices.pick((0, LOCK_MS))
        commands: dict[str, Command] = {
            "renew": ask.RenewSessionLock(asker, request, path, session_id),
            "set": ask.SetSessionState(
                asker, request, path, session_id, bytes(choices.pick(STATE_BYTES))
            ),
            "clear": ask.SetSessionState(asker, request, path, session_id, None),
            "get": ask.GetSessionState(asker, request, path, session_id),
            "list": ask.ListSessions(asker, request, path, choices.number(0, 1), 2),
            "list since": ask.ListSessions(asker, request, path, 0, 100, since_ms),
        }
        self.do(choices, commands[what])

    # --- moves: entities --------------------------------------------------------------------

    def change_entity(self, choices: Choices) -> None:
        path = choices.pick(self.focus)
        entity = self.comparison.model.entities.get(path)
        asker, request = self.client("asker"), self.name("change")
        if entity is None:
            command: Command = ask.CreateEntity(
                asker, request, path, choices.pick((ENTITIES[path], _resting(ENTITIES[path])))
            )
        elif choices.rarely(4):
            command = ask.DeleteEntity(asker, request, path)
        else:
            definition = replace(entity.definition, status=choices.pick(list(EntityStatus)))
            if not isinstance(definition, TopicDefinition):
                definition = replace(
                    definition,
                    lock_duration_ms=choices.pick((LOCK_MS, LOCK_MS // 2)),
                    max_delivery_count=definition.max_delivery_count + choices.number(0, 1),
                    default_time_to_live_ms=choices.pick((LIVE_MS, UNLIMITED_MS)),
                    dead_lettering_on_expiration=choices.rarely(2),
                    forward_to=self._forwards_to(choices, path, "forward_to"),
                    forward_dead_letters_to=self._forwards_to(
                        choices, path, "forward_dead_letters_to"
                    ),
                )
            command = ask.UpdateEntity(asker, request, path, definition)
        self.do(choices, command, alone=True)

    @staticmethod
    def _forwards_to(choices: Choices, path: str, name: str) -> str | None:
        """Returns the forwarding target that the entity had at first, or None."""
        there: str | None = getattr(ENTITIES[path], name)
        return None if there is None or choices.rarely(2) else there

    def change_rules(self, choices: Choices) -> None:
        path = choices.pick(self.focus)
        asker, request = self.client("asker"), self.name("rule")
        rule = choices.pick(RULES)
        command: Command = ask.AddRule(asker, request, path, rule)
        if choices.rarely(2):
            name = choices.pick((rule.name, "$Default"))
            command = ask.RemoveRule(asker, request, path, name)
        self.do(choices, command)

    def heal(self, choices: Choices) -> None:
        """Every entity of the focus is there and enabled again."""
        for path in self.focus:
            entity = self.comparison.model.entities.get(path)
            asker, request = self.client("asker"), self.name("heal")
            if entity is None:
                topic = path.partition("/Subscriptions/")[0]
                if topic == path or topic in self.comparison.model.entities:
                    create = ask.CreateEntity(asker, request, path, _resting(ENTITIES[path]))
                    self.do(choices, create, alone=True)
            elif entity.definition.status is not EntityStatus.ACTIVE:
                definition = replace(entity.definition, status=EntityStatus.ACTIVE)
                update = ask.UpdateEntity(asker, request, path, definition)
                self.do(choices, update, alone=True)

    def get_entity(self, choices: Choices) -> None:
        path = choices.pick(self.focus)
        self.do(choices, ask.GetEntity(self.client("asker"), self.name("get"), path))

    # --- moves: transactions ----------------------------------------------------------------

    def declare(self, choices: Choices) -> None:
        self.do(choices, ask.Declare(self.client("coordinator"), self.name("declare")))

    def discharge(self, choices: Choices) -> None:
        if not self.known.transactions:
            self.declare(choices)
            return
        transaction_id = choices.pick(self.known.transactions[-2:])
        if not choices.rarely(8):
            self.known.transactions.remove(transaction_id)
        asker, request = self.client("asker"), self.name("discharge")
        self.do(choices, ask.Discharge(asker, request, transaction_id, choices.rarely(3)))

    # --- moves: time and store --------------------------------------------------------------

    def wait(self, choices: Choices) -> None:
        self.end_turn()
        moments = self._moments()
        if moments and choices.rarely(3):
            # To the millisecond when something happens, or to the one before.
            until_ms = choices.pick(moments[:3]) - choices.number(0, 1)
            self.comparison.advance(until_ms - self.comparison.now_ms)
        else:
            long = choices.rarely(3)
            self.comparison.advance(choices.pick(PAUSES_MS if long else SHORT_PAUSES_MS))
        if choices.rarely(2):
            self.do(choices, ask.Tick())

    def _moments(self) -> list[int]:
        """When anything will change by itself, the next first."""
        model = self.comparison.model
        moments = {at_ms for at_ms, _, _ in model.events()}
        moments.update(item.expires_ms for item in model.items)
        for entity in model.entities.values():
            moments.update(entity.seen.values())
        return sorted(at_ms for at_ms in moments if at_ms > self.comparison.now_ms)

    def commit(self, choices: Choices) -> None:
        self.end_turn()
        self.comparison.commit(choices.number(1, 5))

    def read(self, choices: Choices) -> None:
        self.end_turn()
        self.comparison.read(choices.number(1, 2))

    def restart(self, choices: Choices) -> None:
        self.end_turn()
        # See `_may_come_late`: what is scheduled for a topic must not have to wait for its body.
        is_topic = any(isinstance(ENTITIES[path], TopicDefinition) for path in self.focus)
        self.comparison.restart(read_bodies=is_topic or not choices.rarely(3))
        self.start_again()


WEIGHTS: dict[str, int] = {
    "send": 12,
    "credit": 10,
    "settle": 10,
    "attach_receiver": 6,
    "wait": 6,
    "settle_by_token": 4,
    "fetch": 4,
    "schedule": 3,
    "peek": 3,
    "session": 3,
    "detach": 3,
    "renew": 2,
    "heal": 4,
    "attach_sender": 2,
    "declare": 2,
    "discharge": 2,
    "commit": 4,
    "read": 4,
    "cancel": 1,
    "delete_messages": 1,
    "change_entity": 1,
    "get_entity": 1,
    "change_rules": 1,
    "restart": 1,
}
"""How often each move is made, by a run that has no better idea."""


def run_random_commands(moves: RandomCommands, choices: Choices, steps: int) -> None:
    """So many random moves."""
    names = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
    for _ in range(steps):
        move: Callable[[Choices], None] = getattr(moves, choices.pick(names))
        move(choices)
    moves.end_turn()


def _resting(definition: EntityDefinition) -> EntityDefinition:
    """The same, forwarding nothing: where that would go may not be there."""
    if isinstance(definition, TopicDefinition):
        return definition
    return replace(definition, forward_to=None, forward_dead_letters_to=None)
