"""What can go wrong with a remote server, as one sentence for whoever waits: never a URL, a header or a word that the server wrote."""

from __future__ import annotations

import os
from typing import Any, Final

import aiohttp

from samplegate.core import frames, jsontext
from samplegate.core.session.shapes import INTERNAL

_STATUS: Final = {
    400: "it does not take the request",
    401: "it does not take the gate's credentials",
    403: "it forbids this to the gate",
    404: "it has nothing at this address",
    405: "it takes no POST at this address",
    406: "it cannot answer as the protocol says",
    413: "the request is too large for it",
    415: "it does not take JSON",
    429: "it has too many requests",
    431: "the request's headers are too large for it",
    502: "what stands before it cannot reach it",
    503: "it is not ready",
    504: "what stands before it has waited too long",
}


class Fault(Exception):
    """Why a remote server's answer did not come. ``data`` goes into the error for programs: ``httpStatus``, or ``transport`` and a word."""

    def __init__(self, reason: str, **data: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.data = data


class Gone(Fault):
    """The server does not know our session any more (R94)."""

    def __init__(self) -> None:
        super().__init__("HTTP 404: it does not know the session any more", httpStatus=404)


def of_status(status: int) -> Fault:
    """An HTTP answer that is no MCP answer."""
    why = _STATUS.get(status) or ("it redirects" if 300 <= status < 400 else "it failed" if status >= 500 else "it is not an answer of the protocol")
    return Fault(f"HTTP {status}: {why}", httpStatus=status)


def of_error(error: BaseException) -> Fault:
    """What the HTTP client ran into."""
    match error:
        case Fault():
            return error
        case aiohttp.ClientConnectorDNSError():
            return Fault("its name cannot be resolved", transport="unreachable")
        case aiohttp.ClientConnectorCertificateError():
            return Fault("its certificate is not valid", transport="tls")
        case aiohttp.ClientSSLError() | aiohttp.ServerFingerprintMismatch():
            return Fault("no TLS connection can be made", transport="tls")
        case aiohttp.ClientConnectorError():
            return Fault(f"it cannot be reached{_said(error)}", transport="unreachable")
        case TimeoutError():
            return Fault("no connection was made in time", transport="unreachable")
        case aiohttp.ClientPayloadError():
            return Fault("its answer broke off", transport="broken")
        case aiohttp.ClientResponseError():
            return Fault("its answer is not HTTP, or its headers are too large", transport="broken")
        case _:
            return Fault("it closed the connection before it had answered", transport="broken")


def _said(error: OSError) -> str:
    """The system's own words, which come from a number: a text of an exception may hold an address."""
    return f": {os.strerror(error.errno).lower()}" if error.errno is not None and error.errno > 0 else ""


def answer(id: frames.FrameId, fault: Fault) -> bytes:
    """The fault as the answer of the request it concerns."""
    return frames.error(id, INTERNAL, f"the remote server did not answer: {fault.reason}", jsontext.dump(fault.data) if fault.data else None)
