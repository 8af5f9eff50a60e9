"""Events on stderr: JSON lines for programs, plain lines for a terminal. Only the fields given are logged, and stdout is never written.

structlog does it, imported by the first event: a quiet start pays nothing. What cannot be written is dropped and counted, because a
client that does not read our stderr must not stop the gate.
"""

from __future__ import annotations

import json
import re
import select
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, TypeAlias

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Format: TypeAlias = Literal["json", "text"]

LEVELS: Final[Mapping[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MAX_VALUE: Final = 1000  # characters; a traceback is the only long value and has its own bound
MAX_TRACEBACK: Final = 20_000
PIECE: Final = 4096  # characters, all ASCII: what a pipe that is ready takes without waiting (POSIX's PIPE_BUF on Linux)

_plain: Final = re.compile(r"[\w.:/@+-]+\Z", re.ASCII)


class Log:
    """Events with fields: dotted, past tense, never a message's content."""

    def __init__(self, level: Level = "info", format: Format | None = None, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._format: Format = format or ("text" if _is_terminal(self._stream) else "json")
        self._level: Level = level
        self._least = LEVELS[level]
        self._bound: Any = None

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
        if LEVELS[level] < self._least:
            return
        if self._bound is None:
            self._bound = _structlog(_Writer(self._stream), self._format)
        getattr(self._bound, level)(event, **fields)


def configure(level: Level = "info", format: Format | None = None, stream: TextIO | None = None) -> Log:
    """The process's log, on stderr; without a format, text where that is a terminal and JSON elsewhere."""
    return Log(level, format, stream)


class _Writer:
    """What structlog writes whole lines to. Each level is the same."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._cut = False
        self.dropped = 0

    def msg(self, line: str) -> None:
        try:
            self._write(("\n" if self._cut else "") + line + "\n")
        except (OSError, ValueError):  # closed, or nobody reads any more
            self.dropped += 1

    def _write(self, line: str) -> None:
        for start in range(0, len(line), PIECE):
            if not _ready(self._stream):
                self.dropped += 1
                self._cut = start > 0
                return
            self._stream.write(line[start : start + PIECE])
            self._stream.flush()
        self._cut = False

    debug = info = warning = error = msg


def _ready(stream: TextIO) -> bool:
    """False if a write would wait: a pipe that nobody empties. Always True where that cannot be asked (a file, Windows)."""
    if sys.platform == "win32":
        return True
    try:
        fd = stream.fileno()
    except (OSError, ValueError):
        return True
    return bool(select.select((), (fd,), (), 0)[1]) if fd < 1024 else True  # select's own limit


def _structlog(writer: _Writer, format: Format) -> Any:
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment] # structlog would import it for tracebacks that we do not print: 0.1 s, 5 MiB
    try:
        import structlog
    finally:
        if hidden:
            del sys.modules["rich"]
    return structlog.wrap_logger(
        writer,
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _stamped,
            _bounded,
            _as_json if format == "json" else _as_text,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),
        context_class=dict,
        cache_logger_on_first_use=True,
    )


_Event: TypeAlias = MutableMapping[str, Any]


def _stamped(_logger: object, _method: str, event: _Event) -> _Event:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": now, "level": event.pop("level"), "event": event.pop("event"), **event}


def _bounded(_logger: object, _method: str, event: _Event) -> _Event:
    return {name: _short(value, MAX_TRACEBACK if name == "exception" else MAX_VALUE) for name, value in event.items()}


def _short(value: Any, most: int) -> Any:
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(map(str, value)) if isinstance(value, set | frozenset) else list(value)
        return [_short(item, most) for item in items[:50]]
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _as_json(_logger: object, _method: str, event: _Event) -> str:
    return _quoted(event)


def _as_text(_logger: object, _method: str, event: _Event) -> str:
    """``12:00:01 warning  request.refused   rule="no secrets" kind=elicitation``; a traceback follows on its own lines."""
    trace = event.pop("exception", None)
    head = f"{event.pop('time')[11:19]} {event.pop('level'):<7} {event.pop('event')}"
    line = " ".join([head, *(f"{name}={_shown(value)}" for name, value in event.items())])
    if trace is None:
        return line
    lines = [ascii(part)[1:-1].replace("##", "#\\x23") for part in str(trace).splitlines()]
    return "\n    ".join([line, *lines])


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and _plain.match(value) else _quoted(value)


def _quoted(value: Any) -> str:
    """JSON in ASCII: nothing in it drives a terminal or ends the line. Nor a CI system, which looks for ``##`` anywhere in one."""
    return json.dumps(value).replace("##", "#\\u0023")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False
