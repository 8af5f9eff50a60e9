"""What the HTTP front takes and holds at most, and how long it waits. Values only; each says why that number."""

from __future__ import annotations

import msgspec

MIB = 1024 * 1024


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Counts are for a process, all servers together, unless they say otherwise; sizes in bytes, times in seconds."""

    connections: int = 2000
    """Open at a time on one listener, idle ones too: each costs a descriptor and some KiB."""
    pipelined: int = 100
    """Requests of one connection that wait for their answers; real clients wait for each."""
    lingering: int = 64
    """Beside them, for a second each: those that are told to come back, so that they can read it."""
    head: int = 64 * 1024
    """Of one request's line and headers; tokens and names take a few KiB."""
    head_time: float = 20.0
    """From a connection's or a request's first byte to the end of its headers."""
    body: int = 64 * MIB
    """Of one POST: as a line over stdio."""
    body_time: float = 30.0
    """From a request's headers to the end of its body."""
    commit: float = 5.0
    """A call that takes longer is answered by a stream: the first byte is out before an intermediary gives up (some after 10), a client of
    2025-11-25 can resume, and hardly an error that needs a status of its own comes later."""
    keep_alive: float = 15.0
    """Between two comments on a silent stream (R102): the least patient intermediaries close after 30."""
    stalled: float = 30.0
    """A client that takes no byte for so long is not waited for."""
    opening: float = 120.0
    """For a server's answer to ``initialize``: it may install itself first."""
    sessions: int = 4000
    """Legacy sessions."""
    sessions_per_caller: int = 2000
    """Without authentication everybody is one caller."""
    idle: float = 1800.0
    """A legacy session without a connection and nothing in flight ends after it."""
    detached: float = 3600.0
    """The same with something in flight, which goes on without its client (T35)."""
    streams: int = 64
    """Of one legacy session, requests in flight and streams that are open."""
    requests_per_caller: int = 1000
    """Modern requests in flight, subscriptions too."""
    events: int = 1000
    """Kept of one stream for whoever comes back."""
    event_bytes: int = 4 * MIB
    """The same; one event larger than this is still kept. Also how much may wait behind the event that a client is about to read, or more as
    long as the client has taken something while so much came."""
    held_bytes: int = 256 * MIB
    """Of all streams' events, waiting and kept: over it the largest gives way."""
    finished: int = 32
    """Streams of one session that are over and can be asked for again."""
    resume: float = 300.0
    """For so long after their end."""
    unread: float = 60.0
    """For a request to a client that reads no stream at all: as long as most peers wait for an answer. Then the request gets an error."""
    retry: int = 1000
    """Milliseconds that a client is told to wait before it comes back (R95)."""
