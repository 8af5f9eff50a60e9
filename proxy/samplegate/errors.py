"""Errors that any part may raise, and the log to which they are reported."""

from __future__ import annotations

from typing import Protocol


class InputError(Exception):
    """A file or an argument that cannot be read. The message names it and gives the reason."""


class Unavailable(Exception):
    """A failure at an edge: the log cannot be written, or the worker cannot start. The message is for the operator."""


class Log(Protocol):
    """Protocol of the event log; structlog's bound logger fits it."""

    def debug(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def info(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...
