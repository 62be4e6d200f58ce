"""Stands in for entity commands the core does not serve yet. To be deleted."""

from dataclasses import replace

from broker.core import commands as ask
from broker.core.effects import Reply
from broker.core.errors import EntityAlreadyExists, EntityNotFound
from broker.core.namespace import Namespace


class InterimNamespace(Namespace):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        own_create, own_list = self._handlers[ask.CreateEntity], self._handlers[ask.ListEntities]
        done = ask.AddRule in self._handlers
        if done:
            return

        def reply(f):
            def handle(c, now_ms, turn):
                try:
                    turn.effects.append(Reply(c.peer, c.request, f(c, now_ms)))
                except Exception as e:
                    turn.effects.append(Reply(c.peer, c.request, error=e))

            return handle

        def find(path):
            try:
                return self._entities[path.lower()]
            except KeyError:
                raise EntityNotFound(path) from None

        def update(c, now_ms):
            e = find(c.path)
            e.redefine(c.definition, now_ms)
            return e.view()

        def add(c, now_ms):
            e = find(c.path)
            old = [r for r in e.definition.rules if r.name.lower() == c.rule.name.lower()]
            if c.replace and not old:
                raise EntityNotFound(c.rule.name)
            if old and not c.replace:
                raise EntityAlreadyExists("exists")
            rest = [r for r in e.definition.rules if r not in old]
            e.redefine(replace(e.definition, rules=(*rest, c.rule)), now_ms)

        def remove(c, now_ms):
            e = find(c.path)
            rest = [r for r in e.definition.rules if r.name.lower() != c.name.lower()]
            if len(rest) == len(e.definition.rules):
                raise EntityNotFound(c.name)
            e.redefine(replace(e.definition, rules=tuple(rest)), now_ms)

        def rules(c, now_ms):
            return list(find(c.path).definition.rules[c.skip : c.skip + c.top])

        def create(c, now_ms, turn):
            topic = c.path.rpartition("/Subscriptions/")[0]
            if topic and topic.lower() not in self._entities:
                turn.effects.append(Reply(c.peer, c.request, error=EntityNotFound(topic)))
            else:
                own_create(c, now_ms, turn)

        def listing(c, now_ms, turn):
            if c.topic and c.topic.lower() not in self._entities:
                turn.effects.append(Reply(c.peer, c.request, error=EntityNotFound(c.topic)))
            else:
                own_list(c, now_ms, turn)

        self._handlers |= {
            ask.UpdateEntity: reply(update),
            ask.AddRule: reply(add),
            ask.RemoveRule: reply(remove),
            ask.ListRules: reply(rules),
            ask.CreateEntity: create,
            ask.ListEntities: listing,
        }
