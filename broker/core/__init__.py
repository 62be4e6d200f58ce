"""The broker's state and rules as a pure state machine: no await, clock, socket or log.

    turn = Turn()
    namespace.apply(command, now_ms, turn)      # carry out a command (`contract/commands.py`)
    namespace.dispatch(now_ms, turn)            # deliver messages to receivers with credit, once a turn
    turn.records                                # for the store (`contract/records.py`)
    turn.effects                                # for clients, after the commit (`contract/effects.py`)

`namespace.py` passes each command to its module in `operations`. Operations use `entities` (queues, topics,
subscriptions), entities have `queues`, and topics use `routing` to find the subscriptions of a message.
`messages` and `contract` are below all of them. `restore.py` fills a namespace from the store at start.
pyproject.toml has the import rules.

Time is an argument. Lock tokens and ids come from outside. A body is bytes, and only the injected
`MessageReader` reads it. A refusal (`contract/errors.py`) is a value in an effect and has changed nothing.
"""
