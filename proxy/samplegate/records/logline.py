"""One event of the log -> its line, as JSON or as text. Nothing in it that a stranger chose ends the line, drives a terminal or is long."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

Format: TypeAlias = Literal["json", "text"]
Event: TypeAlias = Mapping[str, Any]
"""``time``, ``level``, ``event`` and fields, in the order in which they are shown; ``exception`` is a traceback."""

MAX_VALUE: Final = 1000  # characters; a traceback is the only long value and has its own bound
MAX_TRACEBACK: Final = 20_000

_plain: Final = re.compile(r"[\w.:/@+-]+\Z", re.ASCII)


def stamp(now: float) -> str:
    """A time in Unix seconds as lines show it: UTC, to the millisecond, never one that has not begun."""
    return f"{_second(int(now))}.{int(now % 1 * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def as_json(event: Event) -> str:
    """``{"time": "2026-11-01T12:00:01.000Z", "level": "warning", "event": "request.refused", "rule": "no secrets"}``."""
    return _quoted(_bounded(event))


def as_text(event: Event) -> str:
    """``12:00:01 warning  request.refused   rule="no secrets" kind=elicitation``; a traceback follows on its own lines."""
    fields = _bounded(event)
    trace = fields.pop("exception", None)
    head = f"{fields.pop('time')[11:19]} {fields.pop('level'):<7} {fields.pop('event')}"
    line = " ".join([head, *(f"{name}={_shown(value)}" for name, value in fields.items())])
    if trace is None:
        return line
    lines = [ascii(part)[1:-1].replace("##", "#\\x23") for part in str(trace).splitlines()]
    return "\n    ".join([line, *lines])


FORMS: Final[Mapping[Format, Callable[[Event], str]]] = {"json": as_json, "text": as_text}


def _bounded(event: Event) -> dict[str, Any]:
    return {name: _short(value, MAX_TRACEBACK if name == "exception" else MAX_VALUE) for name, value in event.items()}


def _short(value: Any, most: int) -> Any:
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(map(str, value)) if isinstance(value, set | frozenset) else list(value)
        return [_short(item, most) for item in items[:50]]
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and _plain.match(value) else _quoted(value)


def _quoted(value: Any) -> str:
    """JSON in ASCII: nothing in it drives a terminal or ends the line. Nor a CI system, which looks for ``##`` anywhere in one."""
    return json.dumps(value).replace("##", "#\\u0023")
