"""HTTP: administration, the REST data plane, AMQP over WebSocket, probes, the control API and the console.

    request ──► entity_routes.py ──► request_paths.py      which entity, rule, list or message a path names
                    │            └─► permission.py         which claim a request needs
                    ├─► admin/administration_api.py          Atom XML ⇄ entity commands
                    │     descriptions.py                    queues, topics, subscriptions → XML
                    │     description_reader.py              XML → queues, topics, subscriptions
                    │     authorization_rules_xml.py         keys ⇄ XML
                    │     rules_xml.py                       filters and actions ⇄ XML
                    └─► data_plane/data_plane_api.py         send, receive and settle by requests
                          rest_messages.py                   headers and body ⇄ a message

`application.py` adds all routes. `probes.py`, `identity_endpoint.py`, `websocket.py`, `control/` and `console/` have
routes of their own. `request_bodies.py` limits bodies, `error_responses.py` writes errors, `atom.py` parses and writes
XML, `broker_services.py` and `control_services.py` are what handlers need from the broker.

Handlers translate, and the core decides. Only a WebSocket keeps state after its request. Importing this package
loads nothing; `application` loads aiohttp.
"""
