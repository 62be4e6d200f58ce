"""The test suites; `support` is what they share. Run from the root: `pytest`."""
