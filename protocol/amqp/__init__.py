"""AMQP 1.0: from the bytes of a socket to commands for the core, and back.

Nothing here does IO: the owner of the socket feeds bytes in and writes the bytes that it gets. The layers of one
connection, each of which imports only those below it (checked by import-linter):

    connection            one client: its state, its authorization and its links
      connection_services   what a connection needs of the broker process
      namespace_commands    the way of its commands into a namespace of the core
    nodes                 `$cbs`, `$management`, the transaction coordinator, and the choice of a link's kind
    links                 links that carry messages; they are the peers of the core's commands
    faults                what fault rules do to connections, links and requests
    authorization         the grants of a connection, and the claims that its links require
    outcome_mapping       outcomes and settlements, errors and conditions
    engine                Proton, by plain C calls: states, sessions, links, deliveries
    wire_view             frames as JSON, for the control API; beside the engine
    frames                frames that are inspected before Proton gets them, or changed after it has written them
    sasl                  the SASL layer, before Proton gets the first byte
    held_memory           how much memory a client makes the broker hold

Messages stay bytes: `protocol.codec` finds and replaces their sections.

The engine passes many messages to the connection in one call. Links answer later, usually after a commit, with the
same links and deliveries; an answer for a link that is detached does nothing. The output of the engine is taken once
after each turn, so that all answers of a turn are one write.
"""
