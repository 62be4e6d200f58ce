"""HTTP: administration, the REST data plane, AMQP over WebSocket, probes and the testing API.

    request ──► entities.py ──► paths.py      which entity, rule, list or message is meant
                    │
                    ├─► admin.py        Atom XML ⇄ entity commands
                    │     atom.py         envelopes and safe parsing
                    │     descriptions.py queues, topics, subscriptions ⇄ XML
                    │     rules.py        filters and actions ⇄ XML
                    └─► data_plane.py   messages over plain requests
                          rest_messages.py  a request ⇄ a message
    probes.py, testing.py, websocket.py stand beside; errors.py words every refusal.

Handlers translate and the core decides; no state outlives a request, a WebSocket aside. Importing
this package is free; `application` pulls in aiohttp, which is not.
"""
