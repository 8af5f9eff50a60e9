"""What is wrong with a POST of 2026-07-28 by its own envelope and headers (R49, R54, R71 to R76). Decides nothing by a header's value (R75)."""

from __future__ import annotations

import re
from typing import Final

from samplegate.core import http_headers, jsontext
from samplegate.core.eras import META_CAPABILITIES, META_VERSION, MODERN
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.links.front import heading
from samplegate.links.front.mirrored import Mirrored
from samplegate.links.front.replies import BAD_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_VERSION, Reply, refusal
from samplegate.links.front.visit import Visit

_plain: Final = re.compile(rb"[!#-\[\]-~]{1,256}")


def fault(visit: Visit, frame: Frame, mirrored: Mirrored) -> Reply | None:
    """Why a request or notification is refused before anybody reads what it asks, None if it is not."""
    if frame.envelope.clean is not None:  # the session takes what is not quite JSON; headers are not compared with it
        return refusal(400, "parse", "refused: its params cannot be read", frame.id)
    try:
        params, meta = frame.object, frame.meta
        trace = jsontext.string(meta.raw("traceparent"))
    except Malformed as problem:
        return refusal(400, "parse", f"refused: {problem.fault}", frame.id)
    if trace:
        visit.trace = heading.traceparent(trace) or visit.trace
    if frame.kind == "notification":
        return _unsupported(visit, frame, meta) or _checked(visit, frame)
    found = _envelope(frame, meta) or _mismatch(visit, frame, params, meta) or _unsupported(visit, frame, meta)
    return found or _removed(frame) or _unmirrored(visit, frame, params, mirrored)


def _begins(raw: bytes | None, sign: bytes) -> bool:
    return raw is not None and raw[:1] == sign


def _envelope(frame: Frame, meta: jsontext.Object) -> Reply | None:
    """What every request must declare (R49)."""
    if not _begins(meta.raw(META_VERSION), b'"'):
        return refusal(400, "meta", f"params._meta has no {META_VERSION}", frame.id, code=BAD_PARAMS)
    if not _begins(meta.raw(META_CAPABILITIES), b"{"):
        return refusal(400, "meta", f"params._meta has no {META_CAPABILITIES}", frame.id, code=BAD_PARAMS)
    return None


def _mismatch(visit: Visit, frame: Frame, params: jsontext.Object, meta: jsontext.Object) -> Reply | None:
    """Headers that do not mirror the body (R73). What matches byte for byte is seen without taking every header apart."""
    found = visit.found
    member = http_headers.NAMED.get(frame.method)
    if (
        not visit.twice
        and found.get(heading.METHOD) == frame.method.encode()
        and _says(meta.raw(META_VERSION), found.get(heading.VERSION))
        and (member is None or _says(params.raw(member), found.get(heading.NAME)))
    ):
        return None
    return _checked(visit, frame)


def _says(raw: bytes | None, value: bytes | None) -> bool:
    """Whether a raw JSON string is a header's value, where both can be written in one way only."""
    return value is not None and _plain.fullmatch(value) is not None and raw == b'"' + value + b'"' and not value.startswith(b"=?")


def _checked(visit: Visit, frame: Frame) -> Reply | None:
    problem = http_headers.check(visit.scope["headers"], frame)
    return None if problem is None else refusal(400, "mismatch", problem, frame.id, code=http_headers.MISMATCH)


def _unmirrored(visit: Visit, frame: Frame, params: jsontext.Object, mirrored: Mirrored) -> Reply | None:
    """Arguments of a tool that their headers do not mirror (R74)."""
    if frame.method != "tools/call" or not mirrored.knows(visit.caller):
        return None
    problem = mirrored.fault(visit.caller, jsontext.string(params.raw("name")), visit.scope["headers"], params.raw("arguments"))
    return None if problem is None else refusal(400, "mismatch", problem, frame.id, code=http_headers.MISMATCH)


def _unsupported(visit: Visit, frame: Frame, meta: jsontext.Object) -> Reply | None:
    """A revision that is none of ours (R54)."""
    requested = jsontext.string(meta.raw(META_VERSION)) or heading.text(visit.found.get(heading.VERSION)) or ""
    if requested in MODERN:
        return None
    data = jsontext.dump({"supported": MODERN, "requested": requested[:100]})
    return refusal(400, "version", "the protocol version is not supported", frame.id, code=UNSUPPORTED_VERSION, data=data)


def _removed(frame: Frame) -> Reply | None:
    """The handshake does not exist here (R58), and must not reach a conversation that others share."""
    if frame.method != "initialize":
        return None
    return refusal(404, "method", "method not found: initialize", frame.id, code=METHOD_NOT_FOUND)
