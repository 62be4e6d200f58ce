"""What every operation does: a pure machine, without await, clock, socket or log.

    turn = Turn()
    namespace.apply(command, now_ms, turn)      # what was asked (`commands.py`)
    namespace.dispatch(now_ms, turn)            # credit meets waiting messages, once a turn
    turn.records                                # to be remembered (`records.py`)
    turn.effects                                # to be told, once remembered (`effects.py`)

`namespace.py` is the one place where commands are acted on; it hands each to what it concerns:
`link_operations.py` (attach, credit, detach), `send_and_settle.py` (sends and settlements), `message_requests.py` (what
`$management` asks), `entity_administration.py` (entities), `transactions.py`. Entities (`entity.py`,
`topic.py`) have queues (`queue.py`), which messages enter and leave; `settlement.py` owns what becomes
of those that were locked, `dispatcher.py` and `ready_messages.py` the order of delivery, `sessions.py` the
sessions, `locks.py` the locks, `payloads.py` which bodies are in memory, `deadlines.py` everything
that waits for its time. `compiled_rule.py` and `sql/` decide which subscription takes a message.

Time is an argument, tokens and ids come from outside, and a body is bytes that only an injected
`MessageReader` looks into. A refusal (`errors.py`) is a value in an effect and has changed nothing.
"""
