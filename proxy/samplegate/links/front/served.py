"""What the HTTP front needs of the rest of the gate, and what the rest sees of it. Shapes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from samplegate.core.frames import Frame, FrameId


class Refused(Exception):
    """A conversation cannot be begun or gone on with; what the client is told. ``status`` is the HTTP status, ``message`` for people."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


class Lane(Protocol):
    """One ordered stream of frames to the client: the response of one POST, or a session's standalone stream. Made by the front."""

    def send(self, line: bytes, last: bool) -> None:
        """Take one frame, without a line end. Returns at once, never raises. ``last`` marks the answer to a request that came on this lane."""

    def ask(self, id: FrameId, line: bytes) -> None:
        """Take a request to the client, which waits for an answer: it goes on this lane while the client reads it, else on another one of its
        session. Returns at once, never raises."""

    def take_back(self, id: FrameId, line: bytes) -> None:
        """Take the cancellation of such a request. Returns at once, never raises."""

    def over(self) -> None:
        """A request that came on this lane is over without an answer: it was cancelled. Counts as ``last`` does. Returns at once."""

    def close(self) -> None:
        """Nothing more comes: the conversation is over. Returns at once; whoever still waits for an answer has had an error on ``send`` before."""


class Conversation(Protocol):
    """One client's way to one server: a legacy session, or what the modern requests of one caller share. Made by the gate."""

    def open_lane(self, lane: Lane, *, standalone: bool = False, trace: str = "") -> int:
        """Enter a lane; its number. ``standalone``: frames that belong to no request go here (number 0; a second one replaces the first).

        ``trace``: the HTTP request's traceparent, right in its form or empty; what is recorded of the lane's requests bears it.
        """
        ...

    def received(self, lane: int, line: bytes | Frame) -> None:
        """One frame of the client's came on a lane. Never raises."""

    def close_lane(self, lane: int) -> None:
        """The client's end of a lane is gone: in the modern era its requests are cancelled, in the legacy eras they go on (T35).

        Called at most once for a lane, and never while this object sends on it: when its last answer is there and nobody reads it any more, or
        its modern client went before. Not for lanes that live as long as their session, and for none after ``on_end``, which ends them all.
        """

    def undelivered(self, id: FrameId) -> None:
        """The client has not read any lane for too long for a request that it was to be sent. Never called while this object sends."""

    def on_end(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once when the conversation is over, whoever ended it."""

    async def aclose(self) -> None:
        """End it: rounds are withdrawn, the server's side is closed. May be called again."""


class Served(Protocol):
    """One server of the settings, as the front sees it."""

    @property
    def name(self) -> str: ...

    async def begin(self, caller: str) -> Conversation:
        """A conversation of its own for one legacy session (R119). Raises Refused."""
        ...

    async def modern(self, caller: str, frame: Frame) -> Conversation:
        """The conversation that this caller's modern frames share, as long as it lives. ``frame`` is for it. Raises Refused."""
        ...
