"""Configures structlog, and sends the records of the standard library's logging to the same output.

Each event is one line on standard output. A line that cannot be written is dropped. Secrets are masked.
"""

from __future__ import annotations

import io
import logging
import os
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

_SECRET_KEYS = frozenset({"authorization", "body", "key", "password", "payload", "token"})


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
    structlog.configure(
        processors=[_add_name, *before, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *names: _LineWriter(output, *names),
        cache_logger_on_first_use=True,
    )
    handler = _LineHandler(_LineWriter(output))
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
        structlog.dev.ConsoleRenderer(
            colors=output.isatty(),
            pad_event_to=0,
            exception_formatter=structlog.dev.plain_traceback,
        ),
    )


class _LineWriter:
    """Writes the lines of a logger to the output."""

    def __init__(self, output: TextIO, name: str = "peeklock") -> None:
        self._output = output
        self.name = name
        try:
            self._descriptor: int | None = output.fileno()
        except (OSError, ValueError):
            self._descriptor = None  # in memory

    def msg(self, line: str) -> None:
        """Writes a line, or drops it: a closed pipe or a full disk must not stop the broker.

        Writes to the descriptor if there is one. Python's buffer would keep what could not be written, and
        the process would fail with it at its end.
        """
        try:
            if self._descriptor is None:
                self._output.write(line + "\n")
                return
            data = (line + "\n").encode(errors="backslashreplace")
            while data:
                data = data[os.write(self._descriptor, data) :]
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = exception = msg


class _LineHandler(logging.Handler):
    """Writes the records of the standard library's logging."""

    def __init__(self, lines: _LineWriter) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.msg(self.format(record))


def _add_name(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["logger"] = logger.name
    return event


def _mask_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for key in event.keys() & _SECRET_KEYS:
        event[key] = "***"
    if isinstance(url := event.get("storage"), str):
        event["storage"] = mask_password(url)
    return event
