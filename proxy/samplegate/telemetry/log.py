"""The log on stderr: JSON lines for programs, plain lines for a terminal. Only fields that a call passes are logged.

structlog formats events and is imported by the first one, so that a quiet start does not pay for it. The access log has
one line for every HTTP request, formatted without structlog and written in batches. Untrusted text cannot end a line,
control a terminal or be long. Writes never block: lines are buffered up to a bound, then dropped and counted. Nothing
is written to stdout.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final, Literal, TextIO, TypeAlias

import msgspec

from samplegate.telemetry.metrics import Metrics

Format: TypeAlias = Literal["json", "text"]
Event: TypeAlias = Mapping[str, Any]
"""``time``, ``level``, ``event`` and fields, in the order of output; ``exception`` is a traceback."""

MAX_VALUE: Final = 1000  # characters; only a traceback may be longer, within its own bound
MAX_TRACEBACK: Final = 20_000

_plain: Final = re.compile(r"[\w.:/@+-]+\Z", re.ASCII)


def stamp(now: float) -> str:
    """A time in Unix seconds as in the lines: UTC, truncated to the millisecond, so never in the future."""
    return f"{_second(int(now))}.{int(now % 1 * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def as_json(event: Event) -> str:
    """``{"time": "2026-11-01T12:00:01.000Z", "level": "warning", "event": "request.refused", "rule": "no
    secrets"}``."""
    return _quoted(_bounded(event))


def as_text(event: Event) -> str:
    """``12:00:01 warning  request.refused   rule="no secrets" kind=elicitation``; a traceback follows on separate
    lines."""
    fields = _bounded(event)
    trace = fields.pop("exception", None)
    head = f"{fields.pop('time')[11:19]} {fields.pop('level'):<7} {fields.pop('event')}"
    line = " ".join([head, *(f"{name}={_value_text(value)}" for name, value in fields.items())])
    if trace is None:
        return line
    lines = [ascii(part)[1:-1].replace("##", "#\\x23") for part in str(trace).splitlines()]
    return "\n    ".join([line, *lines])


FORMS: Final[Mapping[Format, Callable[[Event], str]]] = {"json": as_json, "text": as_text}


def _bounded(event: Event) -> dict[str, Any]:
    return {name: _short(value, MAX_TRACEBACK if name == "exception" else MAX_VALUE) for name, value in event.items()}


def _short(value: Any, length: int) -> Any:
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(map(str, value)) if isinstance(value, set | frozenset) else list(value)
        return [_short(item, length) for item in items[:50]]
    text = str(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) and _plain.match(value) else _quoted(value)


def _quoted(value: Any) -> str:
    """A value as ASCII JSON, which cannot control a terminal or end the line. ``##`` is escaped, because CI systems
    react to it anywhere in a line."""
    return json.dumps(value).replace("##", "#\\u0023")


# seconds that a line may be buffered: too short to notice, and a busy gate writes hundreds of calls at once
DELAY: Final = 0.05
# characters, all ASCII: a ready pipe accepts them without blocking (POSIX's PIPE_BUF on Linux)
MAX_WRITE: Final = 4096
# buffered characters that are written before DELAY is over, so that a pipe of 64 KiB is emptied meanwhile
FULL: Final = 4 * MAX_WRITE
MAX_BUFFERED: Final = 256 * 1024  # characters buffered while the stream is not read: about a thousand lines

Later: TypeAlias = Callable[[float, Callable[[], None]], object]
"""Calls something after some seconds. Raises RuntimeError if no event loop runs."""


def _in_loop(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)


class LineWriter:
    """Buffered, non-blocking writer of ASCII lines to one stream. ``later`` is the loop's ``call_later``, except in
    tests."""

    def __init__(self, stream: TextIO, later: Later = _in_loop) -> None:
        self._stream = stream
        self._later = later
        self._lock = threading.RLock()
        self._held: deque[str] = deque()
        self._size = 0
        self._armed = self._stuck = self._registered = False
        self.dropped = 0
        """The number of dropped lines."""
        self._count: Callable[[int], object] | None = None

    def count_dropped(self, count: Callable[[int], object]) -> None:
        """Also report the number of dropped lines to this function, now and later."""
        with self._lock:
            count(self.dropped)
            self._count = count

    def put(self, line: str) -> None:
        """Write a line now, after all buffered lines. If the stream is not ready, the line is buffered too."""
        with self._lock:
            self.flush()
            self._keep(line)
            self.flush()

    def collect(self, line: str) -> None:
        """Write a line within DELAY, or at once if no event loop runs."""
        with self._lock:
            self._keep(line)
            if (self._size >= FULL and not self._stuck) or not (self._armed or self._arm()):
                self.flush()

    def flush(self) -> None:
        """Write the buffered lines, as far as the stream accepts them without blocking."""
        with self._lock:
            waiting = 0
            try:
                while self._held and _ready(self._stream):
                    waiting = len(self._held)
                    self._stream.write(self._piece())
                    self._stream.flush()
            except (OSError, ValueError):  # the stream is closed, or its reader is gone
                self._drop(waiting)
                self._held.clear()
                self._size = 0
            self._stuck = bool(self._held)
            if self._stuck and not self._armed:
                self._arm()

    def _keep(self, line: str) -> None:
        if self._held and self._size + len(line) >= MAX_BUFFERED:
            self._drop(1)
            return
        self._held.append(line + "\n")
        self._size += len(line) + 1

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        if self._count is not None:
            self._count(lines)

    def _piece(self) -> str:
        """Remove and return the next whole lines, or the beginning of a line that is too long for one write."""
        first = self._held.popleft()
        if len(first) > MAX_WRITE:
            self._held.appendleft(first[MAX_WRITE:])
            first = first[:MAX_WRITE]
        parts, size = [first], len(first)
        while self._held and size + len(self._held[0]) <= MAX_WRITE:
            parts.append(self._held.popleft())
            size += len(parts[-1])
        self._size -= size
        return "".join(parts)

    def _arm(self) -> bool:
        """Schedule the next flush. False if there is no event loop."""
        if not self._registered:
            self._registered = True
            atexit.register(self.flush)
        try:
            self._later(DELAY, self._due)
        except RuntimeError:
            return False
        self._armed = True
        return True

    def _due(self) -> None:
        self._armed = False
        self.flush()


def _ready(stream: TextIO) -> bool:
    """False if a write would block, as on a pipe that is not read. True if that cannot be found out (a file,
    Windows)."""
    if sys.platform == "win32":
        return True
    try:
        fd = stream.fileno()
    except (OSError, ValueError):
        return True
    return bool(select.select((), (fd,), (), 0)[1]) if fd < 1024 else True  # select's own limit


Level: TypeAlias = Literal["debug", "info", "warning", "error"]

LEVELS: Final[Mapping[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class EventLog:
    """The log of events with fields. Events are dotted and past tense, and have no message content. The format is text
    on a terminal and JSON elsewhere."""

    def __init__(self, level: Level = "info", format: Format | None = None, stream: TextIO | None = None) -> None:
        out = sys.stderr if stream is None else stream
        self.writer = LineWriter(out)
        """The writer of its lines, also for code that formats lines itself."""
        self.format: Format = format or ("text" if _is_terminal(out) else "json")
        self._least = LEVELS[level]
        self._bound: Any = None

    def count_dropped(self, metrics: Metrics) -> None:
        """Count dropped lines in these metrics from now on, including earlier ones."""
        self.writer.count_dropped(partial(metrics.count, "samplegate_log_dropped_total"))

    def is_enabled(self, level: Level) -> bool:
        """Whether events of this level are written."""
        return LEVELS[level] >= self._least

    def debug(self, event: str, **fields: object) -> None:
        """Log a detail for debugging."""
        self._log("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log a normal event."""
        self._log("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log something that needs attention, while the gate continues."""
        self._log("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a failure. ``exc_info=True`` adds the traceback."""
        self._log("error", event, fields)

    def _log(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        if not self.is_enabled(level):
            return
        if self._bound is None:
            self._bound = _structlog(_Lines(self.writer), self.format)
        getattr(self._bound, level)(event, **fields)


class _Lines:
    """The logger that structlog writes lines to; all levels are the same."""

    def __init__(self, writer: LineWriter) -> None:
        self.debug = self.info = self.warning = self.error = writer.put


def _structlog(lines: _Lines, format: Format) -> Any:
    hidden = "rich" not in sys.modules
    if hidden:
        # structlog would import rich for tracebacks that we do not print: 0.1 s, 5 MiB
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog
    finally:
        if hidden:
            del sys.modules["rich"]
    form = FORMS[format]

    def stamped(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"time": stamp(time.time()), "level": event.pop("level"), "event": event.pop("event"), **event}

    return structlog.wrap_logger(
        lines,
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            stamped,
            lambda _logger, _method, event: form(event),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),
        context_class=dict,
        cache_logger_on_first_use=True,
    )


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


EVENT: Final = "http.request"
Value: TypeAlias = str | int | float

_encoded: Final = msgspec.json.Encoder().encode
_spaced: Final = msgspec.json.format


class AccessLog:
    """The access log: lines in the format of an event log, at level info. ``wall`` is Unix seconds."""

    def __init__(self, log: EventLog, *, wall: Callable[[], float] = time.time) -> None:
        self.wanted = log.is_enabled("info")
        """Whether lines are written at all."""
        self._form = _as_json if log.format == "json" else FORMS[log.format]
        self._writer = log.writer
        self._wall = wall

    def write(self, fields: Mapping[str, Value]) -> None:
        """Log a finished request. Its line is written within ``DELAY``, or before the log's next event."""
        if self.wanted:
            self._writer.collect(self._form({"time": stamp(self._wall()), "level": "info", "event": EVENT, **fields}))


def _as_json(event: Event) -> str:
    """The same as ``as_json`` in a fifth of the time, if nothing needs shortening or more escapes than JSON's own."""
    try:
        line = _spaced(_encoded(event), indent=0).decode("ascii")
    except (ValueError, OverflowError):  # not ASCII, an unpaired surrogate, or a number beyond 64 bits
        return as_json(event)
    return as_json(event) if len(line) > MAX_VALUE or "##" in line or "\x7f" in line else line
