"""The AMQP engine of one connection: Proton behind the interface in `interface.py`.

The only package that calls Proton's C functions. It knows sessions, links, transfers and outcomes.
Not here: what a link is for (`links`, `nodes`).
"""
