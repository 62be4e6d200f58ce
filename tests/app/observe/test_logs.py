"""Logs are one line an event, on standard output, in the form the operator chose."""

from __future__ import annotations

import fcntl
import io
import json
import logging
import os

import pytest
import structlog

from broker.app.observe import logs
from config.settings.settings import LogFormat, LogLevel, Settings


@pytest.fixture
def configured():
    """Configures logging into memory, and puts back what was there."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, structlog.get_config())

    def configure(**settings):
        output = io.StringIO()
        logs.configure(Settings(**settings), output)
        return output

    yield configure
    handlers, level, config = before
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**config)


def test_json_has_one_object_a_line(configured):
    """With time, level, logger and everything the event was given."""
    output = configured(log_format=LogFormat.JSON)
    structlog.get_logger("peeklock.amqp").info("link.attached", address="orders", credit=10)
    event = json.loads(output.getvalue())
    assert "2" == event.pop("timestamp")[0]
    assert {
        "event": "link.attached",
        "level": "info",
        "logger": "peeklock.amqp",
        "address": "orders",
        "credit": 10,
    } == event


def test_the_console_shows_the_text_scripts_wait_for(configured):
    """Whole and on one line."""
    output = configured()
    structlog.get_logger("peeklock").info("ready", text="Emulator Service is Successfully Up!")
    (line,) = output.getvalue().splitlines()
    assert "Emulator Service is Successfully Up!" in line
    assert "\x1b" not in line


def test_texts_of_clients_do_not_control_a_terminal(configured):
    """Control characters are escaped, other characters are not."""
    output = configured()
    texts = {"reason": "\x1b[2J", "message_id": "größe\x9b", "entity": "größe", "two": "a b\n\x07"}
    structlog.get_logger("peeklock").info("dead_lettered", **texts)
    (line,) = output.getvalue().splitlines()
    assert line.isprintable()
    for written in (
        r"reason='\x1b[2J'",
        r"message_id='größe\x9b'",
        "entity=größe",
        r"two='a b\n\x07'",
    ):
        assert written in line


def test_what_is_below_the_level_is_not_written(configured):
    """Warnings pass where info does not."""
    output = configured(log_level=LogLevel.WARNING, log_format=LogFormat.JSON)
    log = structlog.get_logger("peeklock")
    log.info("quiet")
    log.warning("loud")
    assert ["loud"] == [json.loads(line)["event"] for line in output.getvalue().splitlines()]


@pytest.mark.parametrize("log_format", LogFormat)
def test_the_standard_library_logs_the_same_way(configured, log_format):
    """A library's warning has the same format. Its debug messages are dropped."""
    output = configured(log_format=log_format)
    logging.getLogger("aiohttp.server").info("chatter")
    logging.getLogger("aiohttp.server").warning("odd %s", "request")
    (line,) = output.getvalue().splitlines()
    assert "odd request" in line
    assert "aiohttp.server" in line
    assert "warning" in line


@pytest.mark.parametrize("log_format", LogFormat)
def test_secrets_are_not_written(configured, log_format):
    """Neither tokens nor bodies nor passwords, also not through the variables of a traceback."""
    output = configured(log_format=log_format)
    log = structlog.get_logger("peeklock")
    log.info("x", token="s3cret", body=b"s3cret", storage="postgresql://me:s3cret@host/db")
    try:
        body = b"s3" + b"cret"
        raise ValueError(len(body))
    except ValueError:
        log.exception("failed")
    assert "s3cret" not in output.getvalue()
    assert "postgresql://***@host/db" in output.getvalue()
    assert "ValueError: 6" in output.getvalue()


def test_a_terminal_that_is_gone_stops_nothing(configured):
    """The line is lost, the broker is not."""
    output = configured()
    output.close()
    structlog.get_logger("peeklock").warning("nobody reads this")


def test_lines_that_nobody_reads_are_dropped_and_counted(configured, monkeypatch):
    """A write to a full pipe would stop the broker. When the pipe is read again, every line is whole."""
    monkeypatch.setattr(logs, "READER_WAIT_MS", 1)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 8192)
    with os.fdopen(reading, "rb", 0) as reader, os.fdopen(writing, "w") as output:
        configured()  # puts back what was there
        logs.configure(Settings(log_format=LogFormat.JSON), output)
        log = structlog.get_logger("peeklock.test")
        log.info("first")
        log.info("long", text="x" * 10_000)
        for _ in range(3):
            log.info("dropped")
        read = reader.read(8192)
        log.info("after")
        read += reader.read(8192)
    first, torn, *others = read.decode().splitlines()
    assert "first" == json.loads(first)["event"]
    assert "xxx" in torn
    events = [json.loads(line) for line in others]
    assert ["after", "log.dropped"] == [event["event"] for event in events]
    assert 4 == events[-1]["count"]
