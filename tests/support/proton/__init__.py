"""The Proton client of the tests, in two layers.

`connection` moves bytes and opens links; whoever uses it walks Proton's events itself. `client` awaits
the answers to what it asked, under asyncio; `links` and `nodes` are its links and request nodes.
"""
