"""Events on stderr: JSON lines for programs, plain lines for a terminal. Only the fields given are logged, and stdout is never written.

structlog does it, imported by the first event: a quiet start pays nothing. What a line looks like is in ``logline.py``, how it leaves the process
in ``outlet.py``; lines that are too many for all this have a way of their own (``accesslog.py``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final, Literal, TextIO, TypeAlias

from samplegate.records.logline import FORMS, MAX_VALUE, Format, stamp
from samplegate.records.metrics import Metrics
from samplegate.records.outlet import Outlet

__all__ = ["LEVELS", "MAX_VALUE", "Format", "Level", "Log", "configure"]

Level: TypeAlias = Literal["debug", "info", "warning", "error"]

LEVELS: Final[Mapping[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Log:
    """Events with fields: dotted, past tense, never a message's content."""

    def __init__(self, level: Level = "info", format: Format | None = None, stream: TextIO | None = None) -> None:
        out = sys.stderr if stream is None else stream
        self.outlet = Outlet(out)
        """Where its lines go, for who makes some by itself."""
        self.format: Format = format or ("text" if _is_terminal(out) else "json")
        self._least = LEVELS[level]
        self._bound: Any = None

    def count_dropped(self, metrics: Metrics) -> None:
        """Have lines that nobody will see counted there from now on, with those of before."""
        self.outlet.count_dropped(partial(metrics.count, "samplegate_log_dropped_total"))

    def tells(self, level: Level) -> bool:
        """Whether events of this level are written."""
        return LEVELS[level] >= self._least

    def debug(self, event: str, **fields: object) -> None:
        """For whoever looks for a fault."""
        self._say("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """The ordinary course."""
        self._say("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something to look at; the gate goes on."""
        self._say("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something failed. ``exc_info=True`` adds the traceback."""
        self._say("error", event, fields)

    def _say(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        if not self.tells(level):
            return
        if self._bound is None:
            self._bound = _structlog(_Lines(self.outlet), self.format)
        getattr(self._bound, level)(event, **fields)


def configure(level: Level = "info", format: Format | None = None, stream: TextIO | None = None) -> Log:
    """The process's log, on stderr; without a format, text where that is a terminal and JSON elsewhere."""
    return Log(level, format, stream)


class _Lines:
    """What structlog writes whole lines to. Each level is the same."""

    def __init__(self, outlet: Outlet) -> None:
        self.debug = self.info = self.warning = self.error = outlet.put


def _structlog(lines: _Lines, format: Format) -> Any:
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment] # structlog would import it for tracebacks that we do not print: 0.1 s, 5 MiB
    try:
        import structlog
    finally:
        if hidden:
            del sys.modules["rich"]
    return structlog.wrap_logger(
        lines,
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _stamped, _formed(FORMS[format])],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),
        context_class=dict,
        cache_logger_on_first_use=True,
    )


_Event: TypeAlias = MutableMapping[str, Any]


def _stamped(_logger: object, _method: str, event: _Event) -> _Event:
    return {"time": stamp(time.time()), "level": event.pop("level"), "event": event.pop("event"), **event}


def _formed(form: Callable[[_Event], str]) -> Callable[[object, str, _Event], str]:
    return lambda _logger, _method, event: form(event)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False
