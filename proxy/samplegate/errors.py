"""Errors that any part may raise, and the log to which they are reported."""

from __future__ import annotations

from typing import Protocol


class InputError(Exception):
    """A file or an argument that nothing can be made of; the text says which and why."""


class Unavailable(Exception):
    """An edge could not work: the log cannot be written, the worker cannot be started. The message is for the
    operator."""


class Log(Protocol):
    """Where events go: structlog's bound logger has this shape."""

    def debug(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def info(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...
