"""The web console: a page in the browser that uses the control API.

`static/` has the page as it is served: HTML, CSS and ES modules, without a build step. Everything that the page shows
and does goes through `/$peeklock/v1`. Not here: anything that reads or changes the broker (`protocol/http/control`).
"""
