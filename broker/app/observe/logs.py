"""Configures structlog, and sends the records of the standard library's logging to the same output.

Each event is one line on standard output. A line that cannot be written, or that nobody reads, is dropped. Secrets are
masked.
"""

from __future__ import annotations

import io
import logging
import os
import select
import sys
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from config.model.storage_urls import mask_password
from config.settings.settings import LogFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import EventDict, Processor, WrappedLogger

    from config.files.mistakes import Mistake
    from config.settings.settings import Settings

READER_WAIT_MS = 50
"""How long a line waits for the reader of a full pipe."""
_SECRET_KEYS = frozenset({"authorization", "body", "key", "password", "payload", "token"})

_OWN_TEXTS = frozenset({"event", "exception", "stack"})
"""Texts that can have several lines."""


def open_standard_streams() -> None:
    """Opens descriptors 0 to 2 on the null device if they are closed.

    A process can be started with closed descriptors. The next files and sockets would get these numbers, and
    the output of libraries would be written into them.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one


def configure(settings: Settings, output: TextIO | None = None) -> None:
    """Configures logging. Must be called before the first event: loggers cache the configuration."""
    output = output or sys.stdout or io.StringIO()
    level = logging.getLevelNamesMapping()[settings.log_level.name]
    before: Sequence[Processor] = (
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _mask_secrets,
    )
    render = _renderers(settings.log_format, output)
    lines = _Output(output)
    structlog.configure(
        processors=[_add_name, *before, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *names: _LineWriter(lines, *names),
        cache_logger_on_first_use=True,
    )
    handler = _LineHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *before],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)


def log_config_warning(warning: Mistake) -> None:
    """Logs a warning about the configuration."""
    structlog.get_logger("peeklock.config").warning("config.doubtful", text=str(warning))


def _renderers(log_format: LogFormat, output: TextIO) -> Sequence[Processor]:
    if log_format is LogFormat.JSON:
        # Tracebacks as text: structured tracebacks contain local variables, such as message bodies.
        return structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)
    return (
        _quote_unprintable,
        structlog.dev.ConsoleRenderer(
            colors=output.isatty(),
            pad_event_to=0,
            exception_formatter=structlog.dev.plain_traceback,
        ),
    )


class _Quoted:
    """A text that the renderer writes in quotes and with escapes, as it writes all values that are no text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def _quote_unprintable(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Quotes texts with control characters, which clients may have chosen: a terminal would obey them."""
    for key, value in event.items():
        if key not in _OWN_TEXTS and isinstance(value, str) and not value.isprintable():
            event[key] = _Quoted(value)
    return event


class _Output:
    """Where the lines of all loggers go.

    Writes to the descriptor if there is one. Python's buffer would keep what could not be written, and the process would
    fail with it at its end. The broker does not wait long for a pipe that nobody reads: it drops lines until the pipe is
    read, and then logs how many.
    """

    def __init__(self, output: TextIO) -> None:
        self._stream = output
        try:
            self._descriptor: int | None = output.fileno()
        except (OSError, ValueError):
            self._descriptor = None  # in memory
        self._dropped = 0
        """How many lines were dropped because nobody reads."""
        self._is_torn = False
        """Whether the last line was written in part."""

    def write(self, line: str) -> None:
        """Writes a line, or drops it: a closed pipe, a full disk or a full pipe must not stop the broker."""
        try:
            if self._descriptor is None:
                self._stream.write(line + "\n")
                return
            data = ("\n" * self._is_torn + line + "\n").encode(errors="backslashreplace")
            if not self._write(self._descriptor, data):
                self._dropped += 1
                return
        except (OSError, ValueError):
            return
        if self._dropped:
            count, self._dropped = self._dropped, 0
            structlog.get_logger("peeklock.log").warning("log.dropped", count=count)
            if self._dropped:  # the warning itself was dropped
                self._dropped += count

    def _write(self, descriptor: int, data: bytes) -> bool:
        """Returns False if nobody reads. A pipe that is ready takes as much as `PIPE_BUF` without waiting."""
        position = 0
        while position < len(data):
            if not self._is_ready(descriptor):
                self._is_torn = self._is_torn or position > 0
                return False
            position += os.write(descriptor, data[position : position + select.PIPE_BUF])
        self._is_torn = False
        return True

    def _is_ready(self, descriptor: int) -> bool:
        """Waits for a reader, unless lines were dropped already. A file is always ready."""
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        return bool(poll.poll(0 if self._dropped else READER_WAIT_MS))


class _LineWriter:
    """Writes the lines of a logger to the output."""

    def __init__(self, output: _Output, name: str = "peeklock") -> None:
        self.msg = output.write
        self.name = name
        self.debug = self.info = self.warning = self.error = self.critical = self.exception = (
            self.msg
        )


class _LineHandler(logging.Handler):
    """Writes the records of the standard library's logging."""

    def __init__(self, lines: _Output) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.write(self.format(record))


def _add_name(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["logger"] = logger.name
    return event


def _mask_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for key in event.keys() & _SECRET_KEYS:
        event[key] = "***"
    if isinstance(url := event.get("storage"), str):
        event["storage"] = mask_password(url)
    return event
