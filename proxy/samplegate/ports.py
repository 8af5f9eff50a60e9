"""The ports through which the gate reaches the world: each a plain callable, so that a fake is a few lines. No behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from samplegate.core.record import Record
from samplegate.core.samples import SampleRequest, SampleResult
from samplegate.core.session.rounds import Reply, Round


class Unavailable(Exception):
    """An edge could not work: the log cannot be written, the worker cannot be started. The message is for the operator."""


class Log(Protocol):
    """Where events go: structlog's bound logger has this shape."""

    def warning(self, event: str, **fields: object) -> object: ...
    def info(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


class Ports(msgspec.Struct, frozen=True):
    """What the gate needs of the world; each a plain callable, so that a fake is a few lines."""

    sample: Callable[[SampleRequest], Awaitable[SampleResult]]
    ask_client: Callable[[Round], Awaitable[Reply]]
    """Forward a pushed request; ends with the client's reply, or is cancelled."""
    record: Callable[[Record], Awaitable[None]]
    """Raises Unavailable where the record could not be made durable."""
    clock: Callable[[], float]
    """Monotonic seconds, the same as the session is told."""
    wall: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    log: Log
