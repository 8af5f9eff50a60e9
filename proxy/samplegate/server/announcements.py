"""Announcements to the operator: the start, the end, and reasons why the daemon does not start.

On a terminal these are sentences. Elsewhere each is a log event, so that a program can parse every line of stderr.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Final

from samplegate.telemetry.log import EventLog, Format, Level
from samplegate.text import print_line

_FORMATS: Final[dict[str, Format]] = {"json": "json", "text": "text"}


def announce(
    log: EventLog, event: str, message: str, *, level: Level = "info", fields: Mapping[str, object] | None = None
) -> None:
    """Announce one event as a sentence, with ``fields`` for programs."""
    if log.format == "text":
        print_line(message if level == "info" else f"{level}: {message}")
    else:
        getattr(log, level)(event, message=message, **(fields or {}))


def refuse_start(problem: str) -> None:
    """Print why the daemon did not start, one line each. The settings may be unknown, so the format comes from the
    environment variable or suits stderr."""
    log = EventLog("info", _FORMATS.get(os.environ.get("SAMPLEGATE_LOG_FORMAT", "")))
    for line in problem.split("\n"):
        if log.format == "text":
            print_line(line)
        else:
            log.error("start.refused", message=line)


class Library(logging.Handler):
    """Log handler for warnings and errors of libraries. Without it, Python writes them to stderr unformatted."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record as an event."""
        tell = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        tell(
            "library.logged",
            logger=record.name,
            message=record.getMessage(),
            **({"exc_info": record.exc_info} if record.exc_info else {}),
        )


def log_libraries(log: EventLog) -> None:
    """Route the log records of libraries, and Python's warnings, to our log."""
    logging.captureWarnings(True)
    logging.getLogger().addHandler(Library(log))
