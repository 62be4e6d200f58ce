"""Peeklock's own API under `/$peeklock`: the control API for tests, the clock, and the export of all entities.

    request ──► control_routes.py ──► control_api.py         the route of a request, its model, its answer
                                        route_table.py       all routes
                                        request_models.py    how query and body become checked values
                                        control_errors.py    the one form of errors
                                        openapi.py           the description of all routes

Each `*_resource.py` contains the routes of one part of the API with their models and handlers. `clock_api.py` and
`topology_api.py` have paths of their own, without a version. The modules of the control API are loaded with its first
request: a start does not need them.
"""
