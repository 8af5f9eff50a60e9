"""The ports through which the gate reaches the world: each a plain callable, so that a fake is a few lines. No behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from samplegate.core.ledger import Draw, Refused, Reserved
from samplegate.core.record import Record
from samplegate.core.samples import SampleRequest, SampleResult
from samplegate.core.session.rounds import Note, Reply, Round


class Unavailable(Exception):
    """An edge could not work: the log cannot be written, the worker cannot be started. The message is for the operator."""


class Log(Protocol):
    """Where events go: structlog's bound logger has this shape."""

    def warning(self, event: str, **fields: object) -> object: ...
    def info(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


class Ports(msgspec.Struct, frozen=True):
    """What the gate needs of the world; each a plain callable, so that a fake is a few lines."""

    sample: Callable[[SampleRequest, Callable[[int], None]], Awaitable[SampleResult]]
    """Ask one model once. The second argument is told, from the first token on and some times a second at most, how many have come."""
    reserve: Callable[[Sequence[Draw], float | None], Awaitable[Reserved | Refused]]
    """Charge all of the draws or none. With seconds given it waits that long for room, first come first served; it never raises."""
    settle: Callable[[Reserved, Sequence[Draw]], Awaitable[None]]
    """Correct a reservation to what was really drawn (a missing draw: nothing) and free its slots. Never raises: what fails stays at worst case."""
    progress: Callable[[str, int], None]
    """A round's model has written so many tokens: tell the peers that gave a progress token."""
    ask_client: Callable[[Round], Awaitable[Reply]]
    """Forward a pushed request; ends with the client's reply, or is cancelled."""
    record: Callable[[Record], Awaitable[None]]
    """Raises Unavailable where the record could not be made durable."""
    note: Callable[[Note], None]
    """Something for the log and the counters: never content."""
    clock: Callable[[], float]
    """Monotonic seconds, the same as the session is told."""
    wall: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    log: Log
