"""HTTP: administration, the REST data plane, AMQP over WebSocket, probes and the testing API.

    request ──► entities.py ──► paths.py      which entity, rule, list or message is meant
                    │
                    ├─► admin.py            Atom XML ⇄ entity commands
                    │     atom.py             envelopes, and parsing without surprises
                    │     descriptions.py     queues, topics, subscriptions → XML
                    │     description_reading.py  and back
                    │     authorization_rules.py  their keys ⇄ XML
                    │     rules.py            filters and actions ⇄ XML
                    └─► data_plane.py       messages over plain requests
                          rest_messages.py    headers and body ⇄ a message
    permission.py says who may ask for what;
    application.py puts it together; probes.py, testing.py, topology.py and websocket.py stand beside;
    bodies.py bounds what is read, errors.py words every refusal.

Handlers translate and the core decides; no state outlives a request, a WebSocket aside. Importing
this package is free; `application` pulls in aiohttp, which is not.
"""
