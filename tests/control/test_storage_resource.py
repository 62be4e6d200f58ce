"""The store: which it is, and that its file is complete after a flush."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def test_a_flush_answers_which_store_it_is(api, broker):
    answer = api.post("/storage/flush")
    if broker.storage == "memory:":
        nothing = {"file": None, "file_id": None, "database_schema": None}
        assert {"kind": "memory", **nothing} == answer
        return
    file = Path(broker.storage.removeprefix("sqlite:///"))
    found = file.stat()
    assert {
        "kind": "sqlite",
        "file": str(file),
        "file_id": f"{found.st_dev}:{found.st_ino}",
        "database_schema": None,
    } == answer


def test_after_a_flush_the_tables_have_what_was_accepted(api, broker):
    """Each time at once, and not when the broker has been idle for a moment."""
    if broker.storage == "memory:":
        return
    file = broker.storage.removeprefix("sqlite:///")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as reader:
        for _ in range(20):
            sent = api.post("/messages", entity="retries", messages=[{"body": "hello"}])
            api.post("/storage/flush")
            stored = reader.execute("SELECT sequence_number FROM sequence_numbers").fetchall()
            assert (sent["sequence_numbers"][0],) in stored
    api.post("/purge", entity="retries")


def test_a_flush_takes_no_fields(api):
    answer = api.refused("POST", "/storage/flush", {"file": "/tmp/copy.db"})
    assert (400, "file") == (answer.status, answer.error["field"])
