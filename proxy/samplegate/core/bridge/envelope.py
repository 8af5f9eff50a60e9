"""The envelope of a modern request: checked as a modern server would (R49, R54, R58), and taken off for a server that knows none.

Not what the request asks for: that goes on as it came, and the server judges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.eras import META, META_CAPABILITIES, META_LOG_LEVEL, META_VERSION, MODERN
from samplegate.core.frames import Frame, FrameId
from samplegate.core.session import declared, shapes, unasked
from samplegate.core.session.inflight import call_and_token

UNSUPPORTED_VERSION: Final = -32022
META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
REMOVED: Final = frozenset({"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Requests of a client's that the modern era has no more (R58)."""
_OURS: Final = frozenset(name.casefold() for name in (META_VERSION, META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL))
MAX_CLIENT_INFO: Final = 16 * 1024  # bytes of a clientInfo that is shown to the server; with icons in it


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is not taken, as an error for whoever sent it."""

    code: int
    message: str
    data: bytes | None = None

    def line(self, id: FrameId) -> bytes:
        """The error on the wire."""
        return frames.error(id, self.code, self.message, self.data)


class Envelope(msgspec.Struct, frozen=True):
    """What a request says of whoever sent it, as far as a legacy server can be told."""

    client: bytes | None
    """``clientInfo``, raw JSON."""
    level: str | None
    """The least severe log messages that it wants; None for none at all (R79)."""


def removed(method: str) -> Refusal | None:
    """The error for a method that does not exist in the modern era (R58), or that would slip past policy (tasks, R108)."""
    if method not in REMOVED and not method.startswith("tasks/"):
        return None
    data = jsontext.dump({"supported": MODERN})  # R87: the one thing that helps whoever meant another era
    return Refusal(shapes.METHOD_NOT_FOUND, f"method not found: {method[:100]}; the revision spoken here is {MODERN[0]}", data)


def read(f: Frame) -> Envelope | Refusal:
    """The envelope of a request. Raises jsontext.Malformed where it has two readings."""
    meta = f.meta.members
    if not meta:
        return _missing(META)
    version = jsontext.string(_of(meta, META_VERSION))
    if version is None:
        return _missing(META_VERSION)
    if version not in MODERN:
        data = jsontext.dump({"supported": MODERN, "requested": version[:100]})
        return Refusal(UNSUPPORTED_VERSION, "unsupported protocol version", data)
    if (_of(meta, META_CAPABILITIES) or b"")[:1] != b"{":
        return _missing(META_CAPABILITIES)
    level = _of(meta, META_LOG_LEVEL)
    if level is not None and jsontext.string(level) not in LEVELS:
        return Refusal(shapes.BAD_PARAMS, f"{META_LOG_LEVEL} is not one of {', '.join(LEVELS)}")
    client = _of(meta, META_CLIENT)
    shown = client is not None and client[:1] == b"{" and len(client) <= MAX_CLIENT_INFO
    return Envelope(client if shown else None, jsontext.string(level))


def check(f: Frame) -> None:
    """Raises jsontext.Malformed where another parser could find another request, as before a modern server: what is taken off is not seen later."""
    call_and_token(f, modern=True)
    declared.read(f.meta.raw(META_CAPABILITIES))


def _of(meta: Mapping[str, msgspec.Raw], name: str) -> bytes | None:
    return bytes(meta[name]) if name in meta else None


def _missing(name: str) -> Refusal:
    return Refusal(shapes.BAD_PARAMS, f"params: {name} is missing or of a wrong type; a request of {MODERN[0]} bears it")


class Bare(msgspec.Struct, frozen=True):
    """A frame as a legacy server may see it."""

    frame: Frame
    answers: bool = False
    """Whether answers that nobody had asked for were taken out of it."""


def bare(f: Frame) -> Bare | Refusal:
    """A frame without its modern envelope, all else raw (R109). Raises jsontext.Malformed where its params have two readings."""
    params = f.members
    if params is None:
        return Bare(f)
    changes, answers = without_envelope(f.meta), False
    if unasked.brings_answers(f.object):
        if (f.object.raw("requestState") or b"null") != b"null":
            return Refusal(shapes.BAD_PARAMS, "requestState is not one of ours: none was given out for this server")  # R68
        answers = "inputResponses" in params
        if answers and isinstance(problem := unasked.read(bytes(params["inputResponses"])), str):
            return Refusal(shapes.BAD_PARAMS, problem)
        changes |= {name: None for name in ("requestState", "inputResponses") if name in params}
    if f.method == "tools/call" and "task" in params:  # a legacy server's own tasks would bring answers past policy (R106, R108)
        changes["task"] = None
    return Bare(f.changed(payload=f.object.changed(changes)) if changes else f, answers)


def without_envelope(meta: jsontext.Object) -> dict[str, bytes | None]:
    """What changes in params that bear the modern members in their ``_meta``; none of it is left where nothing else is in it."""
    left = {name: value for name, value in meta.members.items() if name.casefold() not in _OURS}
    if len(left) == len(meta.members):
        return {}
    return {META: b"{" + b",".join(jsontext.dump(name) + b":" + bytes(value) for name, value in left.items()) + b"}" if left else None}
