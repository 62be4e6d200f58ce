"""The Proton client of the tests, in two layers.

`connection` moves bytes and attaches links; its caller handles Proton's events. `client` waits for
answers, under asyncio; `links` and `nodes` are its links and request nodes.
"""
