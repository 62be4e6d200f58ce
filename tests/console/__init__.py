"""The web console in a real browser, against a running broker with clients of the stock SDK."""
