"""AMQP 1.0: from the bytes of a socket to commands for the core, and back.

The layers of one connection, outermost first. None of them does IO: whoever owns the socket feeds
bytes in and writes out what it is given.

    sasl.py         the preamble, until the client is past authentication
    frames.py       cuts the inbound stream where Proton hides what we need
    engine.py       Proton, driven by plain C calls: bytes in, handler calls and bytes out
      arrivals.py     its two loops that run once per message
      attach.py       what a client asks of a link, and our reply
      outcomes.py     accepted, rejected, modified ... as values
      endpoints.py    the shapes it shares with its handler
    connection.py   the handler: one client, its rights and its links
    links.py        what a link is for: messages, `$cbs`, `$management`, the transaction coordinator

Messages stay bytes: `sections` finds their parts, and `values` reads and writes single values.

The engine promises its handler calls in the order of the wire, many messages to a call. The handler
answers whenever it likes, usually after a commit, by calling the engine with the same links and
deliveries; an answer that comes after a link is gone does nothing. After a round of calls someone
takes the engine's output once, so that a whole round leaves in one write.
"""
