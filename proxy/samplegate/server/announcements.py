"""What the daemon tells its operator outside of the course of things: its start, its end, and what keeps it from
starting.

On a terminal these are sentences. Elsewhere each is an event of the log, so that a program can parse every line of
stderr.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Final

from samplegate.telemetry.log import EventLog, Format, Level
from samplegate.text import say

_FORMATS: Final[dict[str, Format]] = {"json": "json", "text": "text"}


def announce(
    log: EventLog, event: str, message: str, *, level: Level = "info", fields: Mapping[str, object] | None = None
) -> None:
    """One sentence to the operator, with the fields that a program wants of it."""
    if log.format == "text":
        say(message if level == "info" else f"{level}: {message}")
    else:
        getattr(log, level)(event, message=message, **(fields or {}))


def refuse_start(problem: str) -> None:
    """Why nothing was started, a line each. The settings may not be known, so the format is the variable's or what
    suits stderr."""
    log = EventLog("info", _FORMATS.get(os.environ.get("SAMPLEGATE_LOG_FORMAT", "")))
    for line in problem.split("\n"):
        if log.format == "text":
            say(line)
        else:
            log.error("start.refused", message=line)


class Library(logging.Handler):
    """Warnings and errors that libraries log, as events of ours. Without it, Python writes them onto stderr as they
    are."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        tell = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        tell(
            "library.logged",
            logger=record.name,
            message=record.getMessage(),
            **({"exc_info": record.exc_info} if record.exc_info else {}),
        )


def hear_libraries(log: EventLog) -> None:
    """Have what libraries log, and Python's warnings, in our log."""
    logging.captureWarnings(True)
    logging.getLogger().addHandler(Library(log))
