"""AMQP 1.0: from the bytes of a socket to commands for the core, and back.

The layers of one connection, outermost first. None of them does IO: whoever owns the socket feeds
bytes in and writes what it is given.

    sasl            the preamble, until the client is past authentication
    frames          cuts the inbound stream where Proton hides what we need to know
    engine          Proton, driven by plain C calls; what we do on a connection and its links
      dispatch        what the client does, told to a handler in the order of the wire
      arrivals        the two loops of it that run once per message
      attach, outcomes, endpoints    what links and deliveries are made of
    connection      that handler: one client, its rights and its links
      links           links that carry messages; the peers of the core's commands
      cbs, management, coordinator    the nodes a client asks things of, over `requests`
      nodes, permits                  what there is to attach to, and what a client may
      addresses, mapping              AMQP's words and Service Bus's

Messages stay bytes: `sections` finds and replaces their parts, `reader` reads what the core asks
for, and `values` knows single values.

The handler hears of many messages in one call, and answers when it likes, usually after a commit,
with the same links and deliveries; an answer for a link that is gone does nothing. After a round of
calls the engine's output is taken once, so that a whole round leaves in one write.
"""
