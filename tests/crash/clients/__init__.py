"""Clients that report the result of every operation. The ledgers judge the results."""
