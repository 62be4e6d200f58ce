"""Where core, protocol and storage meet: the process.

`server.py` opens the store, restores the namespaces and listens; `turn_loop.py` decides what happens
when, `committer.py` when answers may leave, `amqp_transport.py` and `listener.py` do the IO, `metrics.py`
and `logs.py` tell what is going on. Nothing here decides what a settlement or a send does.
"""
