"""One module a subject, one function a scenario: `send_one` is `send-one`. See `blocking.py`."""
