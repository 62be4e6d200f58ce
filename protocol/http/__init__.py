"""HTTP: administration, the REST data plane, AMQP over WebSocket, probes and the testing API.

    request ──► entity_routes.py ──► request_paths.py      which entity, rule, list or message is meant
                    │
                    ├─► administration_api.py            Atom XML ⇄ entity commands
                    │     atom.py             envelopes, and parsing without surprises
                    │     descriptions.py     queues, topics, subscriptions → XML
                    │     description_reader.py  and back
                    │     authorization_rules_xml.py  their keys ⇄ XML
                    │     rules_xml.py            filters and actions ⇄ XML
                    └─► handlers.py       messages over plain requests
                          rest_messages.py    headers and body ⇄ a message
    permission.py says who may ask for what;
    application.py puts it together; probes.py, clock_api.py, topology_api.py and websocket.py stand beside;
    request_bodies.py bounds what is read, error_responses.py words every refusal.

Handlers translate and the core decides; no state outlives a request, a WebSocket aside. Importing
this package is free; `application` pulls in aiohttp, which is not.
"""
